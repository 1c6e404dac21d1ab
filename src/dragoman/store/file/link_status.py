"""The status of links of a file store: one small JSON file for each, replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ..clock import Clock
from ..link_status import LinkStatus
from ..memory.link_status import MemoryLinkStatus
from .damage import Quarantine
from .json_files import JsonFiles, name_for
from .sessions import Replace


class FileLinkStatus(MemoryLinkStatus):
    """Statuses in memory that are written to files, and read back when the store is opened."""

    def __init__(self, folder: Path, clock: Clock, put: Replace) -> None:
        super().__init__(clock)
        self._files = JsonFiles(folder, LinkStatus, put)

    async def put(self, statuses: Iterable[LinkStatus]) -> None:
        kept, old = self._kept(statuses)
        for each in kept:
            await self._files.put(name_for(repr(each.key)), each)
        for key in old:
            await self._files.put(name_for(repr(key)), None)

    async def restore(self, statuses: Sequence[LinkStatus]) -> None:
        await super().restore(statuses)
        found = self._statuses.items()
        await self._files.replace_all({name_for(repr(key)): it for key, it in found})

    def recover(self, damaged: Quarantine) -> None:
        """Reads all files."""
        self._statuses = {each.key: each for each in self._files.read_all(damaged)}
