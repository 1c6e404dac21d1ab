"""The replicas: the processes that serve from one store, as each of them reports itself.

A replica renews its report from time to time. One that is not renewed is that of a process that was
killed or hangs: it counts as lost, and is dropped an hour later. A process that stops says so.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from msgspec import Struct

LEASE = 20_000
"""Milliseconds after which a replica whose report is not renewed counts as lost."""
REMEMBERED = 3_600_000
"""Milliseconds for which a report is kept that no process renews."""


class ReplicaState(StrEnum):
    """What is known of a replica."""

    ALIVE = "alive"
    STOPPING = "stopping"
    LOST = "lost"
    """It does not report any more, and did not say that it stops."""


class ReplicaReport(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a replica says of itself. Times are milliseconds since the epoch, and rates are those
    since its last report, for each second."""

    id: str
    """A name that never recurs."""
    host: str
    """The machine of the process."""
    pid: int
    number: int = 0
    """Its number among the workers of one server; 0: it is the only process of its server."""
    url: str = ""
    """Where it is reached, if it knows."""
    version: str
    stopping: bool = False
    silent: int = 0
    """The milliseconds since the report was written, set by the store."""
    agents: tuple[str, ...] = ()
    """The agents whose tasks it runs, by their names in the store."""
    running: int = 0
    """The tasks that it runs now."""
    waiting: int = 0
    """The tasks that it holds while they wait for their callers."""
    streams: int = 0
    """The open streams, and the WebSockets."""
    links: int = 0
    """The open WebSockets, over which agents and callers are linked to this process alone."""
    requests: int = 0
    """The requests that were answered since its start."""
    started_at: int
    request_rate: float = 0.0
    event_rate: float = 0.0
    """The events that it sends in streams."""
    error_rate: float = 0.0

    @property
    def state(self) -> ReplicaState:
        """What this says of the replica."""
        if self.stopping:
            return ReplicaState.STOPPING
        return ReplicaState.ALIVE if self.silent < LEASE else ReplicaState.LOST

    @property
    def ended(self) -> bool:
        """Whether it has said that it stops, and has had the time to do so."""
        return self.stopping and self.silent >= LEASE


class ReplicaStore(Protocol):
    """The part of a store that keeps the reports of replicas."""

    async def put(self, report: ReplicaReport) -> None:
        """Stores a report in place of the one of the same replica. Drops those that were not
        renewed for an hour."""

    async def all(self) -> list[ReplicaReport]:
        """Returns all reports, the replica that started first coming first. Those of replicas that
        have ended are left out."""


def listed(reports: list[ReplicaReport]) -> list[ReplicaReport]:
    """Returns reports as `ReplicaStore.all` promises."""
    left = [each for each in reports if not each.ended]
    return sorted(left, key=lambda each: (each.started_at, each.id))
