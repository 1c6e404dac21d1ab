"""A server that is about to stop lets its callers go first (RFC 9112 §9.6)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.settings import Limits

ASKED = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def app(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[GranianServer, int]]:
    sock = bind("127.0.0.1", 0)
    port = sock.getsockname()[1]
    listener = GranianServer(app, sock, Limits())
    listener.begin()
    try:
        yield listener, port
    finally:
        listener.refuse()
        await listener.end(10.0)


async def _ask(connection: Connection) -> bytes:
    """The head of the answer."""
    reader, writer = connection
    writer.write(ASKED)
    head = await reader.readuntil(b"\r\n\r\n")
    assert await reader.readexactly(2) == b"ok"
    return head.lower()


async def test_a_caller_that_keeps_its_connection_is_told_to_leave() -> None:
    async with listening() as (listener, port):
        kept = await asyncio.open_connection("127.0.0.1", port)
        assert b"connection: close" not in await _ask(kept)
        listener.say_goodbye()
        leaving = asyncio.create_task(listener.empty(60.0))
        assert b"connection: close" in await _ask(kept)
        assert await kept[0].read() == b""
        await leaving  # as soon as nobody is there any more
        kept[1].close()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no filter for sockets")
async def test_a_connection_that_was_begun_is_answered_and_the_next_one_is_not() -> None:
    async with listening() as (listener, port):
        # The system has accepted it, but nothing was sent yet, so the listener does not know it.
        begun = await asyncio.open_connection("127.0.0.1", port)
        leaving = asyncio.create_task(listener.ignore_new())
        await asyncio.sleep(0.05)  # it is shorter than what the listener waits
        late = asyncio.create_task(asyncio.open_connection("127.0.0.1", port))
        assert b"200 ok" in await _ask(begun)
        await leaving
        assert not late.done()
        listener.refuse()
        with pytest.raises(ConnectionRefusedError):  # when it tries again
            await late
        begun[1].close()
