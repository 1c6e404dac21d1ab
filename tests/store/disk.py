"""A disk that is full, or that became read-only."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from dragoman.store.interface import Store
from dragoman.store.sqlite.store import SqliteStore


@contextmanager
def full_disk(spare: int) -> Iterator[None]:
    """No file may grow past this many bytes: writes stop in the middle, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (spare, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@asynccontextmanager
async def read_only_disk(store: Store, folder: Path) -> AsyncIterator[None]:
    """Nothing can be written to a store any more, as on a disk that was mounted anew after an
    error. The kernel does that to nobody without privileges, so SQLite refuses by itself what it
    would be refused, and files are refused as they are opened."""
    if isinstance(store, SqliteStore):
        db: sqlite3.Connection = await store._writes.ask(lambda writer, _: writer._db, None)
        db.execute("PRAGMA query_only = 1")
        try:
            yield
        finally:
            db.execute("PRAGMA query_only = 0")
        return
    real = os.open

    def refused(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR) and Path(path).is_relative_to(folder):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, flags, *rest, **more)

    with patch.object(os, "open", refused):
        yield
