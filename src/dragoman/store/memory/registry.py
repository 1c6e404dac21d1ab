"""The registry in memory."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from .. import registry as rules
from ..clock import Clock
from ..registry import REMEMBERED, AgentHealth, RegistryEntry, Source


class MemoryRegistry:
    """Implements `RegistryStore`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[str, RegistryEntry] = {}
        self._revision = 0

    async def put(self, entry: RegistryEntry) -> RegistryEntry:
        owned = sum(rules.owns(each, entry.source, entry.owner) for each in self._entries.values())
        known = self._entries.get(entry.name)
        return self._keep(rules.admitted(known, entry, owned, self._clock()))

    def _keep(self, entry: RegistryEntry) -> RegistryEntry:
        """Stores an entry as the latest change."""
        self._revision += 1
        # The entry moves to the end of the dictionary, which therefore is in the order of changes.
        self._entries.pop(entry.name, None)
        kept = self._entries[entry.name] = replace(entry, revision=self._revision)
        return kept

    async def renew(self, name: str, source: Source, owner: str, until: int) -> bool:
        return self._renewed(name, source, owner, until) is not None

    def _renewed(self, name: str, source: Source, owner: str, until: int) -> RegistryEntry | None:
        known = self._entries.get(name)
        if known is None or not rules.owns(known, source, owner):
            return None
        return self._keep(replace(known, until=until, seen_at=self._clock()))

    async def note(self, name: str, health: AgentHealth, seen_at: int) -> None:
        self._noted(name, health, seen_at)

    def _noted(self, name: str, health: AgentHealth, seen_at: int) -> RegistryEntry | None:
        known = self._entries.get(name)
        if known is None or known.removed_at:
            return None
        return self._keep(replace(known, health=health, seen_at=max(seen_at, known.seen_at)))

    async def remove(self, name: str, source: Source, owner: str) -> bool:
        return self._removed(name, source, owner) is not None

    def _removed(self, name: str, source: Source, owner: str) -> RegistryEntry | None:
        known = self._entries.get(name)
        if known is None or not rules.owns(known, source, owner):
            return None
        return self._keep(replace(known, removed_at=self._clock()))

    async def restore(self, entries: Sequence[RegistryEntry]) -> None:
        """Takes these in place of all that there are. They are in the order of their revisions."""
        self._entries = {each.name: each for each in entries}
        self._revision = entries[-1].revision if entries else 0

    async def find(self, name: str) -> RegistryEntry | None:
        known = self._entries.get(name)
        return known if known is not None and not known.removed_at else None

    async def all(self) -> list[RegistryEntry]:
        found = [each for each in self._entries.values() if not each.removed_at]
        return sorted(found, key=lambda each: each.name)

    async def news(self, after: int) -> list[RegistryEntry]:
        found: list[RegistryEntry] = []
        for each in reversed(self._entries.values()):
            if each.revision <= after:
                break
            found.append(each)
        return found[::-1]

    async def drop_expired(self, before: int) -> list[str]:
        dropped, _ = self._dropped(before)
        return [each.name for each in dropped]

    def _dropped(self, before: int) -> tuple[list[RegistryEntry], list[str]]:
        """Removes what has expired. Returns it, and the names that are forgotten altogether."""
        now = self._clock()
        expired = [
            each
            for each in self._entries.values()
            if not each.removed_at and each.is_expired(before)
        ]
        gone = [
            each.name
            for each in self._entries.values()
            if 0 < each.removed_at <= now - REMEMBERED and each.revision < self._revision
        ]
        for name in gone:
            del self._entries[name]
        return [self._keep(replace(each, removed_at=now)) for each in expired], gone
