"""The reports of replicas on PostgreSQL. Each method is one transaction."""

from __future__ import annotations

from msgspec.structs import replace

from ..clock import Clock
from ..codec import Unpacker, pack
from ..replicas import REMEMBERED, ReplicaReport, listed
from .pool import Database, DatabasePool

_PUT = """
INSERT INTO dragoman.replica (id, reported_at, body) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET reported_at = excluded.reported_at, body = excluded.body"""
# Two replicas that drop the same ones must not wait for each other.
_DROP = """
DELETE FROM dragoman.replica WHERE id IN (
  SELECT id FROM dragoman.replica WHERE reported_at <= $1 FOR UPDATE SKIP LOCKED)"""
_ALL = "SELECT reported_at, body FROM dragoman.replica"

_report_in = Unpacker(ReplicaReport)


class PostgresReplicas:
    """Implements `ReplicaStore`."""

    def __init__(self, pool: DatabasePool, clock: Clock) -> None:
        self._pool, self._clock = pool, clock

    async def put(self, report: ReplicaReport) -> None:
        now = self._clock()

        async def job(db: Database) -> None:
            await db.execute(_PUT, report.id, now, pack(report))
            await db.execute(_DROP, now - REMEMBERED)

        # A second time changes nothing, so it needs no transaction.
        await self._pool.read(job)

    async def all(self) -> list[ReplicaReport]:
        now = self._clock()
        found = await self._pool.read(lambda db: db.fetch(_ALL))
        return listed([replace(_report_in(body), silent=now - at) for at, body in found])
