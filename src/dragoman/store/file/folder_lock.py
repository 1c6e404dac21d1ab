"""The lock of a file store: its folder belongs to one process."""

from __future__ import annotations

import os
from pathlib import Path

from dragoman.core.errors import ConfigError

from ..local.private_files import FILE
from ..local.worker_locks import same_file, try_lock


class FolderLock:
    """A locked file in the folder. The operating system releases it when the process ends,
    however it ends, so no lock is ever left behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "lock"
        self._handle = -1

    def take(self) -> None:
        """Locks the folder. Raises `ConfigError` if another process has locked it."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, FILE)
        if not try_lock(handle):
            os.close(handle)
            raise ConfigError(
                f"{self._folder} is in use by another process, and a file store takes only one. "
                "Use sqlite: to share tasks between processes."
            )
        self._handle = handle

    def in_place(self) -> bool:
        """Returns whether the folder is still the one that was locked. If someone deleted or
        replaced it, what is written now would never be found."""
        return same_file(self._handle, self._path)

    def release(self) -> None:
        """Unlocks the folder, if it is locked."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
