"""Servers that answer to do harm: too much, too deep, too slow, packed, or not at all.

On every wire the caller hears of it within its limits, and holds no more than they allow.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from msgspec.structs import replace
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from client.test_lines import at
from counts import count
from dragoman import connect
from dragoman.client import ClientLimits, SharedSecret
from dragoman.core.errors import BadParams, DragomanError, PeerError, PeerUnreachable
from dragoman.core.model import Message, Role
from dragoman.core.operations import Watch
from dragoman.core.peer import ANYONE
from dragoman.core.session import CallerSession, Frame, Signal, Update
from dragoman.net.http.asgi import Receive, Scope, Send, answer
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.net.websocket.peer import AHEAD, AHEAD_SIZE, WebSocketPeer
from dragoman.settings import Limits
from waiting import forever, stays, turns, until

MIB = 1024 * 1024
LIMITS = ClientLimits(
    *(), connect=5, answer=2, wait=2, idle=2, patience=0.5, retries=0, backoff=0.01, poll=0.02
)
IMPATIENT = replace(LIMITS, connect=0.5, answer=0.5, wait=0.5, idle=0.5)
SMALL = ClientLimits(
    *(), connect=5, answer=60, wait=60, idle=60, patience=0.5, retries=0, answer_size=MIB,
    event_size=MIB, card_size=MIB,
)  # fmt: skip
SECRET = SharedSecret("the-secret-of-the-desk", to="Desk")

Answer = Callable[[str, bytes], AsyncIterator[bytes]]
"""`answer(path, said)`: the pieces of an answer, or the frames that are sent back."""


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# The three wires, with a server that answers as it likes.


@asynccontextmanager
async def over_http(answers: Answer, kind: bytes = b"application/json") -> AsyncIterator[str]:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/manifest":
            await answer(send, 404)
            return
        said = b""
        while (message := await receive())["type"] == "http.request":
            said += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = [(b"content-type", kind)]
        if b"gzip" in kind:
            headers = [(b"content-type", b"application/json"), (b"content-encoding", b"gzip")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for piece in answers(scope["path"], said):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    sock = bind("127.0.0.1", 0)
    listener = GranianServer(app, sock, Limits())
    listener.begin()
    try:
        yield f"iat+http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        listener.refuse()
        await listener.end(0.1)


@asynccontextmanager
async def over_websocket(answers: Answer) -> AsyncIterator[str]:
    talking: set[asyncio.Task[Any]] = set()

    async def talk(socket: ServerConnection) -> None:
        task = asyncio.current_task()
        assert task is not None
        talking.add(task)
        with suppress(ConnectionClosed):
            async for said in socket:
                body = said.encode() if isinstance(said, str) else said
                async for piece in answers("/iat/ws", body):
                    await socket.send(piece.decode())

    async with serve(talk, "127.0.0.1", 0, max_size=None) as server:
        try:
            yield f"iat+ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        finally:
            for task in talking:
                task.cancel()


@asynccontextmanager
async def over_grpc(answers: Answer) -> AsyncIterator[str]:
    async def unary(said: bytes, context: Any) -> bytes:
        return b"".join([piece async for piece in answers("", said)])

    async def stream(said: bytes, context: Any) -> AsyncIterator[bytes]:
        async for piece in answers("", said):
            yield piece

    class Anything(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio is untyped
        def service(self, details: Any) -> Any:
            if "Stream" in details.method or "Subscri" in details.method:
                return grpc.unary_stream_rpc_method_handler(stream)
            return grpc.unary_unary_rpc_method_handler(unary)

    options = [("grpc.max_send_message_length", -1)]
    server = grpc.aio.server(options=options, compression=grpc.Compression.Gzip)
    server.add_generic_rpc_handlers((Anything(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"a2a+grpc://127.0.0.1:{port}"
    finally:
        await server.stop(0)


WIRES = {"http": over_http, "websocket": over_websocket, "grpc": over_grpc}
ENVELOPES = {"http": over_http, "websocket": over_websocket}


async def refused(url: str, limits: ClientLimits, *, streamed: bool) -> None:
    """A call ends with an error that says whose fault it is, within a generous time."""

    async def ask() -> None:
        auth = SECRET if url.startswith("iat") else None
        async with asyncio.timeout(50), connect(url, auth=auth, limits=limits) as agent:
            await (agent.stream("hi").result() if streamed else agent.send("hi"))

    with pytest.raises(PeerError):
        await ask()


# What they do.


@pytest.mark.parametrize("streamed", [False, True], ids=["send", "stream"])
@pytest.mark.parametrize("wire", WIRES)
async def test_an_answer_has_a_size(wire: str, streamed: bool) -> None:
    """Beyond it nothing is read: all of it would be held otherwise."""

    async def much(path: str, said: bytes) -> AsyncIterator[bytes]:
        if wire == "http":
            for _ in range(300):
                yield b" " * MIB
        else:
            yield b" " * (count(20, 100) * MIB)

    before = rss()
    async with WIRES[wire](much) as url:
        await refused(url, SMALL, streamed=streamed)
    # The server is in this process too, and has made the answer.
    assert rss() - before < (150 if wire == "http" else 500) * MIB


@pytest.mark.parametrize("streamed", [False, True], ids=["send", "stream"])
async def test_an_event_stream_has_events_of_a_size(streamed: bool) -> None:
    async def much(path: str, said: bytes) -> AsyncIterator[bytes]:
        yield b"data: "
        for _ in range(300):
            yield b"x" * MIB

    before = rss()
    async with over_http(much, b"text/event-stream") as url:
        await refused(url, SMALL, streamed=streamed)
    assert rss() - before < 150 * MIB


@pytest.mark.parametrize("wire", ENVELOPES)
async def test_an_answer_has_a_depth(wire: str) -> None:
    async def deep(path: str, said: bytes) -> AsyncIterator[bytes]:
        asked = json.loads(said)
        told = {
            "header": {"msg_id": "1", "type": "response", "parent_id": asked["header"]["msg_id"]},
            "payload": {"result": "DEEP"},
        }
        yield json.dumps(told).encode().replace(b'"DEEP"', b"[" * 5_000 + b"]" * 5_000)

    async with ENVELOPES[wire](deep) as url:
        await refused(url, LIMITS, streamed=False)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_packed_answer_is_not_unpacked_beyond_its_size(wire: str) -> None:
    """A thousandth of it comes over the wire. What is not asked for packed is not unpacked at all;
    the other two wires unpack by themselves."""

    async def bomb(path: str, said: bytes) -> AsyncIterator[bytes]:
        plain = b" " * (count(20, 100) * MIB)
        yield gzip.compress(plain, 1) if wire == "http" else plain

    before = rss()
    served = over_http(bomb, b"gzip") if wire == "http" else WIRES[wire](bomb)
    async with served as url:
        await refused(url, SMALL, streamed=False)
    assert rss() - before < 450 * MIB  # the plain text, which the server has made here


@pytest.mark.parametrize("streamed", [False, True], ids=["send", "stream"])
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.slow  # takes two seconds
async def test_a_server_that_never_answers_is_given_up(wire: str, streamed: bool) -> None:
    async def never(path: str, said: bytes) -> AsyncIterator[bytes]:
        await forever()
        yield b""

    async with WIRES[wire](never) as url:
        await refused(url, IMPATIENT, streamed=streamed)


@pytest.mark.slow  # takes two seconds
@pytest.mark.parametrize("wire", ENVELOPES)
async def test_a_server_that_says_everything_but_the_answer_is_given_up(wire: str) -> None:
    """Each piece in time, and never an end."""

    async def babble(path: str, said: bytes) -> AsyncIterator[bytes]:
        other = {"header": {"msg_id": "1", "type": "response", "parent_id": "other"}}
        while True:
            yield b" " if wire == "http" else json.dumps(other).encode()
            await asyncio.sleep(0.01)  # the pace of the server

    async with ENVELOPES[wire](babble) as url:
        await refused(url, IMPATIENT, streamed=False)


class Flood(CallerSession):
    """Hears every frame as an event of the first call."""

    def receive(self, frame: Frame) -> Iterable[Signal]:
        return (Update("1", Message(message_id="m", role=Role.AGENT, parts=())),)

    def send(self, signal: Signal) -> Iterable[Frame]:
        return (Frame(b"?"),)


@pytest.mark.parametrize(
    ("size", "most"), [(10, AHEAD), (MIB, AHEAD_SIZE // MIB), (3 * AHEAD_SIZE, 1)]
)
async def test_a_slow_reader_holds_little_of_a_flood(size: int, most: int) -> None:
    """A WebSocket is read ahead of its reader, but not by hundreds of the largest messages."""

    async def say(frame: Frame) -> None:
        return

    peer, heard = WebSocketPeer(Flood(), say), 0

    async def flood() -> None:
        nonlocal heard
        frame = Frame(b"x" * size)
        while True:
            await peer.hear(frame)
            heard += 1

    events = peer.stream(Watch(task_id="t"), ANYONE)
    first = asyncio.ensure_future(anext(events))
    await turns(2)  # it has asked
    flooding = asyncio.create_task(flood())
    held = len((await first).entries)
    await until(lambda: heard >= held + most)
    await stays(lambda: heard <= held + most)
    # What is read makes room, and the end is told however full it is.
    before = heard
    await anext(events)
    await until(lambda: heard > before)
    await turns(10)
    peer.lost()
    with pytest.raises(PeerUnreachable):
        async for _ in events:
            pass
    flooding.cancel()


@pytest.mark.parametrize("size", [10, MIB])
async def test_a_reader_that_leaves_a_flood_holds_up_no_other_call(size: int) -> None:
    async def say(frame: Frame) -> None:
        return

    peer, heard = WebSocketPeer(Flood(), say), 0

    async def flood() -> None:
        nonlocal heard
        frame = Frame(b"x" * size)
        while heard < 3 * AHEAD:
            await peer.hear(frame)
            heard += 1

    events = peer.stream(Watch(task_id="t"), ANYONE)
    first = asyncio.ensure_future(anext(events))
    await turns(2)  # it has asked
    flooding = asyncio.create_task(flood())
    await first
    await until(lambda: heard >= min(AHEAD, AHEAD_SIZE // size))
    await events.aclose()
    async with asyncio.timeout(60):
        await flooding


# Where we go, and what we show there.


async def test_credentials_over_grpc_stay_at_the_origin_that_was_typed() -> None:
    shown: list[dict[str, str]] = []

    class Listening(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio is untyped
        def service(self, details: Any) -> Any:
            shown.append(dict(details.invocation_metadata))
            return None  # UNIMPLEMENTED

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Listening(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    card = at((f"127.0.0.1:{port}", "GRPC", "1.0"))

    async def call(typed: str, **more: Any) -> str:
        with suppress(DragomanError):
            async with connect(typed, auth="s3cret-of-ann", limits=LIMITS, **more) as agent:
                await agent.get("t")
        return shown[-1].get("authorization", "")

    try:
        assert await call("http://127.0.0.1:9", card=card) == ""
        assert await call(f"a2a+grpc://127.0.0.1:{port}") == "Bearer s3cret-of-ann"
    finally:
        await server.stop(0)


@pytest.mark.parametrize("near", ["127.0.0.1:1", "[::1]:1", "10.0.0.1:1", "169.254.169.254:80"])
async def test_private_grpc_addresses_of_a_card_are_not_called(near: str) -> None:
    card = at((near, "GRPC", "1.0"))
    with pytest.raises(BadParams, match="may not be called"):
        async with connect("https://agent.example.com", card=card, limits=LIMITS):
            pass
