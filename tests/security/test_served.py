"""The doors on a real server: what is declared, what is asked of whom, and what stays inside."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import Agent, Turn
from dragoman.core.card import Card
from dragoman.core.errors import ConfigError, Forbidden
from dragoman.core.operations import CancelTask, GetTask, SendMessage
from dragoman.core.peer import Context
from dragoman.security.access_control import AccessControl
from dragoman.settings import Rates, Server, Settings
from security.guarded_server import GuardedServer, open_server

V1 = {"a2a-version": "1.0"}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}", **V1}


async def said(running: GuardedServer, token: str, text: str = "hi", **about: Any) -> Any:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}], **about}
    headers = bearer(token)
    return await running.client.post("/message:send", json={"message": message}, headers=headers)


async def test_the_card_declares_what_is_enforced(tmp_path: Path) -> None:
    async with open_server(tmp_path) as running:
        card = (await running.client.get("/.well-known/agent-card.json", headers=V1)).json()
        assert (
            list(card["securitySchemes"])
            == list(running.app.mounts[""].access.authenticator.schemes)
            == ["sso"]
        )
        assert card["securityRequirements"][0]["schemes"].keys() == {"sso"}
        assert card["capabilities"]["extendedAgentCard"] is True
        assert "hidden" not in str(card)
        old = (await running.client.get("/.well-known/agent-card.json")).json()
        assert old["securitySchemes"]["sso"]["type"] == "http"
        assert old["security"] == [{"sso": []}]


async def test_a_caller_is_refused_before_its_body_is_read(tmp_path: Path) -> None:
    async with open_server(tmp_path) as running:
        host, _, port = (
            str(running.client.base_url).removeprefix("http://").strip("/").partition(":")
        )
        reader, writer = await asyncio.open_connection(host, int(port))
        head = (
            "POST / HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n"
            "Content-Type: application/json\r\n"
        )
        writer.write(f"{head}Content-Length: 1000000\r\n\r\n".encode())  # and not one byte of it
        async with asyncio.timeout(60):
            answer = (await reader.read(65536)).decode()
        writer.close()
        assert answer.startswith("HTTP/1.1 401")
        assert 'www-authenticate: Bearer realm="Keeper"' in answer
        assert '"code":-31401' in answer


async def test_scopes_of_agent_and_skill(tmp_path: Path) -> None:
    agent = Agent("Desk", description="d", scopes=["desk"])

    @agent.skill("look", default=True)
    async def look(turn: Turn) -> str:
        return "seen"

    @agent.skill("book", scopes=["book"])
    async def book(turn: Turn) -> str:
        return await turn.ask("When?")

    async with open_server(tmp_path, agent) as running:
        none, desk, both = (running.token(scope=s) for s in ("", "desk", "desk book"))
        assert (await said(running, none)).status_code == 403
        assert (await said(running, desk)).status_code == 200
        refused = await said(running, desk, metadata={"skillId": "book"})
        assert refused.status_code == 403
        assert refused.headers["www-authenticate"] == (
            'Bearer error="insufficient_scope", scope="book"'
        )
        opened = await said(running, both, metadata={"skillId": "book"})
        task = opened.json()["task"]["id"]
        # The same caller with a lesser token may look at the task, but not go on with it.
        assert (await said(running, desk, "now", taskId=task)).status_code == 403
        got = await running.client.get(f"/tasks/{task}", headers=bearer(desk))
        assert got.json()["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        cancel = await running.client.post(f"/tasks/{task}:cancel", headers=bearer(desk))
        assert cancel.status_code == 403
        assert (await said(running, both, "now", taskId=task)).status_code == 200
        card = (await running.client.get("/.well-known/agent-card.json", headers=V1)).json()
        skills = {each["id"]: each for each in card["skills"]}
        assert "securityRequirements" not in skills["look"]
        # A token of `http` has no scopes in the words of OpenAPI: it is only asked for.
        assert skills["book"]["securityRequirements"] == [{"schemes": {"sso": {}}}]


async def test_the_authors_own_function_decides(tmp_path: Path) -> None:
    asked: list[tuple[str, str, str, str]] = []
    agent = Agent("Desk", description="d")

    @agent.skill("look")
    async def look(turn: Turn) -> str:
        return await turn.ask("What?")

    @agent.authorize
    async def decide(caller: Context, operation: object, skill: str, task: str) -> bool | None:
        asked.append((caller.principal, type(operation).__name__, skill, task))
        if isinstance(operation, CancelTask):
            raise Forbidden("Only the desk cancels.")
        return False if caller.principal == "sso:mallory" else None

    async with open_server(tmp_path, agent) as running:
        opened = await said(running, running.token())
        task = opened.json()["task"]["id"]
        headers = bearer(running.token())
        assert (await running.client.get(f"/tasks/{task}", headers=headers)).status_code == 200
        cancel = await running.client.post(f"/tasks/{task}:cancel", headers=headers)
        assert (cancel.status_code, "Only the desk" in cancel.text) == (403, True)
        assert (await said(running, running.token("mallory"))).status_code == 403
        bob = await running.client.get(f"/tasks/{task}", headers=bearer(running.token("bob")))
        assert bob.status_code == 404
    assert asked == [
        ("sso:alice", SendMessage.__name__, "look", ""),
        ("sso:alice", GetTask.__name__, "look", task),
        ("sso:alice", CancelTask.__name__, "look", task),
        ("sso:mallory", SendMessage.__name__, "look", ""),
    ]


async def test_the_extended_card_is_the_callers_own(tmp_path: Path) -> None:
    agent = Agent("Desk", description="d")

    @agent.skill("look")
    async def look(turn: Turn) -> str:
        return ""

    @agent.extended_card
    def card(caller: Context) -> Card:
        return replace(agent.card(), description=f"For {caller.principal} alone")

    async with open_server(tmp_path, agent) as running:
        for user in ("alice", "bob"):
            got = await running.client.get(
                "/extendedAgentCard", headers=bearer(running.token(user))
            )
            assert got.json()["description"] == f"For sso:{user} alone"
            assert got.json()["supportedInterfaces"]
            assert "sso" in got.json()["securitySchemes"]
        assert (await running.client.get("/extendedAgentCard", headers=V1)).status_code == 401


def test_without_doors_nobody_is_told_more() -> None:
    agent = Agent("Desk")

    @agent.skill("look", extended=True)
    async def look(turn: Turn) -> str:
        return ""

    assert AccessControl(agent, Settings()).extended is False

    @agent.skill("shown")
    async def shown(turn: Turn) -> str:
        return ""

    assert agent.choose("").id == "shown"
    assert "look" not in agent.unknown("x").message
    with pytest.raises(ConfigError, match="scopes"):
        AccessControl(Agent("Desk", scopes=["x"]), Settings())
    for server in (Server(card_access="authenticated"), Server(metrics_access="10.0.0.0/33")):
        with pytest.raises(ConfigError):
            AccessControl(Agent("Desk"), Settings(server=server))


@pytest.mark.parametrize(
    ("access", "alone", "known"),
    [
        ("public", 200, 200),
        ("authenticated", 401, 200),
        ("127.0.0.0/8", 200, 200),
        ("10.0.0.0/8, ::1/128", 403, 403),
    ],
)
async def test_card_and_metrics_can_be_kept_from_others(
    tmp_path: Path, access: str, alone: int, known: int
) -> None:
    server = Server(
        store="memory:", grpc_port=0, grpc=True, card_access=access, metrics_access=access
    )
    async with open_server(tmp_path, server=server) as running:
        for path in ("/.well-known/agent-card.json", "/.well-known/agent.json", "/metrics"):
            assert (await running.client.get(path)).status_code == alone
            got = await running.client.get(path, headers=bearer(running.token()))
            assert got.status_code == known
            if access != "public" and known == 200 and "card" in path:
                assert got.headers["cache-control"] == "private, no-cache"
        assert (await running.client.get("/healthz")).status_code == 200


async def test_rates_of_one_principal(tmp_path: Path) -> None:
    async with open_server(tmp_path, rates=Rates(calls_per_minute=2)) as running:
        token = running.token()
        headers = bearer(token)
        for _ in range(2):
            assert (await running.client.get("/tasks", headers=headers)).status_code == 200
        over = await running.client.get("/tasks", headers=headers)
        assert (over.status_code, over.headers["retry-after"]) == (429, "30")
        assert (await running.client.get("/tasks", headers=bearer(running.token("bob")))).is_success


async def test_quotas_of_one_principal(tmp_path: Path) -> None:
    async with open_server(tmp_path, rates=Rates(live_tasks=2, streams=1)) as running:
        token = running.token()
        tasks = [(await said(running, token)).json()["task"]["id"] for _ in range(2)]
        over = await said(running, token)
        assert (over.status_code, "retry-after" in over.headers) == (429, True)
        assert (await said(running, running.token("bob"))).status_code == 200
        cancel = await running.client.post(f"/tasks/{tasks[0]}:cancel", headers=bearer(token))
        assert cancel.status_code == 200
        assert (await said(running, token)).status_code == 200


class Drain:
    """A pipe that a log writes to; read at the end."""

    def __init__(self) -> None:
        self._read, self.fd = os.pipe()
        os.set_blocking(self._read, False)

    def text(self) -> str:
        try:
            return os.read(self._read, 1 << 20).decode()
        except BlockingIOError:
            return ""

    def close(self) -> None:
        os.close(self._read)
        os.close(self.fd)


async def test_no_content_in_logs_metrics_or_errors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="dragoman")
    canary = "canary-0042"
    agent = Agent("Leaky", description="d")

    @agent.skill("crash")
    async def crash(turn: Turn) -> str:
        await turn.log(f"working on {turn.text}")
        if "boom" in turn.text:
            raise RuntimeError("broken")
        return turn.text

    drain = Drain()
    async with open_server(tmp_path, agent, log_fd=drain.fd) as running:
        token = running.token()
        seen: list[str] = []
        for text in (canary, f"boom {canary}"):
            await said(running, token, text, metadata={"note": canary})
        bad = f"{canary}-token-0123456789"
        wrong = (bearer(bad), {"cookie": canary, **V1}, {"x-api-key": canary, **V1})
        seen += [(await running.client.get("/tasks", headers=each)).text for each in wrong]
        seen.append((await running.client.get(f"/metrics?{canary}")).text)
        seen.append((await said(running, token, canary, taskId="none")).text)
        broken = b'{"message": {"parts": [{"text": "%s"}' % canary.encode()
        headers = {**bearer(token), "content-type": "application/json"}
        reply = await running.client.post("/message:send", content=broken, headers=headers)
        running.app.log.close()
        seen += reply.text, drain.text(), caplog.text
    drain.close()
    assert "crashed task=" in caplog.text  # the log has something to say
    assert [text for text in seen if canary in text or token in text] == []


def kept_in(folder: Path, secret: str) -> list[str]:
    """The files that hold it."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if secret.encode() in path.read_bytes()]


