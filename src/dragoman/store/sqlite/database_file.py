"""The files of a SQLite store: private to their owner, still in place, and not too large."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from dragoman.core.log import Logger

from ..local.private_files import FILE, narrow

log = Logger("store")

FOLDED = 4000
"""The number of pages (16 MB) at which SQLite folds the write-ahead log into the database."""
PAGE = 4096
LARGE = 2 * FOLDED * PAGE
"""The bytes of the write-ahead log at which we fold it ourselves. SQLite cannot fold it while a
connection reads, so under steady load the log would grow without end."""
LOOK = 0.25
"""The seconds between two checks of the write-ahead log."""
PATIENCE = 1.0
"""The seconds for which commits may be held up while readers finish, so that it can be folded."""
AGAIN = 10.0
"""The seconds until the next attempt, if the readers did not finish."""


class Missing(sqlite3.OperationalError):
    """The file was deleted or replaced, so what is written now will never be found."""


def make_private(path: Path) -> None:
    """Creates the file before SQLite does, so that only its owner can read it. If it exists,
    removes the access of other users, which an older version granted. SQLite gives the files beside
    it the same mode."""
    try:
        # An existing file must not be opened here: closing it would release the locks that other
        # connections of this process hold (a rule of POSIX locks).
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE))
        return
    except FileExistsError:
        pass
    for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        if not each.is_dir():  # SQLite itself refuses a folder
            narrow(each)


class DiskFile:
    """The database file and its write-ahead log, from the moment they were opened."""

    def __init__(self, path: Path) -> None:
        self._path, self._wal = str(path), f"{path}-wal"
        self._known = {name: _identity(_stat(name)) for name in (self._path, self._wal)}
        self._whole = True
        """Whether the write-ahead log was in place at the last check."""
        self._look_at = 0.0
        self._try_at = 0.0
        self.secrets = False
        """Whether the write-ahead log holds something that was wiped from the database."""

    def check(self) -> None:
        """Raises `Missing` if either file was deleted or replaced."""
        if not self._whole or _identity(_stat(self._path)) != self._known[self._path]:
            raise Missing(f"{self._path} was deleted or replaced while it was in use")

    def look(self, db: sqlite3.Connection, busy: float) -> None:
        """Checks the write-ahead log from time to time, and empties it if it is too large or holds
        secrets. `busy` is the usual timeout of the connection in seconds."""
        now = time.monotonic()
        if now < self._look_at and not self.secrets:
            return
        self._look_at = now + LOOK
        found = _stat(self._wal)  # only once, because the file may disappear at any moment
        self._whole = _identity(found) == self._known[self._wal]
        if now < self._try_at or not self._whole:
            return
        if self.secrets or (found is not None and found.st_size >= LARGE):
            self.secrets = not self._fold(db, busy)

    def _fold(self, db: sqlite3.Connection, busy: float) -> bool:
        blocked = 1
        try:
            db.execute(f"PRAGMA busy_timeout = {int(PATIENCE * 1000)}")
            try:
                (blocked, *_) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                db.execute(f"PRAGMA busy_timeout = {int(busy * 1000)}")
        except sqlite3.Error as error:  # if it lasts, the next write reports it
            log.warning("The write-ahead log was not folded", why=error)
        if blocked:
            self._try_at = time.monotonic() + AGAIN
        return not blocked


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _identity(found: os.stat_result | None) -> tuple[int, int] | None:
    return None if found is None else (found.st_dev, found.st_ino)
