"""Everything in the folder of a file store that is not a task."""

from __future__ import annotations

from pathlib import Path

from ..clock import Clock
from ..memory.collections import MemoryCollections
from .damage import Quarantine
from .link_keys import FileLinkKeys
from .link_status import FileLinkStatus
from .registry import FileRegistry
from .sessions import FileSessions, Replace


class FileCollections(MemoryCollections):
    """Collections in memory that are written to files, and read back when the store is opened."""

    def __init__(self, folder: Path, clock: Clock, put: Replace) -> None:
        super().__init__(clock)
        files = (
            FileSessions(folder / "sessions", clock, put),
            FileRegistry(folder / "registry", clock, put),
            FileLinkKeys(folder / "link_keys", clock, put),
            FileLinkStatus(folder / "link_status", clock, put),
        )
        self._files = files
        self.sessions, self.registry, self.link_keys, self.link_status = files

    def recover(self, damaged: Quarantine) -> None:
        """Reads all files."""
        for each in self._files:
            each.recover(damaged)
