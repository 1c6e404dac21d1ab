"""No frame ends a WebSocket without a word, and no error is answered with an error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing, suppress
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from counts import count
from dragoman import Agent, Turn
from dragoman.core.auth_schemes import Secret
from dragoman.core.errors import DragomanError, Malformed
from dragoman.core.model import Message, Role, Text
from dragoman.core.operations import SendMessage
from dragoman.core.peer import ANYONE
from dragoman.dialects.iat.requests import ACTIONS
from dragoman.dialects.iat.wire import Kind, envelope_in
from dragoman.iat.service import IatService
from dragoman.net.websocket.peer import WebSocketPeer
from dragoman.settings import Iat, Server, Settings
from dragoman.testing.served import served
from net.iat.sub_agent import SECRET, RunningAgent, make_agent, open_server
from waiting import until

LIMIT = 60.0
STEP = count(25, 5, 1)
"""Of all the wrong frames every so manieth: all members and all wrong values are among them."""
WRONG = (None, True, 0, -1.5, 10**30, "", "x", "\ud800", [], [1], [[]], {}, {"name": 1}, {"x": {}})
ACTIONS_TOO = (*ACTIONS, "execute_task", "helo", "hello", "task_result", "done", "think", "x", "")
MEMBERS = (
    *("query", "content", "context_fragments", "allowed_tools", "tools", "workspace_root"),
    *("skill", "task_id", "context_id", "parts", "message", "wait", "stream", "history_length"),
    *("accepts", "metadata", "open_as", "tool_name", "arguments", "agent_id", "name"),
    *("description", "version", "endpoint", "tool", "value", "approved", "approval_id", "result"),
    *("error", "code", "details", "detail", "action", "status", "seq", "at", "index", "text"),
    *("session_token", "usage_stats", "thought_text", "level", "question", "prompt"),
)
HEADER = ("msg_id", "parent_id", "type", "from", "to", "timestamp", "action")
METADATA = ("trace_id", "ttl", "last-event-id")
FLAT = ("id", "type", "from", "to", "action", "timestamp", "trace", "streamId", "payload")
GOOD = {
    "execute": {"query": "hello", "wait": False},
    "execute_task": {"content": "hello", "wait": False},
    "call_tool": {"tool_name": "add", "arguments": {"a": 1, "b": 2}},
    "register": {"agent_id": "host-1"},
    "HELO": {"agent_id": "host-1"},
    "helo": {"agent_id": "host-1"},
    "hello": {"agent_id": "host-1"},
    "grant_tool": {"tool": "x"},
    "task_status": {"task_id": "t"},
    "watch": {"task_id": "t"},
    "terminate": {"task_id": "t"},
}


def broken(running: RunningAgent, kind: str, action: str) -> Iterator[dict[str, Any]]:
    """Every envelope of a kind and an action with one member of a wrong type."""

    def said() -> dict[str, Any]:
        return running.envelope(action, kind, **GOOD.get(action, {}))

    for member in MEMBERS:
        for value in WRONG:
            made = said()
            made["payload"][member] = value
            yield made
    for value in WRONG:
        for member in HEADER:
            made = said()
            made["header"][member] = value
            yield made
        for member in METADATA:
            made = said()
            made["metadata"][member] = value
            yield made
        for part in ("header", "metadata", "payload"):
            yield {**said(), part: value}


def broken_flat(running: RunningAgent, kind: str, action: str) -> Iterator[dict[str, Any]]:
    """The same in the flat form, of its own members."""
    whole = {"id": "f", "type": kind, "from": "host-1", "to": "go-agent", "action": action}
    whole |= {"payload": GOOD.get(action, {}), "metadata": {"auth_token": running.token}}
    for member in FLAT:
        for value in WRONG:
            yield {**whole, member: value}
    for value in WRONG:
        yield {**whole, "trace": {"traceId": value}}


def named(frame: dict[str, Any]) -> set[str]:
    """The id of a request that an answer must name; what is no envelope has none."""
    try:
        said = envelope_in(json.dumps(frame).encode())
    except Malformed:
        return set()
    return {said.id} if said.kind is Kind.REQUEST and said.id.startswith("h") else set()


def parents(heard: list[dict[str, Any]]) -> set[str]:
    """What was answered."""
    return {told["header"]["parent_id"] for told in heard if "header" in told}


async def alive(running: RunningAgent, socket: ClientConnection) -> list[dict[str, Any]]:
    """All that was said up to now; fails if the socket is closed."""
    pulse = running.envelope("pulse", msg_id="still-there")
    await socket.send(json.dumps(pulse))
    heard = []
    while True:
        async with asyncio.timeout(LIMIT):
            told = json.loads(await socket.recv())
        if told.get("header", {}).get("parent_id") == "still-there":
            return heard
        heard.append(told)


@pytest.mark.parametrize("kind", ["request", "notification", "response", "chunk", "error"])
async def test_no_frame_ends_a_socket_or_goes_unlogged(
    kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    agent = Agent("go-agent")

    @agent.skill("add")
    async def add(turn: Turn) -> str:
        return turn.text

    limits = {"messages_per_second": 10**9, "calls": 10**6}
    async with open_server(agent=agent, **limits) as running, connect(running.ws) as socket:
        hello = running.envelope("register", agent_id="host-1", token=SECRET)
        await socket.send(json.dumps(hello))
        running.token = json.loads(await socket.recv())["payload"]["session_token"]
        asked: dict[str, Any] = {}
        answered: set[str] = set()
        for place, action in enumerate(ACTIONS_TOO):
            frames = (*broken(running, kind, action), *broken_flat(running, kind, action))
            for number, frame in enumerate(frames[place % STEP :: STEP]):
                try:
                    await socket.send(json.dumps(frame))
                    if number % 50 == 0:
                        answered |= parents(await alive(running, socket))
                except Exception as exc:
                    raise AssertionError(f"closed by {action}, near {frame}") from exc
                asked |= dict.fromkeys(named(frame), frame)

        async def all_answered() -> bool:
            answered.update(parents(await alive(running, socket)))
            return asked.keys() <= answered

        with suppress(AssertionError):  # what is missing says more
            await until(all_answered)
        missing = [frame for id, frame in asked.items() if id not in answered]
        assert missing == [], [(each["header"], each["payload"]) for each in missing[:20]]
        assert bool(asked) == (kind == "request")
    assert "crash" not in capfd.readouterr().err  # told as what it is, not as a failure of ours


@pytest.mark.parametrize("action", ["terminate", "execute", "task_status", "call_tool"])
async def test_wrong_tools_are_answered_with_a_fault(action: str) -> None:
    async with open_server() as running, connect(running.ws) as socket:
        hello = running.envelope("register", agent_id="host-1", token=SECRET)
        await socket.send(json.dumps(hello))
        running.token = json.loads(await socket.recv())["payload"]["session_token"]
        for member in ("allowed_tools", "tools"):
            for tools in ("read_file", 5, {"a": 1}, [1], [{"name": 5}]):
                said = running.envelope(action, **{**GOOD[action], member: tools})
                await socket.send(json.dumps(said))
                (told,) = await alive(running, socket)
                assert told["header"]["parent_id"] == said["header"]["msg_id"]
                assert told["payload"]["error"]["code"] == "bad_params"
                over_http = (await running.post(said)).json()
                assert over_http["payload"]["error"]["code"] == "bad_params"


FIRST = ("not json", '{"header": {"type": "dance"}}', '{"id": "x", "type": "request"}', "[]")


@pytest.mark.parametrize("first", FIRST)
async def test_an_error_is_not_answered_with_an_error(first: str) -> None:
    """Somebody sends back whatever we say, as a hub does that tells everyone everything."""
    async with open_server() as running, connect(running.ws) as socket:
        hello = running.envelope("register", agent_id="host-1", token=SECRET)
        await socket.send(json.dumps(hello))
        running.token = json.loads(await socket.recv())["payload"]["session_token"]
        await socket.send(first)
        heard = await alive(running, socket)
        for _ in range(5):
            for told in heard:
                await socket.send(json.dumps(told))
            heard = await alive(running, socket)
        assert heard == []


async def test_an_agent_at_a_hub_that_echoes_falls_silent() -> None:
    """The agent dials; everything it says comes back to it."""
    rounds: list[int] = []
    over = asyncio.Event()

    async def hub(socket: ServerConnection) -> None:
        said = 0
        probe = {"id": "probe", "type": "request", "from": "hub", "action": "pulse"}
        await socket.send(await socket.recv())
        for number in range(8):
            # Our own question marks the time: what is answered before it is an echo of an echo.
            await socket.send(json.dumps({**probe, "id": f"probe-{number}"}))
            while True:
                told = str(await socket.recv())
                said += 1
                if f"probe-{number}" in told:
                    break
                await socket.send(told)
            await socket.send(told)
        rounds.append(said)
        over.set()

    async with serve(hub, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        settings = Settings(
            server=Server(store="memory:"),
            iat=Iat(secret=Secret(env="TEST_IAT_SECRET"), host=f"ws://127.0.0.1:{port}"),
        )
        async with served(make_agent(), settings):
            async with asyncio.timeout(LIMIT):
                await over.wait()
    assert rounds[0] == 8  # one refusal for each probe


SAID = {
    "think": {"thought_text": "x"},
    "log": {"level": "info", "message": "x"},
    "usage": {"usage_stats": {}},
    "task_status": {"status": "working"},
    "call_tool": {"tool_name": "size", "arguments": {}},
    "require_approval": {"approval_id": "a", "operation": "x"},
    "require_input": {"prompt": "x"},
    "done": {"result_summary": "x"},
    "error": {"error": "x"},
    "": {"text": "x"},
}
TELLS = (
    *("task_id", "context_id", "seq", "at", "status", "text", "message", "error", "task"),
    *("artifact", "artifact_id", "parts", "append", "last", "body", "details", "question"),
    *("result_summary", "result", "usage_stats", "thought_text", "operation", "tool_name"),
)


async def asked_for(socket: ClientConnection, action: str) -> str:
    """The id of the next request for this."""
    async with asyncio.timeout(LIMIT):
        while True:
            told = json.loads(await socket.recv())
            if told["header"]["type"] == "request" and told["payload"]["action"] == action:
                return str(told["header"]["msg_id"])


@pytest.mark.parametrize("kind", ["notification", "chunk", "request", "response", "error"])
async def test_whatever_a_sub_agent_says_to_a_call_its_socket_stays(
    kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The other side of the socket: an execute of ours is answered with every wrong member."""
    peers: list[WebSocketPeer] = []
    words = Message(message_id="m", role=Role.USER, parts=(Text("hello"),))
    async with open_server(messages_per_second=10**9) as running, connect(running.ws) as socket:
        running.app.service(IatService).joined = lambda met, caller, peer, token: peers.append(peer)  # type: ignore[arg-type]
        hello = running.envelope("register", agent_id="host-1", token=SECRET)
        await socket.send(json.dumps(hello))
        running.token = json.loads(await socket.recv())["payload"]["session_token"]

        async def followed() -> None:
            steps = peers[0].stream(SendMessage(message=words), ANYONE)
            with suppress(DragomanError):
                async with aclosing(steps):
                    async for _ in steps:
                        pass

        for place, (action, said) in enumerate(SAID.items()):
            for other, member in enumerate(TELLS):
                for value in WRONG[(place + other) % STEP :: STEP]:
                    following = asyncio.create_task(followed())
                    asked = await asked_for(socket, "execute")
                    payload = {**said, member: value}
                    told = running.envelope(action, kind, parent_id=asked)
                    told["payload"] |= payload
                    await socket.send(json.dumps(told))
                    ended = running.envelope("done", "response", parent_id=asked)
                    await socket.send(json.dumps(ended))
                    try:
                        async with asyncio.timeout(LIMIT):
                            await following
                    except Exception as exc:
                        raise AssertionError(f"{action} {kind} {member}={value!r}") from exc
            await alive(running, socket)
    assert "crash" not in capfd.readouterr().err
