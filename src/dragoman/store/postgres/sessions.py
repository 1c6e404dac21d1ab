"""Sessions on PostgreSQL. Each method is one transaction."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..clock import Clock
from ..codec import Unpacker, pack
from ..sessions import MOST, TokenSession
from .pool import Database, DatabasePool

# Revisions must become visible in their order: a process that has seen one asks only for later
# ones.
_ONE_WRITER = "SELECT pg_advisory_xact_lock(hashtext('dragoman.session'))"
_SELECT = "SELECT body, until, revoked, revision FROM dragoman.session "
_GOOD = "NOT revoked AND until > $1"
_FIND = f"{_SELECT} WHERE {_GOOD} AND key = $2 AND agent = $3"
_NEWS = f"{_SELECT} WHERE revision > $1 ORDER BY revision"
_NAMED = f"""{_SELECT} WHERE {_GOOD}
  AND agent = coalesce($2, agent) AND who = coalesce($3, who)"""
_KEEP = """
INSERT INTO dragoman.session (key, agent, who, until, revoked, revision, body)
VALUES ($1, $2, $3, $4, false,
  (SELECT coalesce(max(revision), 0) + 1 FROM dragoman.session), $5)
ON CONFLICT (key) DO UPDATE SET until = excluded.until, revision = excluded.revision,
  body = excluded.body WHERE NOT session.revoked"""
# The latest change is kept even if its session has ended: its revision must not be used again.
_SWEEP = """
DELETE FROM dragoman.session
WHERE until <= $1 AND revision < (SELECT max(revision) FROM dragoman.session)"""
_COUNT = "SELECT count(*) FROM dragoman.session"
_SHRINK = """
DELETE FROM dragoman.session WHERE key IN (SELECT key FROM dragoman.session
  WHERE revision < (SELECT max(revision) FROM dragoman.session) ORDER BY until LIMIT $1)"""
_REVOKE = """
UPDATE dragoman.session SET revoked = true,
  revision = (SELECT max(revision) + 1 FROM dragoman.session) WHERE key = $1"""
_FORGET = "DELETE FROM dragoman.said WHERE until < $1"
_SEEN = "SELECT 1 FROM dragoman.said WHERE key = $1 AND until > $2"
_FIRST = """
INSERT INTO dragoman.said (key, until) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING"""

_session_in = Unpacker(TokenSession)


class PostgresSessions:
    """Implements `SessionStore`."""

    def __init__(self, pool: DatabasePool, clock: Clock) -> None:
        self._pool, self._clock = pool, clock

    async def keep(self, session: TokenSession) -> None:
        place = (session.key, session.agent, session.who, session.until, pack(session))

        async def job(db: Database) -> None:
            await db.execute(_ONE_WRITER)
            await db.execute(_KEEP, *place)
            await db.execute(_SWEEP, self._clock())
            many = int(await db.fetchval(_COUNT)) - MOST
            if many > 0:
                await db.execute(_SHRINK, many)

        await self._pool.write(job)

    async def find(self, agent: str, key: bytes) -> TokenSession | None:
        found = await self._all(_FIND, self._clock(), key, agent)
        return found[0] if found else None

    async def list_valid(self, agent: str | None, who: str | None) -> list[TokenSession]:
        found = await self._all(_NAMED, self._clock(), agent, who)
        return sorted(found, key=lambda kept: (kept.since, kept.key))

    async def news(self, after: int) -> list[TokenSession]:
        return await self._all(_NEWS, after)

    async def revoke(self, who: str, agent: str | None = None) -> int:

        async def job(db: Database) -> int:
            await db.execute(_ONE_WRITER)
            found = await _sessions(db, _NAMED, self._clock(), agent, who)
            for kept in found:  # one by one, because each gets a revision of its own
                await db.execute(_REVOKE, kept.key)
            return len(found)

        return await self._pool.write(job)

    async def first(self, key: bytes, until: int) -> bool:

        async def job(db: Database) -> bool:
            await db.execute(_FORGET, self._clock())
            return await db.execute(_FIRST, key, until) == 1

        return await self._pool.write(job)

    async def seen(self, key: bytes) -> bool:
        return bool(await self._pool.read(lambda db: db.fetch(_SEEN, key, self._clock())))

    async def _all(self, sql: str, *arguments: Any) -> list[TokenSession]:
        return await self._pool.read(lambda db: _sessions(db, sql, *arguments))


async def _sessions(db: Database, sql: str, *arguments: Any) -> list[TokenSession]:
    return [
        replace(_session_in(body), until=until, revoked=revoked, revision=revision)
        for body, until, revoked, revision in await db.fetch(sql, *arguments)
    ]
