"""A proxy that cuts every connection at random, and may take numbers out of streams."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from waiting import turns

_CURSOR = re.compile(rb"last-event-id:", re.I)
_MARK = re.compile(rb"(^|\n)id: ")


class Cutter:
    """Forwards to a port of this machine."""

    def __init__(self, to: int, seed: int, *, strip: bool = False) -> None:
        self._to = to
        self._dice = random.Random(seed)
        self._strip = strip
        """Bytes are replaced, never removed: what is told of lengths stays true."""
        self._open: set[asyncio.Task[None]] = set()
        self.cuts = 0
        self.connections = 0
        self.on = True
        self.least, self.most = 300, 4000
        self.after: Callable[[], int] = lambda: self._dice.randint(self.least, self.most)
        """Bytes of answers after which a connection is cut."""
        self.flows = asyncio.Event()
        """While it is not set, connections stand and nothing comes back."""
        self.flows.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        with suppress(OSError, asyncio.CancelledError):
            there, back = await asyncio.open_connection("127.0.0.1", self._to)
            up = asyncio.create_task(self._up(reader, back))
            try:
                await self._down(there, writer)
            finally:
                up.cancel()
                back.transport.abort()
                writer.transport.abort()
        self._open.discard(task)

    async def _up(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self._strip:
                    data = _CURSOR.sub(b"x-not-event-i:", data)
                back.write(data)
                await back.drain()
            back.transport.abort()

    async def _down(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self.after()
        while data := await there.read(65536):
            await self.flows.wait()
            if self._strip:
                data = _MARK.sub(rb"\1:d: ", data)
            if self.on and len(data) >= left:
                writer.write(data[:left])
                await writer.drain()
                self.cuts += 1
                return
            left -= len(data)
            writer.write(data)
            await writer.drain()

    def cut_all(self) -> None:
        """Cuts what is open now."""
        for task in self._open:
            task.cancel()

    def stop(self) -> None:
        self.cut_all()


@asynccontextmanager
async def cutting(
    to: int, seed: int, *, strip: bool = False, port: int = 0
) -> AsyncIterator[tuple[Cutter, int]]:
    """A proxy to a port, and its own port."""
    cutter = Cutter(to, seed, strip=strip)
    server = await asyncio.start_server(cutter.serve, "127.0.0.1", port)
    try:
        yield cutter, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        cutter.stop()
        await turns()  # what was closed has its last turn
