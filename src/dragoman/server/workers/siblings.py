"""The workers of a server ask each other for their figures, so that any of them can answer for
all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote, unquote

from dragoman.net.http.asgi import Handler, Receive, Scope, Send
from dragoman.net.service import Service

from .passed_requests import answer_passed, pass_on
from .worker_process import WorkerProcess

PATIENCE = 2.0
"""The seconds that another worker may take. Without its figures the answer is incomplete."""
TAKING = 30.0
"""The seconds after which a worker that does not say whether it takes a request is left out."""
LARGEST = 16 * 1024 * 1024
SUFFIX = ".figures"
PASS, HAS = "pass", b"1"
"""Begins the line with which a request is passed on, and the answer of a worker that takes it."""


class Siblings(Service):
    """Tells the other workers our figures, and asks them for theirs."""

    name = "workers"

    def __init__(self, worker: WorkerProcess) -> None:
        self.own: dict[str, Callable[[], Awaitable[bytes]]] = {}
        """Returns the figures of this worker, by their kinds."""
        self.answers: dict[str, tuple[Callable[[str], bool], Handler]] = {}
        """Whether this worker has what a key names, and what answers requests for it."""
        self._folder = Path(worker.folder)
        self._path = self._folder / f"{worker.number}-{os.getpid()}{SUFFIX}"
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Starts to answer."""
        self._server = await asyncio.start_unix_server(self._answer, self._path)

    async def stop(self) -> None:
        """Stops to answer."""
        if self._server is not None:
            self._server.close()
        self._path.unlink(missing_ok=True)

    async def figures(self, kind: str) -> list[bytes]:
        """Returns the figures of a kind of the other workers. One that does not answer is left
        out."""
        found = await asyncio.gather(*(_asked(each, kind) for each in self._others()))
        return [each for each in found if each]

    def _others(self) -> list[Path]:
        return [each for each in self._folder.glob(f"*{SUFFIX}") if each != self._path]

    async def pass_on(
        self, kind: str, key: str, scope: Scope, receive: Receive, send: Send
    ) -> bool:
        """Has another worker answer a request, if one of them has what the key names."""
        for path in self._others():
            try:
                async with asyncio.timeout(PATIENCE):
                    reader, writer = await asyncio.open_unix_connection(path)
            except (OSError, TimeoutError):  # it has ended: the system connects to a busy one
                continue
            with closing(writer):
                writer.write(f"{PASS} {kind} {quote(key, safe='')}\n".encode())
                if await _takes(reader):
                    await pass_on(reader, writer, scope, receive, send)
                    return True
        return False

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Closed even if the handler of a request fails: its caller waits at the other end.
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError):
            kind = (await reader.readuntil(b"\n")).decode().rstrip("\n")
            if kind in self.own:
                writer.write(await self.own[kind]())
                await writer.drain()
            elif kind.startswith(f"{PASS} "):
                await self._take(kind.split(" "), reader, writer)

    async def _take(
        self, words: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answers a request that another worker passes on, if it is for us."""
        _, kind, key = words
        known = self.answers.get(kind)
        if known is not None and known[0](unquote(key)):
            writer.write(HAS)
            await answer_passed(reader, writer, known[1])


async def _takes(reader: asyncio.StreamReader) -> bool:
    """Returns whether the worker at the other end takes a request. One that is busy gets time: what
    the request needs would otherwise seem not to exist."""
    try:
        async with asyncio.timeout(TAKING):
            return await reader.read(1) == HAS
    except (OSError, TimeoutError):
        return False


async def _asked(path: Path, kind: str) -> bytes:
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_unix_connection(path)
            with closing(writer):
                writer.write(f"{kind}\n".encode())
                return await _whole(reader)
    except (OSError, TimeoutError):
        return b""


async def _whole(reader: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while len(found) < LARGEST and (piece := await reader.read(65_536)):
        found += piece
    return bytes(found)
