"""The older dialects over HTTP, with the real engine behind them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from dragoman import Agent, Turn
from dragoman.core.session import Frame
from dragoman.dialects.sse import SseParser
from dragoman.engine import Engine
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.server.app import App
from dragoman.server.serve import address
from dragoman.settings import Settings
from dragoman.store import open_store

JSON = {"Content-Type": "application/json"}

agent = Agent("Desk", description="Answers.")


@agent.skill("echo", default=True)
async def echo(turn: Turn) -> str:
    return turn.text.upper()


@agent.skill("write")
async def write(turn: Turn) -> AsyncIterator[str]:
    for word in turn.text.split():
        yield f"{word} "


@agent.skill("trip")
async def trip(turn: Turn) -> str:
    return f"A trip to {await turn.ask('Which city?')}"


@agent.skill("slow")
async def slow(turn: Turn) -> str:
    for step in range(100):
        await turn.say(f"step {step}")
        await asyncio.sleep(0.02)  # its work
    return "done"


@asynccontextmanager
async def serving() -> AsyncIterator[httpx2.AsyncClient]:
    sock = bind("127.0.0.1", 0)
    base = address(sock)
    settings = Settings()
    app = App(agent, Engine(agent, open_store("memory:")), settings, Log("error"), base)
    await app.start()
    listener = GranianServer(app, sock, settings.limits)
    listener.begin()
    try:
        async with httpx2.AsyncClient(base_url=base, timeout=60, headers=JSON) as client:
            yield client
    finally:
        listener.refuse()
        await app.stop()
        await listener.end(1)


def request(method: str, params: dict[str, Any], id: object = 1) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def sending(name: str, text: str, skill: str = "echo", **more: Any) -> dict[str, Any]:
    message = {"role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": name, "message": message, "metadata": {"skillId": skill}, **more}


async def ask(
    client: httpx2.AsyncClient, method: str, params: dict[str, Any], path: str = "/"
) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.post(path, content=request(method, params))).json()
    return answer


async def events(
    client: httpx2.AsyncClient, method: str, params: dict[str, Any], path: str = "/"
) -> list[Frame]:
    answer = await client.post(path, content=request(method, params))
    assert answer.headers["content-type"] == "text/event-stream", answer.text
    parser = SseParser()
    return [*parser.feed(answer.content), *parser.close()]


@pytest.mark.parametrize(("path", "waiting"), [("/", "input-required"), ("/a2a-go", "processing")])
async def test_a_task_from_send_to_cancel(path: str, waiting: str) -> None:
    async with serving() as client:
        made = (await ask(client, "tasks/send", sending("t-1", "hi"), path))["result"]
        assert made["id"] == "t-1"
        assert made["artifacts"][0]["parts"][0] == {"type": "text", "text": "HI"}
        assert "history" not in made
        got = (await ask(client, "tasks/get", {"id": "t-1"}, path))["result"]
        assert (got["id"], got["status"]) == ("t-1", made["status"])
        asked = (await ask(client, "tasks/send", sending("t-2", "plan", "trip"), path))["result"]
        assert asked["status"]["state"] == waiting
        gone = (await ask(client, "tasks/cancel", {"id": "t-2"}, path))["result"]
        assert (gone["id"], gone["status"]["state"]) == ("t-2", "canceled")
        again = await ask(client, "tasks/cancel", {"id": "t-2"}, path)
        assert again["error"]["code"] == -32002
        missing = await ask(client, "tasks/get", {"id": "t-3"}, path)
        assert missing["error"] == {
            "code": -32001,
            "message": "Task not found: There is no such task.",
            "data": {"taskId": "t-3"},
        }


async def test_a_stream_of_0_1() -> None:
    async with serving() as client:
        found = await events(client, "tasks/sendSubscribe", sending("t-1", "a b", "write"))
        steps = [json.loads(event.body)["result"] for event in found]
        assert {step["id"] for step in steps} == {"t-1"}
        states = [step["status"]["state"] for step in steps if "status" in step]
        assert states == ["submitted", "working", "completed"]
        chunks = [step["artifact"] for step in steps if "artifact" in step]
        assert [(c["index"], c["append"], c["lastChunk"]) for c in chunks] == [
            (0, False, False),
            (0, True, True),
        ]
        assert [step.get("final") for step in steps] == [False, False, None, None, True]
        assert not any("kind" in step for step in steps)


async def test_a_stream_of_a2a_go() -> None:
    async with serving() as client:
        params = sending("t-1", "a b", "write")
        found = await events(client, "tasks/sendSubscribe", params, "/a2a-go")
        assert [event.name for event in found] == [
            "rpc_result",
            "task_status_update",
            *["task_artifact_update"] * 2,
            "task_status_update",
        ]
        first, *rest = (json.loads(event.body) for event in found)
        assert first["result"]["status"]["state"] == "pending"
        assert not any("jsonrpc" in step for step in rest)
        assert rest[0]["status"]["state"] == "processing"
        assert rest[-1]["final"] is True


@pytest.mark.parametrize("path", ["/", "/a2a-go"])
@pytest.mark.slow  # takes two seconds
async def test_one_who_comes_back_sees_how_it_ends(path: str) -> None:
    async with serving() as client:
        body = request("tasks/sendSubscribe", sending("t-1", "", "slow"))
        async with client.stream("POST", path, content=body) as stream:
            async for _ in stream.aiter_lines():
                break
        found = await events(client, "tasks/resubscribe", {"id": "t-1"}, path)
        steps = [json.loads(event.body) for event in found]
        steps = [step.get("result", step) for step in steps]
        assert steps[-1]["status"]["state"] == "completed"
        assert all(step["id"] == "t-1" for step in steps if "id" in step)
        ended = await client.post(path, content=request("tasks/resubscribe", {"id": "t-1"}))
        # Where it may be 0.3's, the refusal is an event of a stream.
        assert json.loads(ended.text.removeprefix("data: "))["error"]["code"] == -32004


async def test_a_conversation_may_change_its_dialect() -> None:
    """What 0.1 began, a2a-go answers, and 0.3 and 1.0 read."""
    async with serving() as client:
        await ask(client, "tasks/send", sending("t-1", "plan", "trip", sessionId="s-1"))
        done = await ask(client, "tasks/send", sending("t-1", "Rome"), "/a2a-go")
        assert done["result"]["status"]["state"] == "completed"
        old = (await ask(client, "tasks/get", {"id": "t-1"}))["result"]
        assert (old["kind"], old["contextId"], old["sessionId"]) == ("task", "s-1", "s-1")
        for version, method in (("0.3", "tasks/get"), ("1.0", "GetTask")):
            body = request(method, {"id": "t-1"})
            answer = await client.post("/", content=body, headers={"A2A-Version": version})
            task = answer.json()["result"]
            assert task["contextId"] == "s-1"
            assert task["artifacts"][0]["parts"][0]["text"] == "A trip to Rome"


async def test_what_0_3_opened_0_3_is_told() -> None:
    async with serving() as client:
        message = {
            "kind": "message",
            "messageId": "m",
            "role": "user",
            "parts": [{"kind": "text", "text": "hi"}],
        }
        made = (await ask(client, "message/send", {"message": message}))["result"]
        got = (await ask(client, "tasks/get", {"id": made["id"]}))["result"]
        assert got == made
        assert "sessionId" not in got


async def test_0_2_is_0_3() -> None:
    """a2a-wire §8: kinds left out, the extended card's older name, webhooks without ids."""
    async with serving() as client:
        message = {"messageId": "m", "role": "user", "parts": [{"text": "hi"}]}
        made = (await ask(client, "message/send", {"message": message}))["result"]
        assert (made["kind"], made["status"]["state"]) == ("task", "completed")
        card = await ask(client, "agent/authenticatedExtendedCard", {})
        assert card["error"]["code"] == -32007
        hook = await ask(client, "tasks/pushNotificationConfig/get", {"id": made["id"]})
        assert hook["error"]["code"] in (-32001, -32003)  # none is set


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ("nonsense", 400, -32700),
        ("[]", 400, -32600),
        ('{"jsonrpc":"1.0","id":1,"method":"tasks/get"}', 400, -32600),
        ('{"jsonrpc":"0","id":1,"method":"tasks/get","params":{"id":"x"}}', 200, -32001),
        ('{"jsonrpc":"2.0","id":1,"method":"message/send"}', 200, -32601),
        ('{"jsonrpc":"2.0","id":1,"method":"tasks/get"}', 200, -32602),
    ],
)
async def test_errors_of_a2a_go(body: str, status: int, code: int) -> None:
    async with serving() as client:
        answer = await client.post("/a2a-go", content=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_web_pages_cannot_send_what_they_need_not_ask_for(kind: str) -> None:
    async with serving() as client:
        for path in ("/", "/a2a-go", "/tasks/send"):
            body = request("tasks/send", sending("t-1", "hi"))
            answer = await client.post(path, content=body, headers={"Content-Type": kind})
            assert answer.status_code == 415
        assert "error" in await ask(client, "tasks/get", {"id": "t-1"})


async def test_a2a_go_makes_a_name_for_those_who_have_none() -> None:
    async with serving() as client:
        params = sending("", "hi")
        made = (await ask(client, "tasks/send", params, "/a2a-go"))["result"]
        assert made["id"]
        refused = await ask(client, "tasks/send", params)
        assert refused["error"]["code"] == -32602


async def test_the_older_addresses_leave_rest_its_own() -> None:
    async with serving() as client:
        got = await client.get("/tasks/send", headers={"A2A-Version": "1.0"})
        assert got.status_code == 404
        assert got.json()["error"]["details"][0]["reason"] == "TASK_NOT_FOUND"
        assert (await client.get("/a2a-go")).status_code == 405
