"""The file of a SQLite store on its disk: for its owner alone, still there, and not too large."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from dragoman.core.log import Logger

from ..private_files import FILE, narrow

log = Logger("store")

FOLDED = 4000
"""Pages of the write-ahead log after which SQLite folds it into the file: 16 MB."""
PAGE = 4096
LARGE = 2 * FOLDED * PAGE
"""Bytes of the write-ahead log at which we fold it ourselves: readers keep SQLite from doing so."""
LOOK = 0.25
"""Seconds between two looks at it."""
PATIENCE = 1.0
"""Seconds that commits may be held up while the readers of old snapshots end,"""
AGAIN = 10.0
"""and until the next try if they did not."""


class Missing(sqlite3.OperationalError):
    """The file was deleted or replaced: what is written now, nobody will find."""


def make_private(path: Path) -> None:
    """Makes the file before SQLite does, and takes from others what an older version gave them.

    What SQLite puts beside it gets the same mode."""
    try:
        # Never opened if it is there: closing it would end the locks of other connections.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE))
        return
    except FileExistsError:
        pass
    for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        if not each.is_dir():  # which is no database, and SQLite says so
            narrow(each)


class DiskFile:
    """The database and its write-ahead log, as they were when they were opened."""

    def __init__(self, path: Path) -> None:
        self._path, self._wal = str(path), f"{path}-wal"
        self._known = {name: _identity(_stat(name)) for name in (self._path, self._wal)}
        self._whole = True
        """Whether the log was there at the last look."""
        self._look_at = 0.0
        self._try_at = 0.0
        self.secrets = False
        """Whether the log holds what must be forgotten."""

    def check(self) -> None:
        """Raises `Missing` unless both are still there."""
        if not self._whole or _identity(_stat(self._path)) != self._known[self._path]:
            raise Missing(f"{self._path} was deleted or replaced while it was in use")

    def look(self, db: sqlite3.Connection, busy: float) -> None:
        """Looks at the log now and then, and empties it if it is too large or holds secrets."""
        now = time.monotonic()
        if now < self._look_at and not self.secrets:
            return
        self._look_at = now + LOOK
        found = _stat(self._wal)  # once: the file may go at any moment
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
        except sqlite3.Error as error:  # whoever writes next will hear of it
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
