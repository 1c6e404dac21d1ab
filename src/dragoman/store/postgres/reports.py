"""What processes report of themselves on PostgreSQL: the status of their links, and their load.
Each method is one transaction."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ..clock import Clock
from ..codec import Unpacker, pack
from ..link_status import REMEMBERED as LINK_REMEMBERED
from ..link_status import LinkStatus
from ..replicas import REMEMBERED, ReplicaReport, listed
from .pool import Database, DatabasePool

_PUT_LINK = """
INSERT INTO dragoman.link_status (side, agent_id, server, host, reported_at, body)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (side, agent_id, server, host)
DO UPDATE SET reported_at = excluded.reported_at, body = excluded.body"""
_DROP_LINK = "DELETE FROM dragoman.link_status WHERE reported_at <= $1"
_ALL_LINK = "SELECT body FROM dragoman.link_status ORDER BY side, agent_id, server, host"

_status_in = Unpacker(LinkStatus)


class PostgresLinkStatus:
    """Implements `LinkStatusStore`."""

    def __init__(self, pool: DatabasePool, clock: Clock) -> None:
        self._pool, self._clock = pool, clock

    async def put(self, statuses: Iterable[LinkStatus]) -> None:
        now = self._clock()
        # In one order, so that two processes cannot wait for each other.
        kept = sorted((replace(each, reported_at=now) for each in statuses), key=lambda it: it.key)

        async def job(db: Database) -> None:
            for each in kept:
                await db.execute(_PUT_LINK, *each.key, now, pack(each))
            await db.execute(_DROP_LINK, now - LINK_REMEMBERED)

        await self._pool.write(job)

    async def all(self) -> list[LinkStatus]:
        rows = await self._pool.read(lambda db: db.fetch(_ALL_LINK))
        return [_status_in(body) for (body,) in rows]


_PUT_REPLICA = """
INSERT INTO dragoman.replica (id, reported_at, body) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET reported_at = excluded.reported_at, body = excluded.body"""
# Two replicas that drop the same ones must not wait for each other.
_DROP_REPLICA = """
DELETE FROM dragoman.replica WHERE id IN (
  SELECT id FROM dragoman.replica WHERE reported_at <= $1 FOR UPDATE SKIP LOCKED)"""
_ALL_REPLICA = "SELECT reported_at, body FROM dragoman.replica"

_report_in = Unpacker(ReplicaReport)


class PostgresReplicas:
    """Implements `ReplicaStore`."""

    def __init__(self, pool: DatabasePool, clock: Clock) -> None:
        self._pool, self._clock = pool, clock

    async def put(self, report: ReplicaReport) -> None:
        now = self._clock()

        async def job(db: Database) -> None:
            await db.execute(_PUT_REPLICA, report.id, now, pack(report))
            await db.execute(_DROP_REPLICA, now - REMEMBERED)

        # A second time changes nothing, so it needs no transaction.
        await self._pool.read(job)

    async def all(self) -> list[ReplicaReport]:
        now = self._clock()
        found = await self._pool.read(lambda db: db.fetch(_ALL_REPLICA))
        return listed([replace(_report_in(body), silent=now - at) for at, body in found])
