"""The keys of links of a file store: one small JSON file for each, replaced as a whole."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from ..clock import Clock
from ..link_keys import LinkKey
from ..memory.link_keys import MemoryLinkKeys
from .damage import Quarantine
from .json_files import read_all
from .sessions import Replace


class FileLinkKeys(MemoryLinkKeys):
    """Keys in memory that are written to files, and read back when the store is opened."""

    def __init__(self, folder: Path, clock: Clock, put: Replace) -> None:
        super().__init__(clock)
        self._folder, self._replace = folder, put

    def recover(self, damaged: Quarantine) -> None:
        """Reads all files."""
        found = read_all(self._folder, LinkKey, damaged)
        self._keys = {each.access_key: each for each in found}

    async def add(self, key: LinkKey) -> LinkKey:
        kept = await super().add(key)
        await self._save(kept)
        return kept

    async def revoke(self, access_key: str) -> bool:
        kept = self._revoked(access_key)
        if kept is not None:
            await self._save(kept)
        return kept is not None

    async def _save(self, key: LinkKey) -> None:
        # An access key may be any text, and a file name may not.
        name = hashlib.sha256(key.access_key.encode()).hexdigest()
        await self._replace(self._folder / f"{name}.json", msgspec.json.encode(key))
