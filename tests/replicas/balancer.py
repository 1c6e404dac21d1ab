"""A load balancer of TCP connections, as simple as one can be: a connection goes to the next server
that accepts it, and stays there. It knows no HTTP and asks for no health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from waiting import before_again


class Balancer:
    """Passes connections on, in turn."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports = list(ports)
        self._turn = 0
        self._open: set[asyncio.Task[None]] = set()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        with suppress(OSError, asyncio.CancelledError):
            there, back = await self._accepted()
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(_copy(reader, back))
                    both.create_task(_copy(there, writer))
            finally:
                back.close()
        writer.close()
        self._open.discard(task)

    async def _accepted(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while True:
            for _ in self.ports:
                self._turn += 1
                with suppress(ConnectionRefusedError):
                    port = self.ports[self._turn % len(self.ports)]
                    return await asyncio.open_connection("127.0.0.1", port)
            await before_again()

    def move(self, *ports: int) -> None:
        """Cuts what is open, and passes new connections on to these servers only."""
        self.ports = list(ports)
        self.cut()

    def cut(self) -> None:
        for task in self._open:
            task.cancel()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    with suppress(OSError):
        target.write_eof()


@asynccontextmanager
async def balancing(ports: Sequence[int]) -> AsyncIterator[Balancer]:
    """A balancer before servers at these ports."""
    balancer = Balancer(ports)
    server = await asyncio.start_server(balancer.serve, "127.0.0.1", 0)
    balancer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield balancer
    finally:
        server.close()
        balancer.cut()
