"""The registry of a file store: one small JSON file for each entry, replaced as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..clock import Clock
from ..memory.registry import MemoryRegistry
from ..registry import AgentHealth, RegistryEntry, Source
from .damage import Quarantine
from .json_files import JsonFiles
from .sessions import Replace


class FileRegistry(MemoryRegistry):
    """A registry in memory that is written to files, and read back when the store is opened."""

    def __init__(self, folder: Path, clock: Clock, put: Replace) -> None:
        super().__init__(clock)
        self._files = JsonFiles(folder, RegistryEntry, put)

    def recover(self, damaged: Quarantine) -> None:
        """Reads all files."""
        found = sorted(self._files.read_all(damaged), key=lambda each: each.revision)
        self._entries = {each.name: each for each in found}
        self._revision = max((each.revision for each in found), default=0)

    async def restore(self, entries: Sequence[RegistryEntry]) -> None:
        await super().restore(entries)
        await self._files.replace_all(self._entries)

    async def put(self, entry: RegistryEntry) -> RegistryEntry:
        kept = await super().put(entry)
        await self._save(kept)
        return kept

    async def renew(self, name: str, source: Source, owner: str, until: int) -> bool:
        return await self._save(self._renewed(name, source, owner, until))

    async def note(self, name: str, health: AgentHealth, seen_at: int) -> None:
        await self._save(self._noted(name, health, seen_at))

    async def remove(self, name: str, source: Source, owner: str) -> bool:
        return await self._save(self._removed(name, source, owner))

    async def drop_expired(self, before: int) -> list[str]:
        dropped, gone = self._dropped(before)
        for each in dropped:
            await self._save(each)
        for name in gone:
            await self._files.put(name, None)
        return [each.name for each in dropped]

    async def _save(self, entry: RegistryEntry | None) -> bool:
        """Writes an entry to its file. Returns False if there is no entry."""
        if entry is not None:
            await self._files.put(entry.name, entry)
        return entry is not None
