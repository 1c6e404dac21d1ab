"""A server that says exactly what a test wants, and the HTTP client that calls it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from dragoman.security.outbound.guarded_http import GuardedHttp, GuardedReply, Rules

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
LIMIT = 60.0
"""Seconds; only a hang takes as long."""

Talk = Callable[["Peer"], Awaitable[None]]


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test on asyncio's event loop and on uvloop's: their sockets differ."""

    def run(loop: str, **given: Any) -> None:
        factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(test(**given))

    own = inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY)
    takes = [*inspect.signature(test).parameters.values(), own]
    functools.update_wrapper(run, test)
    run.__signature__ = inspect.Signature(takes)  # type: ignore[attr-defined]
    marked: Callable[..., None] = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])(run)
    return marked


class Peer:
    """One connection, as the server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def request(self) -> bytes:
        """Reads a request whole; nothing when there are no more."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return b""
        size = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                size = int(line.partition(b":")[2])
        return head + await self.reader.readexactly(size)

    async def answer(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()


class Server:
    """A server that says exactly what a test wants."""

    def __init__(self, talk: Talk, tls: ssl.SSLContext | None = None) -> None:
        self._talk, self._tls = talk, tls
        self.port = 0
        self.peers: list[Peer] = []
        self._changed = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/"

    async def connected(self, count: int) -> None:
        """Returns when there were so many connections."""
        async with asyncio.timeout(LIMIT), self._changed:
            await self._changed.wait_for(lambda: len(self.peers) >= count)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        self.peers.append(peer)
        async with self._changed:
            self._changed.notify_all()
        try:
            await self._talk(peer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for peer in self.peers:
            peer.writer.close()


@asynccontextmanager
async def client(**options: Any) -> AsyncIterator[GuardedHttp]:
    http = GuardedHttp(Rules(allow_private=True, allow_loopback=True), **options)
    try:
        yield http
    finally:
        await http.close()


async def get(http: GuardedHttp, url: str, **options: Any) -> GuardedReply:
    return await http.request("GET", url, **{"seconds": LIMIT, "max_size": 1 << 20, **options})


async def polite(peer: Peer) -> None:
    while await peer.request():
        await peer.answer(OK)


def says(*parts: bytes) -> Talk:
    """Answers each request so."""

    async def talk(peer: Peer) -> None:
        while await peer.request():
            await peer.answer(*parts)

    return talk
