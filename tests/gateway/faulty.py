"""Doors in front of agents that can be closed, frozen, slowed down and cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from dragoman import Agent
from dragoman.settings import Settings
from dragoman.testing.served import served
from gateway.behind import settings
from ports import own_port
from waiting import turns


class Door:
    """A port of this machine behind which an agent is."""

    def __init__(self) -> None:
        self.port = own_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.to = 0
        self.flows = asyncio.Event()
        """While it is not set, connections are accepted and nothing comes back."""
        self.flows.set()
        self.answers_flow = asyncio.Event()
        """While it is not set, requests arrive and no answer comes back."""
        self.answers_flow.set()
        self.connections = 0
        self.requests = 0
        """Requests that are not for a card."""
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listens."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def close(self) -> None:
        """Refuses connections, and cuts those that there are."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        await turns(3)

    def cut(self) -> None:
        """Cuts what is open."""
        for task in tuple(self._open):
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        with suppress(OSError, asyncio.CancelledError):
            try:
                await self._forward(reader, writer)
            finally:
                writer.transport.abort()
                self._open.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.to)
        up = asyncio.create_task(self._up(reader, back))
        try:
            while data := await there.read(65536):
                await self.flows.wait()
                await self.answers_flow.wait()
                writer.write(data)
                await writer.drain()
        finally:
            up.cancel()
            back.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self.flows.wait()
                self.requests += data.startswith(b"POST ")
                back.write(data)
                await back.drain()
            back.transport.abort()


@asynccontextmanager
async def door_to(folder: Path, agent: Agent, own: Settings | None = None) -> AsyncIterator[Door]:
    """An agent behind a door."""
    door = Door()
    own = own or settings(folder)
    own = replace(own, server=replace(own.server, public_url=door.url))
    async with served(agent, own) as url:
        door.to = int(url.rpartition(":")[2])
        await door.open()
        try:
            yield door
        finally:
            await door.close()


@asynccontextmanager
async def frozen() -> AsyncIterator[str]:
    """The address of a server that accepts connections and never answers."""
    open_ones: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(writer)
        with suppress(OSError):
            while await reader.read(65536):
                pass

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in open_ones:
            writer.transport.abort()
        await turns(3)
