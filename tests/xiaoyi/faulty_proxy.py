"""Proxies between an agent and a server of links that cut, delay and half-open connections, and
bring requests twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from waiting import before_again
from xiaoyi.links import PATH

TEXT = 0x81
"""The first byte of a whole text message (RFC 6455 §5.2)."""


class Way:
    """One connection of the agent, and ours to the server for it."""

    def __init__(self, agent: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.agent, self.server = agent, server
        self.half_open = False


class FaultyProxy:
    """Forwards bytes between an agent and the server at a port, and does them harm."""

    def __init__(self, to: int, dice: random.Random) -> None:
        self._to, self._dice = to, dice
        self._ways: set[Way] = set()
        self.flows = asyncio.Event()
        """While it is not set, connections stand and no byte passes."""
        self.flows.set()
        self.faults: Counter[str] = Counter()
        self.port = 0

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}{PATH}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        way = Way(writer, back)
        self._ways.add(way)
        up = asyncio.create_task(self._up(reader, way))
        try:
            await self._down(there, way)
        except (OSError, asyncio.IncompleteReadError):
            pass  # one of the two is gone
        finally:
            self._ways.discard(way)
            up.cancel()
            for each in (writer, back):
                each.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, way: Way) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self.flows.wait()
                way.server.write(data)
                await way.server.drain()
        if not way.half_open:
            way.server.transport.abort()

    async def _down(self, reader: asyncio.StreamReader, way: Way) -> None:
        """What the server says, frame by frame; some requests come twice."""
        frame = await reader.readuntil(b"\r\n\r\n")
        while True:
            await self.flows.wait()
            if not way.half_open:
                way.agent.write(frame)
                if frame[0] == TEXT and self._dice.random() < 0.3:
                    self.faults["twice"] += 1
                    way.agent.write(frame)
                await way.agent.drain()
            head = await reader.readexactly(2)
            more = {126: 2, 127: 8}.get(head[1], 0)
            size = await reader.readexactly(more)
            frame = head + size
            frame += await reader.readexactly(int.from_bytes(size) if more else head[1])

    def cut(self) -> None:
        """Cuts every connection, with all that is on its way."""
        for way in self._ways:
            self.faults["cut"] += 1
            way.agent.transport.abort()
            way.server.transport.abort()

    def half_open(self) -> None:
        """Loses the agent, of which the server hears nothing: what it says goes nowhere."""
        for way in self._ways:
            if not way.half_open:
                self.faults["half-open"] += 1
                way.half_open = True
                way.agent.transport.abort()


@asynccontextmanager
async def proxied(to: int, dice: random.Random) -> AsyncIterator[FaultyProxy]:
    proxy = FaultyProxy(to, dice)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        proxy.flows.set()
        proxy.cut()
        server.close()


async def misbehave(proxies: list[FaultyProxy], dice: random.Random) -> None:
    """One proxy after the other cuts, holds everything, or half-opens its connections."""
    while True:
        proxy = dice.choice(proxies)
        match dice.choice(("cut", "cut", "hold", "half-open")):
            case "cut":
                proxy.cut()
            case "hold":
                proxy.faults["hold"] += 1
                proxy.flows.clear()
            case _:
                proxy.half_open()
        for _ in range(dice.randint(2, 10)):
            await before_again()
        proxy.flows.set()
