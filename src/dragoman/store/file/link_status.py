"""The status of links of a file store: one small JSON file for each, replaced as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ..clock import Clock
from ..link_status import LinkStatus
from ..memory.link_status import Key, MemoryLinkStatus
from .damage import Quarantine
from .json_files import read_all
from .sessions import Replace


class FileLinkStatus(MemoryLinkStatus):
    """Statuses in memory that are written to files, and read back when the store is opened."""

    def __init__(self, folder: Path, clock: Clock, put: Replace) -> None:
        super().__init__(clock)
        self._folder, self._replace = folder, put

    def recover(self, damaged: Quarantine) -> None:
        """Reads all files."""
        found = read_all(self._folder, LinkStatus, damaged)
        self._statuses = {each.key: each for each in found}

    async def put(self, statuses: Iterable[LinkStatus]) -> None:
        kept, old = self._kept(statuses)
        for each in kept:
            await self._replace(self._file(each.key), msgspec.json.encode(each))
        for key in old:
            await self._replace(self._file(key), b"")

    def _file(self, key: Key) -> Path:
        # An address may be any text, and a file name may not.
        return self._folder / f"{hashlib.sha256(repr(key).encode()).hexdigest()}.json"
