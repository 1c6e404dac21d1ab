"""WebSockets on our own listener: what is asked for ahead, and what is said in one go, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from counts import count
from dragoman.core.errors import PeerUnreachable
from dragoman.net.http.deadlines import Deadlines
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.net.websocket.reader import AHEAD, WebSocketReader
from dragoman.net.websocket.writer import AHEAD as LINE_LIMIT
from dragoman.net.websocket.writer import WebSocketWriter
from dragoman.settings import Limits
from waiting import stays

FRAMES = count(2_000, 10_000, 200_000)


class Echo:
    """Says back what it hears, through both ends; `asked` is how many were asked for at once."""

    asked = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        incoming = WebSocketReader(receive, asyncio.get_running_loop())
        outgoing = WebSocketWriter(send, Deadlines(), 30, lambda: None)
        writing = asyncio.create_task(outgoing.run())
        try:
            while (message := await incoming.next())["type"] != "websocket.disconnect":
                self.asked = max(self.asked, len(incoming._asked))
                outgoing.put(message["text"].encode())
                if outgoing.full:
                    await outgoing.room()
                if message["text"] == "go":
                    break
        finally:
            incoming.close()
            writing.cancel()
            await asyncio.wait([writing])
        await send({"type": "websocket.close", "code": 4000})


@asynccontextmanager
async def dialed(echo: Echo) -> AsyncIterator[ClientConnection]:
    sock = bind("127.0.0.1", 0)
    url = f"ws://127.0.0.1:{sock.getsockname()[1]}/"
    listener = GranianServer(echo, sock, Limits())
    listener.begin()
    try:
        async with connect(url, compression=None, max_queue=16) as socket:
            yield socket
    finally:
        listener.refuse()
        await listener.end(2)


async def test_many_frames_keep_their_order() -> None:
    echo = Echo()
    async with dialed(echo) as socket:

        async def say() -> None:
            for number in range(FRAMES):
                await socket.send(f"{number} {'x' * (number * 37 % 900)}")

        async with asyncio.TaskGroup() as group:
            group.create_task(say())
            heard = [int(str(await socket.recv()).partition(" ")[0]) for _ in range(FRAMES)]
    assert heard == list(range(FRAMES))
    assert 1 < echo.asked <= AHEAD


async def test_the_socket_can_be_closed_while_more_is_asked_for() -> None:
    async with dialed(Echo()) as socket:
        for _ in range(100):
            await socket.send("again")
        await socket.send("go")
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(_read_on(socket), 60)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4000


async def _read_on(socket: ClientConnection) -> None:
    while True:
        await socket.recv()


async def test_one_at_a_time_asks_for_one() -> None:
    echo = Echo()
    async with dialed(echo) as socket:
        for number in range(4):
            await asyncio.sleep(0.02)  # never two on the way
            await socket.send(str(number))
            assert await socket.recv() == str(number)
    assert echo.asked == 1


async def test_who_does_not_read_is_given_up() -> None:
    broken = asyncio.Event()
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    outgoing = WebSocketWriter(lambda message: never, Deadlines(0.02), 0.05, broken.set)
    writing = asyncio.create_task(outgoing.run())
    outgoing.put(b"hello")
    with pytest.raises(PeerUnreachable):
        await asyncio.wait_for(outgoing.room(), 60)
    assert broken.is_set()
    with pytest.raises(PeerUnreachable):
        outgoing.put(b"anyone?")
    await writing  # it ended by itself


async def test_who_says_much_waits_until_it_is_gone() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    said: list[str] = []

    async def send(message: dict[str, Any]) -> None:
        await gate
        said.append(message["text"])

    outgoing = WebSocketWriter(send, Deadlines(), 30, lambda: None)
    writing = asyncio.create_task(outgoing.run())
    for letter in "abc":
        outgoing.put(letter.encode() * LINE_LIMIT)
    assert outgoing.full
    waiting = asyncio.create_task(outgoing.room())
    await stays(lambda: not waiting.done())
    gate.set_result(None)
    await asyncio.wait_for(waiting, 60)
    assert [text[0] for text in said] == ["a", "b", "c"]
    assert not outgoing.full
    writing.cancel()
    await asyncio.wait([writing])
