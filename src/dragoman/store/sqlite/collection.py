"""What a SQLite file holds beside its tasks: sessions, agents, keys, reports and budgets."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from ..clock import Clock

R = TypeVar("R")


class ConnectionAccess(Protocol):
    """Does a job with a connection, in a transaction of the thread that owns it."""

    def __call__(self, job: Callable[[sqlite3.Connection], R]) -> Awaitable[R]: ...


class SqliteCollection:
    """A collection whose methods are jobs of the writer or of a reader, one each."""

    def __init__(self, write: ConnectionAccess, read: ConnectionAccess, clock: Clock) -> None:
        self._write, self._read, self._clock = write, read, clock
