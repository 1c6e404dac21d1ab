"""The status of links in a SQLite file. Each method is one job of the writer or of a reader."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from msgspec.structs import replace

from ..clock import Clock
from ..codec import Unpacker, pack
from ..link_status import REMEMBERED, LinkStatus
from .sessions import SessionAccess

_PUT = """
INSERT OR REPLACE INTO link_status (side, agent_id, server, host, reported_at, body)
VALUES (?, ?, ?, ?, ?, ?)"""
_DROP = "DELETE FROM link_status WHERE reported_at <= ?"
_ALL = "SELECT body FROM link_status ORDER BY side, agent_id, server, host"

_status_in = Unpacker(LinkStatus)


class SqliteLinkStatus:
    """Implements `LinkStatusStore`."""

    def __init__(self, write: SessionAccess, read: SessionAccess, clock: Clock) -> None:
        self._write, self._read, self._clock = write, read, clock

    async def put(self, statuses: Iterable[LinkStatus]) -> None:
        now = self._clock()
        kept = (replace(each, reported_at=now) for each in statuses)
        rows = [(*each.key, now, pack(each)) for each in kept]

        def job(db: sqlite3.Connection) -> None:
            db.executemany(_PUT, rows)
            db.execute(_DROP, (now - REMEMBERED,))

        await self._write(job)

    async def all(self) -> list[LinkStatus]:
        rows = await self._read(lambda db: db.execute(_ALL).fetchall())
        return [_status_in(body) for (body,) in rows]
