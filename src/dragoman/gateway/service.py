"""The life of an upstream agent beside its requests: its health is checked, and its card read."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import Protocol

from dragoman.core.card import Card
from dragoman.net.service import Service

from .health_checks import health_checks
from .upstream_address import UpstreamAddress
from .upstream_pool import UpstreamPool

FIRST_PAUSE = 0.5
"""Seconds before the second check of an address that does not answer; they double each time."""


class ReadAgent(Protocol):
    """The part of an upstream agent that the service needs."""

    pool: UpstreamPool
    refresh: float
    elsewhere: bool

    def learn(self, card: Card, dialect: str, at: str) -> None: ...


class UpstreamService(Service):
    """Checks each address of one agent elsewhere, and keeps its card up to date, whether or not
    anybody calls it. An agent that is away is no reason not to start."""

    name = "upstream"

    def __init__(self, agent: ReadAgent) -> None:
        self._agent = agent

    async def start(self) -> None:
        """Begins to check the addresses."""
        for address in self._agent.pool.addresses:
            health_checks().add(address, partial(self._check, address))

    async def stop(self) -> None:
        """Ends the connections to the agent."""
        for address in self._agent.pool.addresses:
            await health_checks().remove(address)
        await self._agent.pool.close()

    async def _check(self, address: UpstreamAddress) -> float:
        """Checks an address, and returns the seconds until the next check. A check that reads the
        card is not made more often than `refresh` says, if calls show that the address answers."""
        agent, pool = self._agent, self._agent.pool
        interval = min(pool.limits.health or agent.refresh, agent.refresh)
        if agent.elsewhere:
            return interval  # another process has its link, and checks it
        now = monotonic()
        if address.checked_at and now - address.checked_at < agent.refresh:
            quiet = now - address.answered_at
            if quiet < interval and not address.last_reason:
                return interval - quiet
        found = await pool.check(address)
        if found is None:
            return min(interval, FIRST_PAUSE * float(2 ** min(address.checks_failed - 1, 10)))
        agent.learn(found.card, found.dialect, address.label)
        return interval