async def test_credentials_reach_the_run_once_and_stay_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="dragoman")
    secret = "ya29.secret-0123456789"
    got: list[str] = []
    agent = Agent("Broker", description="d")

    @agent.skill("fetch")
    async def fetch(turn: Turn) -> str:
        answer = await turn.need_auth(
            {"schemes": ["Bearer"]}, details={"realm": "calendar"}, prompt="Log in to the calendar"
        )
        got.append(str(answer.data or answer))
        await turn.ask("Which day?")
        return "done"

    drain = Drain()
    store = f"sqlite:///{tmp_path}/t.db"
    server = Server(store=store, grpc_port=0, grpc=True, allow_private=True)
    async with open_server(tmp_path, agent, log_fd=drain.fd, server=server) as running:
        token = running.token()
        opened = (await said(running, token)).json()["task"]
        assert opened["status"]["state"] == "TASK_STATE_AUTH_REQUIRED"
        assert "calendar" in str(opened["status"]["message"])
        answer = await said(running, token, secret, taskId=opened["id"])
        assert answer.json()["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        path = f"/tasks/{opened['id']}"
        shown = (await running.client.get(path, headers=bearer(token))).text
        running.app.log.close()
        logged = drain.text()
        assert got == [secret]
        assert secret not in answer.text + shown + logged + caplog.text
    drain.close()
    assert kept_in(tmp_path, secret) == []
