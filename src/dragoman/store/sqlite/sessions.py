"""Sessions in a SQLite file. Each method is one job of the writer or of a reader."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from ..codec import Unpacker, pack
from ..sessions import MOST, TokenSession
from .collection import SqliteCollection

R = TypeVar("R")
Job = Callable[[sqlite3.Connection], R]

_SELECT = "SELECT body, until, revoked, revision FROM session "
_GOOD = "revoked = 0 AND until > ?"
_FIND = f"{_SELECT} WHERE key = ? AND agent = ? AND {_GOOD}"
_NEWS = f"{_SELECT} WHERE revision > ? ORDER BY revision"
_KEEP = """
INSERT INTO session (key, agent, who, until, revoked, revision, body)
VALUES (?, ?, ?, ?, 0, (SELECT coalesce(max(revision), 0) + 1 FROM session), ?)
ON CONFLICT (key) DO UPDATE SET until = excluded.until, revision = excluded.revision,
  body = excluded.body WHERE revoked = 0"""
# The latest change is kept even if its session has ended: its revision must not be used again.
_SWEEP = "DELETE FROM session WHERE until <= ? AND revision < (SELECT max(revision) FROM session)"
_COUNT = "SELECT count(*) FROM session"
_SHRINK = """
DELETE FROM session WHERE key IN (SELECT key FROM session
  WHERE revision < (SELECT max(revision) FROM session) ORDER BY until LIMIT ?)"""
_REVOKE = """
UPDATE session SET revoked = 1, revision = (SELECT max(revision) + 1 FROM session) WHERE key = ?"""
_FORGET = "DELETE FROM said WHERE until < ?"
_SEEN = "SELECT 1 FROM said WHERE key = ? AND until > ?"
_FIRST = "INSERT INTO said (key, until) VALUES (?, ?) ON CONFLICT (key) DO NOTHING"

_session_in = Unpacker(TokenSession)


class SqliteSessions(SqliteCollection):
    """Implements `SessionStore`."""

    async def keep(self, session: TokenSession) -> None:
        place = (session.key, session.agent, session.who, session.until, pack(session))

        def job(db: sqlite3.Connection) -> None:
            db.execute(_KEEP, place)
            db.execute(_SWEEP, (self._clock(),))
            many = int(db.execute(_COUNT).fetchone()[0]) - MOST
            if many > 0:
                db.execute(_SHRINK, (many,))

        await self._write(job)

    async def find(self, agent: str, key: bytes) -> TokenSession | None:
        found = await self._read(lambda db: _all(db, _FIND, key, agent, self._clock()))
        return found[0] if found else None

    async def list_valid(self, agent: str | None, who: str | None) -> list[TokenSession]:
        found = await self._read(lambda db: self._named(db, agent, who))
        return sorted(found, key=lambda kept: (kept.since, kept.key))

    def _named(
        self, db: sqlite3.Connection, agent: str | None, who: str | None
    ) -> list[TokenSession]:
        wanted = {"agent = ?": agent, "who = ?": who}
        tests = [_GOOD, *(test for test, value in wanted.items() if value is not None)]
        values = [value for value in wanted.values() if value is not None]
        # The text of the query comes from this file alone; the values are bound.
        return _all(db, f"{_SELECT} WHERE {' AND '.join(tests)}", self._clock(), *values)

    async def news(self, after: int) -> list[TokenSession]:
        return await self._read(lambda db: _all(db, _NEWS, after))

    async def revoke(self, who: str, agent: str | None = None) -> int:

        def job(db: sqlite3.Connection) -> int:
            found = self._named(db, agent, who)
            for kept in found:  # one by one, because each gets a revision of its own
                db.execute(_REVOKE, (kept.key,))
            return len(found)

        return await self._write(job)

    async def first(self, key: bytes, until: int) -> bool:

        def job(db: sqlite3.Connection) -> bool:
            db.execute(_FORGET, (self._clock(),))
            return db.execute(_FIRST, (key, until)).rowcount == 1

        return await self._write(job)

    async def seen(self, key: bytes) -> bool:
        found = (key, self._clock())
        return await self._read(lambda db: db.execute(_SEEN, found).fetchone() is not None)


def _all(db: sqlite3.Connection, sql: str, *arguments: Any) -> list[TokenSession]:
    found = db.execute(sql, arguments).fetchall()
    return [
        replace(_session_in(body), until=until, revoked=bool(revoked), revision=revision)
        for body, until, revoked, revision in found
    ]
