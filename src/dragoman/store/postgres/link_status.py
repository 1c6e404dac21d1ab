"""The status of links on PostgreSQL. Each method is one transaction."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ..clock import Clock
from ..codec import Unpacker, pack
from ..link_status import REMEMBERED, LinkStatus
from .pool import Database, DatabasePool

_PUT = """
INSERT INTO dragoman.link_status (side, agent_id, server, host, reported_at, body)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (side, agent_id, server, host)
DO UPDATE SET reported_at = excluded.reported_at, body = excluded.body"""
_DROP = "DELETE FROM dragoman.link_status WHERE reported_at <= $1"
_ALL = "SELECT body FROM dragoman.link_status ORDER BY side, agent_id, server, host"

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
                await db.execute(_PUT, *each.key, now, pack(each))
            await db.execute(_DROP, now - REMEMBERED)

        await self._pool.write(job)

    async def all(self) -> list[LinkStatus]:
        rows = await self._pool.read(lambda db: db.fetch(_ALL))
        return [_status_in(body) for (body,) in rows]
