"""What processes report of themselves in a SQLite file: the status of their links, and their load.
Each method is one job of the writer or of a reader."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from msgspec.structs import replace

from ..codec import Unpacker, pack
from ..link_status import REMEMBERED as LINK_REMEMBERED
from ..link_status import LinkStatus
from ..replicas import REMEMBERED, ReplicaReport, listed
from .collection import SqliteCollection

_PUT_LINK = """
INSERT OR REPLACE INTO link_status (side, agent_id, server, host, reported_at, body)
VALUES (?, ?, ?, ?, ?, ?)"""
_DROP_LINK = "DELETE FROM link_status WHERE reported_at <= ?"
_ALL_LINK = "SELECT body FROM link_status ORDER BY side, agent_id, server, host"

_status_in = Unpacker(LinkStatus)


class SqliteLinkStatus(SqliteCollection):
    """Implements `LinkStatusStore`."""

    async def put(self, statuses: Iterable[LinkStatus]) -> None:
        now = self._clock()
        kept = (replace(each, reported_at=now) for each in statuses)
        rows = [(*each.key, now, pack(each)) for each in kept]

        def job(db: sqlite3.Connection) -> None:
            db.executemany(_PUT_LINK, rows)
            db.execute(_DROP_LINK, (now - LINK_REMEMBERED,))

        await self._write(job)

    async def all(self) -> list[LinkStatus]:
        rows = await self._read(lambda db: db.execute(_ALL_LINK).fetchall())
        return [_status_in(body) for (body,) in rows]


_PUT_REPLICA = "INSERT OR REPLACE INTO replica (id, reported_at, body) VALUES (?, ?, ?)"
_DROP_REPLICA = "DELETE FROM replica WHERE reported_at <= ?"
_ALL_REPLICA = "SELECT reported_at, body FROM replica"

_report_in = Unpacker(ReplicaReport)


class SqliteReplicas(SqliteCollection):
    """Implements `ReplicaStore`."""

    async def put(self, report: ReplicaReport) -> None:
        now = self._clock()

        def job(db: sqlite3.Connection) -> None:
            db.execute(_PUT_REPLICA, (report.id, now, pack(report)))
            db.execute(_DROP_REPLICA, (now - REMEMBERED,))

        await self._write(job)

    async def all(self) -> list[ReplicaReport]:
        now = self._clock()
        found = await self._read(lambda db: db.execute(_ALL_REPLICA).fetchall())
        return listed([replace(_report_in(body), silent=now - at) for at, body in found])
