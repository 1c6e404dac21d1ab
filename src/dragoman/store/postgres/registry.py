"""The registry on PostgreSQL. Each method is one transaction."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from .. import registry as rules
from ..clock import Clock
from ..codec import Unpacker, pack
from ..registry import REMEMBERED, AgentHealth, RegistryEntry, Source
from .pool import Database, DatabasePool

# Revisions must become visible in their order: a process that has seen one asks only for later
# ones.
_ONE_WRITER = "SELECT pg_advisory_xact_lock(hashtext('dragoman.registered'))"
_SELECT = "SELECT body, revision FROM dragoman.registered "
_FIND = f"{_SELECT} WHERE name = $1"
_ALL = f"{_SELECT} WHERE removed_at = 0 ORDER BY name"
_NEWS = f"{_SELECT} WHERE revision > $1 ORDER BY revision"
_EXPIRED = f"{_SELECT} WHERE until > 0 AND removed_at = 0 AND until <= $1 ORDER BY until, name"
_OWNED = """
SELECT count(*) FROM dragoman.registered WHERE owner = $1 AND source = $2 AND removed_at = 0"""
_KEEP = """
INSERT INTO dragoman.registered (name, source, owner, until, removed_at, revision, body)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (name) DO UPDATE SET source = excluded.source, owner = excluded.owner,
  until = excluded.until, removed_at = excluded.removed_at, revision = excluded.revision,
  body = excluded.body"""
_NEXT = "SELECT coalesce(max(revision), 0) + 1 FROM dragoman.registered"
# The latest change is kept, however old it is: its revision must not be used again.
_FORGET = """
DELETE FROM dragoman.registered WHERE removed_at > 0 AND removed_at <= $1
  AND revision < (SELECT max(revision) FROM dragoman.registered)"""

_entry_in = Unpacker(RegistryEntry)


class PostgresRegistry:
    """Implements `RegistryStore`."""

    def __init__(self, pool: DatabasePool, clock: Clock) -> None:
        self._pool, self._clock = pool, clock

    async def put(self, entry: RegistryEntry) -> RegistryEntry:

        async def job(db: Database) -> RegistryEntry:
            await db.execute(_ONE_WRITER)
            owned = int(await db.fetchval(_OWNED, entry.owner, entry.source.value))
            known = await _one(db, entry.name)
            return await _keep(db, rules.admitted(known, entry, owned, self._clock()))

        return await self._pool.write(job)

    async def renew(self, name: str, source: Source, owner: str, until: int) -> bool:
        return await self._change(name, source, owner, until=until, seen_at=self._clock())

    async def remove(self, name: str, source: Source, owner: str) -> bool:
        return await self._change(name, source, owner, removed_at=self._clock())

    async def _change(self, name: str, source: Source, owner: str, **fields: int) -> bool:

        async def job(db: Database) -> bool:
            await db.execute(_ONE_WRITER)
            known = await _one(db, name)
            if known is None or not rules.owns(known, source, owner):
                return False
            await _keep(db, replace(known, **fields))
            return True

        return await self._pool.write(job)

    async def note(self, name: str, health: AgentHealth, seen_at: int) -> None:

        async def job(db: Database) -> None:
            await db.execute(_ONE_WRITER)
            known = await _one(db, name)
            if known is not None and not known.removed_at:
                await _keep(db, replace(known, health=health, seen_at=max(seen_at, known.seen_at)))

        await self._pool.write(job)

    async def find(self, name: str) -> RegistryEntry | None:
        found = await self._pool.read(lambda db: _one(db, name))
        return found if found is not None and not found.removed_at else None

    async def all(self) -> list[RegistryEntry]:
        return await self._pool.read(lambda db: _entries(db, _ALL))

    async def news(self, after: int) -> list[RegistryEntry]:
        return await self._pool.read(lambda db: _entries(db, _NEWS, after))

    async def drop_expired(self, before: int) -> list[str]:

        async def job(db: Database) -> list[str]:
            await db.execute(_ONE_WRITER)
            now = self._clock()
            await db.execute(_FORGET, now - REMEMBERED)
            expired = await _entries(db, _EXPIRED, before)
            return [(await _keep(db, replace(each, removed_at=now))).name for each in expired]

        return await self._pool.write(job)


async def _one(db: Database, name: str) -> RegistryEntry | None:
    found = await _entries(db, _FIND, name)
    return found[0] if found else None


async def _entries(db: Database, sql: str, *arguments: Any) -> list[RegistryEntry]:
    found = await db.fetch(sql, *arguments)
    return [replace(_entry_in(body), revision=revision) for body, revision in found]


async def _keep(db: Database, entry: RegistryEntry) -> RegistryEntry:
    """Stores an entry as the latest change."""
    kept = replace(entry, revision=int(await db.fetchval(_NEXT)))
    place = (kept.name, kept.source.value, kept.owner, kept.until, kept.removed_at, kept.revision)
    await db.execute(_KEEP, *place, pack(kept))
    return kept
