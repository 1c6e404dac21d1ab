"""One locked file per worker, so that others know at once when its process is gone.

The operating system lets go of a lock when a process dies, however it dies. Where there is no
`flock` (Windows) nothing is known this way and only the lease counts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from ..errors import StoreUnavailable

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]


TRIES = 100
PAUSE = 0.01


class Locks:
    """The locks this store holds, in a folder beside the database."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def take(self, worker: str) -> None:
        """Holds a worker's lock until `drop`, or until this process ends."""
        if fcntl is None or worker in self._held:
            return
        self._folder.mkdir(exist_ok=True)
        path = self._path(worker)
        for _ in range(TRIES):
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            # Someone cleaning up may hold the file for a moment, or remove it between our calls.
            if _locked(handle) and _is(handle, path):
                self._held[worker] = handle
                return
            os.close(handle)
            time.sleep(PAUSE)
        raise StoreUnavailable("The worker's lock is taken.", worker=worker)

    def drop(self, worker: str) -> None:
        """A worker ends."""
        handle = self._held.pop(worker, None)
        if handle is not None:
            self._path(worker).unlink(missing_ok=True)
            os.close(handle)

    def let_go(self) -> None:
        """Lets go of every lock, as the end of the process would. The files stay: a worker that
        did not retire is thereby known to be gone."""
        while self._held:
            os.close(self._held.popitem()[1])

    def dead(self, worker: str) -> bool:
        """Whether the worker's process is certainly gone."""
        return worker not in self._held and self._free(self._path(worker), remove=False)

    def clean(self, alive: Iterable[str]) -> None:
        """Removes what workers left that nobody knows any more."""
        keep = {self._path(worker).name for worker in (*alive, *self._held)}
        with suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                if path.suffix == ".lock" and path.name not in keep:
                    self._free(path, remove=True)

    def _path(self, worker: str) -> Path:
        return self._folder / f"{quote(worker, safe='')}.lock"

    def _free(self, path: Path, *, remove: bool) -> bool:
        if fcntl is None:
            return False
        try:
            handle = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            free = _locked(handle)
            if free and remove:
                path.unlink(missing_ok=True)
            return free
        finally:
            os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
