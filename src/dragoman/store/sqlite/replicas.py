"""The reports of replicas in a SQLite file. Each method is one job of the writer or of a reader."""

from __future__ import annotations

import sqlite3

from msgspec.structs import replace

from ..clock import Clock
from ..codec import Unpacker, pack
from ..replicas import REMEMBERED, ReplicaReport, listed
from .sessions import SessionAccess

_PUT = "INSERT OR REPLACE INTO replica (id, reported_at, body) VALUES (?, ?, ?)"
_DROP = "DELETE FROM replica WHERE reported_at <= ?"
_ALL = "SELECT reported_at, body FROM replica"

_report_in = Unpacker(ReplicaReport)


class SqliteReplicas:
    """Implements `ReplicaStore`."""

    def __init__(self, write: SessionAccess, read: SessionAccess, clock: Clock) -> None:
        self._write, self._read, self._clock = write, read, clock

    async def put(self, report: ReplicaReport) -> None:
        now = self._clock()

        def job(db: sqlite3.Connection) -> None:
            db.execute(_PUT, (report.id, now, pack(report)))
            db.execute(_DROP, (now - REMEMBERED,))

        await self._write(job)

    async def all(self) -> list[ReplicaReport]:
        now = self._clock()
        found = await self._read(lambda db: db.execute(_ALL).fetchall())
        return listed([replace(_report_in(body), silent=now - at) for at, body in found])
