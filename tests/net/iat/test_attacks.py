"""The door as an attacker would try it: replays, mixed credentials, borrowed names, leaks."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from dragoman import Agent, Turn
from dragoman.core.auth_schemes import ApiKeys, Known, Secret
from dragoman.core.errors import ConfigError, Unauthenticated
from dragoman.dialects.iat.signature import signature
from dragoman.iat.service import IatService
from dragoman.observability.log import HELD_BACK, Log
from dragoman.security.iat import Signatures
from dragoman.server.app import App, engine_for
from dragoman.settings import Iat, Server, Settings
from dragoman.store.memory.sessions import MemorySessions
from net.iat.sub_agent import READ, SECRET, RunningAgent, make_agent, open_server, signed

KEYS = {"alice": "alices-key-is-long-enough", "bob": "bobs-key-is-long-enough-too"}
os.environ |= {f"TEST_KEY_{name.upper()}": key for name, key in KEYS.items()}


def with_keys() -> Agent:
    agent = make_agent()
    known = {name: Known(secret=Secret(env=f"TEST_KEY_{name.upper()}")) for name in KEYS}
    agent.auth["keys"] = ApiKeys(callers=known)
    return agent


def code(reply: Any) -> str:
    return str(reply.json()["payload"]["error"]["code"])


async def register(running: RunningAgent, who: str, **about: Any) -> str:
    told = await running.ask("register", agent_id=who, sender=who, token=SECRET, **about)
    return str(told["session_token"])


# Names.


async def test_a_token_of_another_agent_does_not_do() -> None:
    async with open_server() as running:
        mine, theirs = [await register(running, who) for who in ("host-1", "host-2")]
        for sender, token, status in (
            ("host-1", mine, 200),
            ("host-1", theirs, 403),
            ("host-2", mine, 403),
            ("", theirs, 200),  # who says no name is who has the token
        ):
            said = running.envelope("pulse", sender=sender, token=token)
            assert (await running.post(said)).status_code == status, (sender, token == mine)


async def test_the_header_counts_before_the_envelope_and_nothing_is_mixed() -> None:
    async with open_server() as running:
        mine, theirs = [await register(running, who) for who in ("host-1", "host-2")]
        for header, inside, sender, status in (
            (theirs, mine, "host-1", 403),
            (theirs, mine, "host-2", 200),
            (mine, "x" * 43, "host-1", 200),
            ("x" * 43, mine, "host-1", 200),
            ("x" * 43, theirs, "host-1", 403),
            ("x" * 43, "", "host-1", 401),
        ):
            for name in ("x-iat-token", "authorization"):
                value = f"Bearer {header}" if name == "authorization" else header
                said = running.envelope("execute", query="hi", sender=sender, token=inside)
                reply = await running.post(said, **{name: value})
                assert reply.status_code == status, (name, sender, status)


async def test_a_session_registers_nobody_else() -> None:
    async with open_server() as running:
        token = await register(running, "host-1")
        for action in ("register", "HELO", "hello"):
            said = running.envelope(action, agent_id="host-2", sender="host-1", token=token)
            assert (await running.post(said)).status_code == 403
        again = await running.ask("register", agent_id="host-1", token=token)
        assert again["session_token"] != token


async def test_a_name_is_of_one_principal_while_it_has_a_session() -> None:
    async with open_server(agent=with_keys()) as running:
        alice, bob = ({"x-api-key": key} for key in KEYS.values())

        async def join(headers: dict[str, str], who: str) -> Any:
            said = running.envelope("register", agent_id=who, sender=who, token="")
            return await running.post(said, **headers)

        assert (await join(alice, "worker")).status_code == 200
        assert (await join(alice, "worker")).status_code == 200
        taken = await join(bob, "worker")
        assert (taken.status_code, code(taken)) == (403, "forbidden")
        assert (await join(bob, "another")).status_code == 200
        with_secret = running.envelope("register", agent_id="worker", sender="worker", token=SECRET)
        assert (await running.post(with_secret)).status_code == 403
        assert await running.app.service(IatService).guard.sessions.revoke("worker") == 2
        assert (await join(bob, "worker")).status_code == 200


async def test_who_registers_by_agent_id_alone_owns_its_tasks_under_that_name() -> None:
    async with open_server() as running:
        said = running.envelope("register", agent_id="host-7", sender="", token=SECRET)
        running.token = (await running.post(said)).json()["payload"]["session_token"]
        await running.ask("execute", query="hello", sender="host-7")
        (found,) = await running.app.service(IatService).guard.sessions.list_valid("host-7")
        assert found.principal == "iat:host-7"


def test_no_scheme_may_give_out_the_names_of_agents() -> None:
    agent = with_keys()
    agent.auth["iat"] = agent.auth.pop("keys")
    server = Server(store="memory:")
    settings = Settings(server=server, iat=Iat(secret=Secret(env="TEST_IAT_SECRET")))
    with pytest.raises(ConfigError, match="call it otherwise"):
        App(agent, engine_for(agent, settings), settings, Log("error"))


# Signatures.


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_a_signed_message_is_not_good_again_after_a_restart_or_elsewhere(
    tmp_path: Path, kind: str
) -> None:
    async with open_server(tmp_path, kind=kind) as running:
        body = json.dumps(running.envelope("execute", query="hello")).encode()
        proof = signed(body)

        async def sent(to: RunningAgent) -> int:
            reply = await to.client.post("/iat", content=body, headers=proof)
            return reply.status_code

        assert await sent(running) == 200
        if kind == "sqlite":
            async with open_server(tmp_path) as other:
                assert await sent(other) == 401
    async with open_server(tmp_path, kind=kind) as running:
        assert await sent(running) == 401
        assert (await running.app.mounts[""].peer.counts())["completed"] == 1


async def test_a_signature_is_not_good_at_another_address() -> None:
    async with open_server() as running:
        body = json.dumps(running.envelope("execute", query="hello")).encode()
        proof = signed(body)
        assert (await running.client.post("/iat", content=body, headers=proof)).status_code == 200
        for path in ("/a2a", "/a2a/stream", "/iat"):
            reply = await running.client.post(path, content=body, headers=proof)
            assert reply.status_code == 401, path


@pytest.mark.parametrize("late", [-301, -300, 0, 300, 301])
async def test_the_window_of_a_signature(late: int) -> None:
    now = [10_000.0]
    store = MemorySessions(lambda: int(now[0] * 1000))
    signatures = Signatures(SECRET, 300, lambda: now[0], store)
    proof = signed(b"x", 10_000 + late)
    if abs(late) > 300:
        with pytest.raises(Unauthenticated):
            await signatures.check(proof, b"x")
        return
    await signatures.check(proof, b"x")
    while now[0] <= 10_700:  # as long as it could be good, it is not good again
        with pytest.raises(Unauthenticated):
            await signatures.check(proof, b"x")
        now[0] += 50


async def test_signatures_that_were_used_are_forgotten_in_time() -> None:
    now = [1000.0]
    store = MemorySessions(lambda: int(now[0] * 1000))
    signatures = Signatures(SECRET, 10, lambda: now[0], store)
    for _ in range(50):
        await signatures.check(signed(b"x", int(now[0])), b"x")
        now[0] += 5
    assert len(store._said) < 10


@pytest.mark.parametrize("form", ["", "-{}", "+{}", " {}", "{}\n", "{}.0", "0_{}", "{:0>20}"])
async def test_odd_timestamps_are_refused_even_if_they_are_signed(form: str) -> None:
    signatures = Signatures(SECRET, 300, lambda: 1000, MemorySessions(lambda: 0))
    for stamp in (form.format("1000"), form.format("١٠٠٠")):
        odd = {"x-iat-timestamp": stamp}
        odd["x-iat-signature"] = signature(SECRET.encode(), stamp, b"x")
        with pytest.raises(Unauthenticated):
            await signatures.check(odd, b"x")
    await signatures.check(signed(b"x", 1000), b"x")


async def test_the_signature_of_a_handshake_opens_one_session_once() -> None:
    async with open_server() as running:
        hello = json.dumps(running.envelope("register", agent_id="host-1"))
        other = json.dumps(running.envelope("register", agent_id="host-1", tools=[READ]))
        proof = {k: v for k, v in signed(hello.encode()).items() if k.startswith("x-iat")}

        async def answered(frame: str) -> dict[str, Any]:
            async with connect(running.ws, additional_headers=proof) as socket:
                await socket.send(frame)
                async with asyncio.timeout(60):
                    return dict(json.loads(await socket.recv())["payload"])

        assert "session_token" not in await answered(other)  # signed was something else
        assert "session_token" in await answered(hello)
        for frame in (hello, other):
            assert (await answered(frame))["error"]["code"] == "unauthorized"


async def test_what_the_handshake_showed_does_for_no_frame() -> None:
    async with open_server() as running:
        token = await register(running, "host-1")
        proof = {"x-iat-token": token, "authorization": f"Bearer {token}"}
        async with connect(running.ws, additional_headers=proof) as socket:
            for action in ("execute", "pulse", "grant_tool", "terminate"):
                await socket.send(json.dumps(running.envelope(action, token="")))
                async with asyncio.timeout(60):
                    told = json.loads(await socket.recv())
                assert told["payload"]["error"]["code"] == "unauthorized", action


# Tokens elsewhere.


async def test_a_token_in_the_address_opens_nothing() -> None:
    async with open_server() as running:
        token = await register(running, "host-1")
        for name in ("token", "auth_token", "access_token", "x-iat-token", "authorization"):
            said = running.envelope("pulse", token="")
            for path in ("/iat", "/a2a", "/a2a/stream"):
                reply = await running.post(said, f"{path}?{name}={token}")
                assert reply.status_code == 401, name
            async with connect(f"{running.ws}?{name}={token}") as socket:
                await socket.send(json.dumps(said))
                async with asyncio.timeout(60):
                    told = json.loads(await socket.recv())
                assert told["payload"]["error"]["code"] == "unauthorized", name


@pytest.mark.parametrize(
    "token", ["\\ud800", "\\u0000", "iat_", "iat_" + "A" * 43, "A" * 100_000, "ключ"]
)
async def test_odd_tokens_are_only_refused(token: str) -> None:
    async with open_server() as running:
        said = json.dumps(running.envelope("pulse", token="TOKEN")).replace("TOKEN", token)
        json_ = {"content-type": "application/json"}
        reply = await running.client.post("/iat", content=said.encode(), headers=json_)
        assert reply.status_code in (400, 401), reply.text


async def test_no_token_is_logged_stored_or_passed_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a skill, a tool of the host, the next agent, the logs and the stores get to see."""
    for name in HELD_BACK:
        caplog.set_level(logging.WARNING, name)
    caplog.set_level(logging.DEBUG)  # last: it is the level of what is caught, too
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    agent = Agent("go-agent", description="Works for hosts.")
    next_agent = make_agent()

    @agent.skill("work", default=True)
    async def work(turn: Turn) -> str:
        seen = [getattr(turn, name) for name in dir(turn) if name.isalpha() and name != "workspace"]
        await turn.call_tool("read_file", path="pkg/b.go")
        sent = await turn.agent(turn.text).send("hello")
        return f"{seen!r} {sent!r}"

    async with (
        open_server(far, agent=next_agent, insecure=True) as away,
        open_server(near, agent=agent) as running,
    ):
        await running.join(tools=[READ])
        token = running.token
        said = running.envelope("execute", query=away.url, allowed_tools=["read_file"])
        heard = []
        async for _, _, event in running.stream(said, **{"x-iat-token": token}):
            heard.append(json.dumps(event))
            if event["payload"].get("action") == "call_tool":
                parent = event["header"]["msg_id"]
                await running.post(running.envelope("", "response", parent_id=parent, result="ok"))
        assert json.loads(heard[-1])["payload"]["status"] == "completed", heard[-1]
        assert json.loads(heard[-1])["payload"]["result_summary"].count("HELLO") >= 1
        await running.post(running.envelope("execute", query="x", token="iat_canary"))
        proof = signed(b"{}")
        await running.client.post("/iat", content=b"{}", headers=proof)
    logged = "\n".join(record.getMessage() for record in caplog.records)
    shown = logged + "".join(capfd.readouterr()) + "".join(heard)
    kept = all_bytes(tmp_path)
    for canary in (token, SECRET, "iat_canary", proof["x-iat-signature"]):
        assert canary not in shown
        assert canary.encode() not in kept


CHATTY = """
import asyncio, sys
import httpx2
from websockets.asyncio.client import connect
from dragoman.observability.log import set_up

async def main(url, canary):
    log = set_up("debug")
    async with httpx2.AsyncClient(http1=False, http2=True) as client:
        await client.post(f"{url}/iat?key={canary}", json={}, headers={"x-iat-token": canary})
    async with connect(url.replace("http", "ws") + "/iat/ws") as socket:
        await socket.send(canary)
        await socket.recv()
    log.info("told")
    log.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow  # starts processes
async def test_libraries_log_no_token_at_debug() -> None:
    """At this level they would spell out every header and frame."""
    async with open_server() as running:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CHATTY, running.url, "a-canary"), stderr=asyncio.subprocess.PIPE
        )
        _, logged = await process.communicate()
    assert process.returncode == 0, logged
    assert b"info told" in logged
    assert b"a-canary" not in logged


def all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
