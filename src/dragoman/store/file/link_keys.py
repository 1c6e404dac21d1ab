"""The keys of links of a file store: one small JSON file for each, replaced as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..clock import Clock
from ..link_keys import LinkKey
from ..memory.link_keys import MemoryLinkKeys
from .damage import Quarantine
from .json_files import JsonFiles, name_for
from .sessions import Replace


class FileLinkKeys(MemoryLinkKeys):
    """Keys in memory that are written to files, and read back when the store is opened."""

    def __init__(self, folder: Path, clock: Clock, put: Replace) -> None:
        super().__init__(clock)
        self._files = JsonFiles(folder, LinkKey, put)

    def recover(self, damaged: Quarantine) -> None:
        """Reads all files."""
        self._keys = {each.access_key: each for each in self._files.read_all(damaged)}

    async def restore(self, keys: Sequence[LinkKey]) -> None:
        await super().restore(keys)
        await self._files.replace_all({name_for(name): it for name, it in self._keys.items()})

    async def add(self, key: LinkKey) -> LinkKey:
        kept = await super().add(key)
        await self._files.put(name_for(kept.access_key), kept)
        return kept

    async def revoke(self, access_key: str) -> bool:
        kept = self._revoked(access_key)
        if kept is not None:
            await self._files.put(name_for(kept.access_key), kept)
        return kept is not None
