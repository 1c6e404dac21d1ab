"""The keys of links on PostgreSQL. Each method is one statement."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dragoman.core.errors import Conflict

from ..clock import Clock
from ..codec import Unpacker, pack
from ..link_keys import LinkKey
from .pool import Database, DatabasePool

_SELECT = "SELECT body, revoked_at FROM dragoman.link_key "
_FIND = f"{_SELECT} WHERE access_key = $1"
_ALL = f"{_SELECT} ORDER BY added_at, access_key"
_ADD = """
INSERT INTO dragoman.link_key (access_key, added_at, revoked_at, body) VALUES ($1, $2, 0, $3)
ON CONFLICT (access_key) DO NOTHING"""
_REVOKE = """
UPDATE dragoman.link_key SET revoked_at = $1 WHERE access_key = $2 AND revoked_at = 0"""

_key_in = Unpacker(LinkKey)


class PostgresLinkKeys:
    """Implements `LinkKeyStore`."""

    def __init__(self, pool: DatabasePool, clock: Clock) -> None:
        self._pool, self._clock = pool, clock

    async def add(self, key: LinkKey) -> LinkKey:
        kept = replace(key, added_at=self._clock(), revoked_at=0)
        place = (kept.access_key, kept.added_at, pack(kept))
        if not await self._pool.write(lambda db: db.execute(_ADD, *place)):
            raise Conflict("This access key is known already.")
        return kept

    async def find(self, access_key: str) -> LinkKey | None:
        found = await self._keys(_FIND, access_key)
        return found[0] if found else None

    async def all(self) -> list[LinkKey]:
        return await self._keys(_ALL)

    async def revoke(self, access_key: str) -> bool:
        now = self._clock()
        return await self._pool.write(lambda db: db.execute(_REVOKE, now, access_key)) == 1

    async def _keys(self, sql: str, *arguments: Any) -> list[LinkKey]:

        async def job(db: Database) -> list[LinkKey]:
            found = await db.fetch(sql, *arguments)
            return [replace(_key_in(body), revoked_at=revoked_at) for body, revoked_at in found]

        return await self._pool.read(job)
