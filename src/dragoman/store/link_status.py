"""The status of links: whether an agent is connected to its server, as the process that has the
link reports it.

A process writes the status of its links when it changes, and renews it from time to time. A status
that is not renewed is that of a process that was killed, and is dropped after a day.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal, Protocol

from msgspec import Struct

REMEMBERED = 86_400_000
"""Milliseconds for which a status is kept that no process renews."""


class LinkState(StrEnum):
    """What a link is doing."""

    OPEN = "open"
    DOWN = "down"
    """It is not connected, and dials again or waits for the agent."""
    ENDED = "ended"
    """The agent was refused, or gave the server up."""
    STOPPED = "stopped"
    """Its process was stopped."""


class LinkStatus(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The links between one agent and one server, as one of the two sides has them. Times are
    milliseconds since the epoch."""

    side: Literal["agent", "server"]
    """The side that reports: the agent that dials, or the server that was dialled."""
    agent_id: str
    server: str
    """The address of the server, without secrets."""
    host: str = ""
    """The machine of the process that reports."""
    state: LinkState
    links: int = 0
    """The open links. An agent has one to each server that it dials, but several agents may have
    the same id."""
    since: int = 0
    """When the state began."""
    opened: int = 0
    """How often a link was opened."""
    failures: int = 0
    """How often a link failed, was lost or refused."""
    latency: float = 0.0
    """The seconds of the last round trip; 0: it is not known yet."""
    last_error: str = ""
    failed_at: int = 0
    reported_at: int = 0
    """When this was written, set by the store."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What identifies the status: a later one replaces it."""
        return self.side, self.agent_id, self.server, self.host

    @property
    def reconnects(self) -> int:
        """How often a link was opened again."""
        return max(0, self.opened - 1)


class LinkStatusStore(Protocol):
    """The part of a store that keeps the status of links."""

    async def put(self, statuses: Iterable[LinkStatus]) -> None:
        """Stores these, in place of the earlier ones of the same links. Drops those that were not
        renewed for a day."""

    async def all(self) -> list[LinkStatus]:
        """Returns every status, by agent, server and host."""
