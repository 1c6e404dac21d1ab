"""The reports of replicas in memory, where the only replica is this process."""

from __future__ import annotations

from msgspec.structs import replace

from ..clock import Clock
from ..replicas import REMEMBERED, ReplicaReport, listed


class MemoryReplicas:
    """Implements `ReplicaStore`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reports: dict[str, tuple[int, ReplicaReport]] = {}

    async def put(self, report: ReplicaReport) -> None:
        now = self._clock()
        self._reports[report.id] = (now, report)
        kept = self._reports.items()
        self._reports = {id: each for id, each in kept if each[0] > now - REMEMBERED}

    async def all(self) -> list[ReplicaReport]:
        now = self._clock()
        return listed([replace(each, silent=now - at) for at, each in self._reports.values()])
