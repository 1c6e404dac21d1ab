"""The status of links in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from ..clock import Clock
from ..link_status import REMEMBERED, LinkStatus

Key = tuple[str, str, str, str]


class MemoryLinkStatus:
    """Implements `LinkStatusStore`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._statuses: dict[Key, LinkStatus] = {}

    async def put(self, statuses: Iterable[LinkStatus]) -> None:
        self._kept(statuses)

    def _kept(self, statuses: Iterable[LinkStatus]) -> tuple[list[LinkStatus], list[Key]]:
        """Stores these. Returns them as they are stored, and the keys of those that are dropped."""
        now = self._clock()
        kept = [replace(each, reported_at=now) for each in statuses]
        self._statuses |= {each.key: each for each in kept}
        found = self._statuses.items()
        old = [key for key, each in found if each.reported_at <= now - REMEMBERED]
        for key in old:
            del self._statuses[key]
        return kept, old

    async def restore(self, statuses: Sequence[LinkStatus]) -> None:
        """Takes these in place of all that there are."""
        self._statuses = {each.key: each for each in statuses}

    async def all(self) -> list[LinkStatus]:
        return [each for _, each in sorted(self._statuses.items())]
