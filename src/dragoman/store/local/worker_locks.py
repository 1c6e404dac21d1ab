"""One locked file for each worker, which tells whether its process is alive and keeps its lease.

The operating system releases a lock when a process dies, however it dies, so a dead worker is found
at once. A lease finds a worker whose process hangs. It is in the file and not in the database, so
that it can be renewed while another process holds the database up. Where there is no `flock`
(Windows), only the lease counts.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from dragoman.core.errors import StoreUnavailable

from ..clock import Clock, boot_id
from .private_files import FILE, make_folder

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]


TRIES = 100
PAUSE = 0.01


class WorkerLocks:
    """The locks of the workers, in a folder beside the database. Any thread may use it."""

    def __init__(self, folder: Path, steady: Clock) -> None:
        self._folder = folder
        self._steady = steady
        self._held: dict[str, int] = {}
        # One thread renews leases while another one drops locks. A file must not be closed while
        # the other thread writes to it.
        self._mutex = threading.Lock()

    def take(self, worker: str, lease_ms: int) -> None:
        """Locks the file of a worker until `drop` or until this process ends, and begins its
        lease."""
        with self._mutex:
            handle = self._held.get(worker)
            if handle is None:
                handle = self._held[worker] = self._locked(worker)
            self._write(handle, lease_ms)

    def beat(self, worker: str, lease_ms: int) -> bool:
        """Renews the lease. Returns False if this process does not hold the lock."""
        with self._mutex:
            handle = self._held.get(worker)
            if handle is None:
                return False
            if not same_file(handle, self._path(worker)):  # someone deleted the folder
                os.close(self._held.pop(worker))
                handle = self._held[worker] = self._locked(worker)
            self._write(handle, lease_ms)
            return True

    def drop(self, worker: str) -> None:
        """Releases and removes the lock of a worker that ends."""
        with self._mutex:
            handle = self._held.pop(worker, None)
            if handle is not None:
                with suppress(PermissionError):  # Windows does not remove an open file
                    self._path(worker).unlink(missing_ok=True)
                os.close(handle)

    def let_go(self) -> None:
        """Releases every lock, as the end of the process would. The files stay, so a worker that
        did not retire is found dead."""
        with self._mutex:
            while self._held:
                os.close(self._held.popitem()[1])

    def alive(self, worker: str) -> bool:
        """Returns whether the process of a worker is alive and its lease has not run out."""
        path = self._path(worker)
        if worker not in self._held and _free(path, remove=False):
            return False
        try:
            seen = path.read_text("ascii", "replace")
            if _in_time(seen, self._steady()):
                return True
            # We may have read the file in the middle of a write. If a second read returns the same
            # text, it was complete.
            return seen != path.read_text("ascii", "replace")
        except FileNotFoundError:
            return False

    def clean(self, alive: Iterable[str]) -> None:
        """Removes the files of all workers but these and our own."""
        keep = {self._path(worker).name for worker in (*alive, *self._held)}
        with suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                if path.suffix == ".lock" and path.name not in keep:
                    _free(path, remove=True)

    def _path(self, worker: str) -> Path:
        return self._folder / f"{quote(worker, safe='')}.lock"

    def _locked(self, worker: str) -> int:
        make_folder(self._folder)
        path = self._path(worker)
        for _ in range(TRIES):
            handle = os.open(path, os.O_RDWR | os.O_CREAT, FILE)
            # Another process that cleans up may hold the lock for a moment, or remove the file
            # between our two calls.
            if try_lock(handle) and same_file(handle, path):
                return handle
            os.close(handle)
            time.sleep(PAUSE)
        raise StoreUnavailable("The worker's lock is taken.", worker=worker)

    def _write(self, handle: int, lease_ms: int) -> None:
        beat = f"{boot_id()} {self._steady()} {lease_ms}\n".encode()
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, beat)
        os.ftruncate(handle, len(beat))


def _in_time(beat: str, now: int) -> bool:
    """Returns whether a lease is still valid. A lease that cannot be read was not written by this
    version, so only the lock decides."""
    try:
        boot, at, lease_ms = beat.split()
        since = now - int(at)
        if boot != boot_id():
            # Times of two boots cannot be compared. The lock is held, so its worker is alive, and
            # may only be unable to read the id of this boot.
            return fcntl is not None
        # A time in the future comes from another boot.
        return 0 <= since < int(lease_ms)
    except ValueError:
        return fcntl is not None


def _free(path: Path, *, remove: bool) -> bool:
    """Returns whether no process holds this lock. Without `flock` it counts as held."""
    if fcntl is None:
        return False
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        free = try_lock(handle)
        if free and remove:
            path.unlink(missing_ok=True)
        return free
    finally:
        os.close(handle)


def try_lock(handle: int) -> bool:
    """Locks an open file without waiting. Returns False if another process has locked it. On a
    system without such locks, it always succeeds."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def same_file(handle: int, path: Path) -> bool:
    """Returns whether a path still leads to this open file."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
