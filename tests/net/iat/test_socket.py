"""IAT over a WebSocket: both directions, many calls at once, every frame authenticated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from dragoman.core.model import Message, Role, Text
from dragoman.core.operations import SendMessage
from dragoman.core.peer import ANYONE
from dragoman.iat.service import IatService
from dragoman.net.http.granian_server import _lives
from dragoman.net.websocket.peer import WebSocketPeer
from net.iat.sub_agent import READ, SECRET, RunningAgent, open_server
from waiting import until


class Line:
    """A socket, and what was heard on it."""

    def __init__(self, server: RunningAgent, socket: ClientConnection) -> None:
        self.server, self.socket = server, socket

    async def say(self, action: str, kind: str = "request", **payload: Any) -> str:
        said = self.server.envelope(action, kind, **payload)
        await self.socket.send(json.dumps(said))
        return str(said["header"]["msg_id"])

    async def hear(self) -> dict[str, Any]:
        async with asyncio.timeout(60):
            return dict(json.loads(await self.socket.recv()))

    async def until(self, action: str) -> list[dict[str, Any]]:
        heard = [await self.hear()]
        while heard[-1]["payload"].get("action") != action:
            heard.append(await self.hear())
        return heard


@asynccontextmanager
async def line(server: RunningAgent, *, join: bool = True, **headers: str) -> AsyncIterator[Line]:
    async with connect(server.ws, additional_headers=headers) as socket:
        opened = Line(server, socket)
        if join:
            await opened.say("register", agent_id="host-1", token=SECRET, tools=[READ])
            server.token = (await opened.hear())["payload"]["session_token"]
        yield opened


async def test_execute_with_a_tool_and_an_approval_on_one_socket() -> None:
    async with open_server() as server, line(server) as ws:
        first = await ws.say("execute", query="read it", allowed_tools=["read_file"])
        *before, asked = await ws.until("call_tool")
        assert {each["header"]["parent_id"] for each in before} == {first}
        assert {"chunk", "notification"} <= {each["header"]["type"] for each in before}
        parent = asked["header"]["msg_id"]
        await ws.say("", "response", parent_id=parent, result="package b")
        *_, done = await ws.until("done")
        assert done["header"]["parent_id"] == first
        assert done["payload"]["result_summary"] == "package b and ()"

        await ws.say("execute", query="delete it")
        *_, asked = await ws.until("require_approval")
        await ws.say("", "response", parent_id=asked["header"]["msg_id"], approved=True)
        *_, done = await ws.until("done")
        assert done["payload"]["result_summary"] == "deleted"


async def test_who_wants_one_answer_hears_one_answer() -> None:
    async with open_server() as server, line(server) as ws:
        said = await ws.say("execute", query="hello", stream=False)
        told = await ws.hear()
        assert (told["header"]["type"], told["header"]["parent_id"]) == ("response", said)
        assert (told["payload"]["action"], told["payload"]["status"]) == ("done", "completed")
        assert told["payload"]["usage_stats"] == {"tokens": 812}
        await ws.say("pulse")
        assert (await ws.hear())["payload"]["action"] == "pulse"  # nothing came between


async def test_calls_run_side_by_side_and_can_be_terminated() -> None:
    async with open_server() as server, line(server) as ws:
        slow = await ws.say("execute", query="wait here")
        await ws.until("usage")
        quick = await ws.say("execute", query="hello")
        *_, done = await ws.until("done")
        assert done["header"]["parent_id"] == quick
        await ws.say("terminate", "notification", parent_id=slow)
        *_, done = await ws.until("done")
        assert (done["header"]["parent_id"], done["payload"]["status"]) == (slow, "canceled")


async def test_terminate_ends_what_runs_on_the_socket_and_not_what_is_over() -> None:
    async with open_server() as server, line(server) as ws:
        await ws.say("execute", query="hello")
        await ws.until("done")
        slow = await ws.say("execute", query="wait here")
        await ws.until("usage")
        said = await ws.say("terminate")
        heard: dict[str, dict[str, Any]] = {}
        while {slow, said} - heard.keys():
            told = await ws.hear()
            if told["header"]["type"] == "response":
                heard[told["header"]["parent_id"]] = told["payload"]
        assert heard[slow]["status"] == "canceled"
        assert heard[said]["action"] == "task_status"
        assert heard[said]["status"] == "canceled"


async def test_who_comes_back_goes_on_behind_its_cursor() -> None:
    async with open_server() as server:
        async with line(server) as ws:
            await ws.say("execute", query="delete it")
            *_, asked = await ws.until("require_approval")
        async with line(server) as ws:
            task, seq = asked["payload"]["task_id"], asked["payload"]["seq"]
            await ws.say("watch", task_id=task, metadata={"last-event-id": seq})
            await ws.say("", "response", parent_id=asked["header"]["msg_id"], approved=False)
            heard = await ws.until("done")
            assert heard[0]["payload"]["seq"] == seq + 1
            # The words from before the break were told then; here are those from behind it.
            assert heard[-1]["payload"]["status"] == "completed"


async def test_every_frame_shows_who_sends_it() -> None:
    async with open_server() as server, line(server) as ws:
        for wrong in ({"token": ""}, {"token": "x" * 43}, {"token": SECRET}):
            said = await ws.say("execute", query="hello", **wrong)
            told = await ws.hear()
            assert told["header"]["parent_id"] == said
            assert told["payload"]["error"]["code"] == "unauthorized"
        await ws.say("execute", query="hello", sender="somebody-else")
        assert (await ws.hear())["payload"]["error"]["code"] == "forbidden"
        await ws.say("pulse")
        assert (await ws.hear())["payload"]["ok"] is True


@pytest.mark.slow  # takes three seconds
async def test_limits_of_a_socket() -> None:
    async with open_server(messages_per_second=5, message_size=2000, sockets=1, calls=1) as server:
        async with line(server) as ws:
            with pytest.raises(InvalidStatus):
                async with line(server, join=False):
                    pass
            await ws.say("execute", query="wait here")
            await ws.until("usage")
            await ws.say("execute", query="hello")
            assert (await ws.hear())["payload"]["error"]["code"] == "too_many"
            for _ in range(6):
                await ws.say("pulse")
            with pytest.raises(ConnectionClosed) as closed:
                await ws.until("never")
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008
        async with line(server) as ws:
            await ws.socket.send("[" * 3000)
            assert (await ws.hear())["payload"]["error"]["code"] == "too_large"


async def test_web_pages_of_others_are_kept_out_and_silence_ends() -> None:
    async with open_server(idle=0.3) as server:
        with pytest.raises(InvalidStatus):
            async with line(server, join=False, origin="https://evil.example"):
                pass
        async with line(server) as ws:
            with pytest.raises(ConnectionClosed):
                await ws.hear()


async def test_both_sides_ask_on_one_socket() -> None:
    """An agent dials in; the process that has the socket asks it, over the same socket."""
    async with open_server() as server:
        peers: list[WebSocketPeer] = []
        server.app.service(IatService).joined = lambda met, caller, peer, token: peers.append(peer)  # type: ignore[arg-type]
        async with line(server) as ws:
            (peer,) = peers
            words = Message(message_id="m", role=Role.USER, parts=(Text("hello"),))
            asking = asyncio.create_task(peer.call(SendMessage(message=words), ANYONE))
            asked = await ws.hear()
            assert asked["payload"]["action"] == "execute"
            parent = asked["header"]["msg_id"]
            await ws.say("done", "response", parent_id=parent, result_summary="hi yourself")
            task = await asking
            assert task.text == "hi yourself"  # type: ignore[union-attr]
            await ws.say("execute", query="hello")
            *_, done = await ws.until("done")
            assert done["payload"]["result_summary"] == "HELLO "


async def test_a_stopped_server_has_no_threads_though_somebody_still_knows_its_sockets() -> None:
    """They abort the process if they want the interpreter while it closes."""
    async with open_server() as server:
        peers: list[WebSocketPeer] = []
        server.app.service(IatService).joined = lambda met, caller, peer, token: peers.append(peer)  # type: ignore[arg-type]
        async with line(server):
            assert peers
        await until(lambda: not server.app.server.sockets)
        assert _lives(server.listener._name)
    assert not _lives(server.listener._name)


async def test_stopping_closes_sockets() -> None:
    async with open_server() as server:
        socket = await connect(server.ws)
        await until(lambda: server.app.server.sockets)
        server.app.server.opened.end_streams()
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001
