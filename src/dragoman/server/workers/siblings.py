"""The workers of a server ask each other for their figures, so that any of them can answer for
all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from dragoman.net.service import Service

from .worker_process import WorkerProcess

PATIENCE = 2.0
"""The seconds that another worker may take. Without its figures the answer is incomplete."""
LARGEST = 16 * 1024 * 1024
SUFFIX = ".figures"


class Siblings(Service):
    """Tells the other workers our figures, and asks them for theirs."""

    name = "workers"

    def __init__(self, worker: WorkerProcess, own: Callable[[], Awaitable[bytes]]) -> None:
        """`own` returns the figures of this worker."""
        self._folder, self._own = Path(worker.folder), own
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

    async def figures(self) -> list[bytes]:
        """Returns the figures of the other workers. One that does not answer is left out."""
        others = [each for each in self._folder.glob(f"*{SUFFIX}") if each != self._path]
        found = await asyncio.gather(*map(_asked, others))
        return [each for each in found if each]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(await self._own())
            await writer.drain()
        writer.close()


async def _asked(path: Path) -> bytes:
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                return await _whole(reader)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return b""


async def _whole(reader: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while len(found) < LARGEST and (piece := await reader.read(65_536)):
        found += piece
    return bytes(found)
