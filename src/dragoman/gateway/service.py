"""The life of an upstream agent beside its requests: its card is read, and read again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

from dragoman.core.card import Card
from dragoman.core.errors import DragomanError
from dragoman.core.log import Logger
from dragoman.net.service import Service

from .upstream_pool import UpstreamPool

log = Logger("gateway")
FIRST_PAUSE = 0.5
"""Seconds before the second attempt to reach an agent that is away; they double each time."""


class ReadAgent(Protocol):
    """The part of an upstream agent that the service needs."""

    served_as: str
    pool: UpstreamPool
    refresh: float

    def learn(self, card: Card, dialect: str) -> None: ...


class UpstreamService(Service):
    """Keeps the card of one agent elsewhere up to date, whether or not anybody calls it."""

    name = "upstream"

    def __init__(self, agent: ReadAgent) -> None:
        self._agent = agent
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to read the card. An agent that is away is no reason not to start."""
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def stop(self) -> None:
        """Ends the connections to the agent."""
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading
        await self._agent.pool.close()

    async def _read(self) -> None:
        agent, failures = self._agent, 0
        while True:
            try:
                async with agent.pool.renewed() as peer:
                    agent.learn(peer.card, peer.dialect)
                failures = 0
            except (DragomanError, OSError, TimeoutError) as exc:
                tell = log.warning if not failures else log.info
                tell(
                    "An agent cannot be reached", agent=agent.served_as, at=agent.pool.url, why=exc
                )
                failures += 1
            pause = agent.refresh if not failures else FIRST_PAUSE * 2 ** min(failures - 1, 10)
            await asyncio.sleep(min(pause, agent.refresh))
