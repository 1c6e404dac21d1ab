"""A proxy that cuts connections at random, delays and splits what passes, and may take numbers out
of streams."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from waiting import turns

_CURSOR = re.compile(rb"last-event-id:", re.I)
_MARK = re.compile(rb"(^|\n)id: ")

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Cutter:
    """Forwards to a port of this machine, or to wherever a function connects."""

    def __init__(
        self, to: int | Callable[[], Awaitable[Connection]], seed: int, *, strip: bool = False
    ) -> None:
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
        """While it is not set, connections stand and nothing passes."""
        self.flows.set()
        self.delay = 0.0
        """The longest time in seconds by which what passes is late."""
        self.split = False
        """Whether what passes comes in pieces that end anywhere."""
        self.delays = self.splits = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        with suppress(OSError, asyncio.CancelledError):
            there, back = await self._connect()
            up = asyncio.create_task(self._up(reader, back))
            try:
                await self._down(there, writer)
            finally:
                up.cancel()
                back.transport.abort()
                writer.transport.abort()
        writer.transport.abort()  # also when nobody was there to connect to
        self._open.discard(task)

    async def _connect(self) -> Connection:
        if isinstance(self._to, int):
            return await asyncio.open_connection("127.0.0.1", self._to)
        return await self._to()

    async def _pass(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        await self.flows.wait()
        if self.delay:
            self.delays += 1
            await asyncio.sleep(self._dice.uniform(0, self.delay))  # the delay of the line
        pieces = [data]
        if self.split and len(data) > 1:
            self.splits += 1
            first = self._dice.randint(1, min(len(data) - 1, 12))
            middle = self._dice.randint(first, len(data))
            pieces = [data[:first], data[first:middle], data[middle:]]
        for piece in filter(None, pieces):
            writer.write(piece)
            await writer.drain()
            if len(pieces) > 1:
                await turns()  # so that the pieces do not leave together

    async def _up(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self._strip:
                    data = _CURSOR.sub(b"x-not-event-i:", data)
                await self._pass(data, back)
            back.transport.abort()

    async def _down(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self.after()
        while data := await there.read(65536):
            if self._strip:
                data = _MARK.sub(rb"\1:d: ", data)
            if self.on and len(data) >= left:
                await self._pass(data[:left], writer)
                self.cuts += 1
                return
            left -= len(data)
            await self._pass(data, writer)

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
