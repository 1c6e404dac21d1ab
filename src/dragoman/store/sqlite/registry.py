"""The registry in a SQLite file. Each method is one job of the writer or of a reader."""

from __future__ import annotations

import sqlite3
from typing import Any

from msgspec.structs import replace

from .. import registry as rules
from ..codec import Unpacker, pack
from ..registry import REMEMBERED, AgentHealth, RegistryEntry, Source
from .collection import SqliteCollection

_SELECT = "SELECT body, revision FROM registered "
_FIND = f"{_SELECT} WHERE name = ?"
_ALL = f"{_SELECT} WHERE removed_at = 0 ORDER BY name"
_NEWS = f"{_SELECT} WHERE revision > ? ORDER BY revision"
_EXPIRED = f"{_SELECT} WHERE until > 0 AND removed_at = 0 AND until <= ?"
_OWNED = "SELECT count(*) FROM registered WHERE owner = ? AND source = ? AND removed_at = 0"
_KEEP = """
INSERT OR REPLACE INTO registered (name, source, owner, until, removed_at, revision, body)
VALUES (?, ?, ?, ?, ?, ?, ?)"""
_NEXT = "SELECT coalesce(max(revision), 0) + 1 FROM registered"
# The latest change is kept, however old it is: its revision must not be used again.
_FORGET = """
DELETE FROM registered WHERE removed_at > 0 AND removed_at <= ?
  AND revision < (SELECT max(revision) FROM registered)"""

_entry_in = Unpacker(RegistryEntry)


class SqliteRegistry(SqliteCollection):
    """Implements `RegistryStore`."""

    async def put(self, entry: RegistryEntry) -> RegistryEntry:

        def job(db: sqlite3.Connection) -> RegistryEntry:
            (owned,) = db.execute(_OWNED, (entry.owner, entry.source)).fetchone()
            known = _one(db, entry.name)
            return _keep(db, rules.admitted(known, entry, owned, self._clock()))

        return await self._write(job)

    async def renew(self, name: str, source: Source, owner: str, until: int) -> bool:

        def job(db: sqlite3.Connection) -> bool:
            known = _one(db, name)
            if known is None or not rules.owns(known, source, owner):
                return False
            _keep(db, replace(known, until=until, seen_at=self._clock()))
            return True

        return await self._write(job)

    async def note(self, name: str, health: AgentHealth, seen_at: int) -> None:

        def job(db: sqlite3.Connection) -> None:
            known = _one(db, name)
            if known is not None and not known.removed_at:
                _keep(db, replace(known, health=health, seen_at=max(seen_at, known.seen_at)))

        await self._write(job)

    async def remove(self, name: str, source: Source, owner: str) -> bool:

        def job(db: sqlite3.Connection) -> bool:
            known = _one(db, name)
            if known is None or not rules.owns(known, source, owner):
                return False
            _keep(db, replace(known, removed_at=self._clock()))
            return True

        return await self._write(job)

    async def find(self, name: str) -> RegistryEntry | None:
        found = await self._read(lambda db: _one(db, name))
        return found if found is not None and not found.removed_at else None

    async def all(self) -> list[RegistryEntry]:
        return await self._read(lambda db: _entries(db, _ALL))

    async def news(self, after: int) -> list[RegistryEntry]:
        return await self._read(lambda db: _entries(db, _NEWS, after))

    async def drop_expired(self, before: int) -> list[str]:
        def job(db: sqlite3.Connection) -> list[str]:
            now = self._clock()
            db.execute(_FORGET, (now - REMEMBERED,))
            expired = _entries(db, _EXPIRED, before)
            return [_keep(db, replace(each, removed_at=now)).name for each in expired]

        return await self._write(job)


def _one(db: sqlite3.Connection, name: str) -> RegistryEntry | None:
    found = _entries(db, _FIND, name)
    return found[0] if found else None


def _entries(db: sqlite3.Connection, sql: str, *arguments: Any) -> list[RegistryEntry]:
    found = db.execute(sql, arguments).fetchall()
    return [replace(_entry_in(body), revision=revision) for body, revision in found]


def _keep(db: sqlite3.Connection, entry: RegistryEntry) -> RegistryEntry:
    """Stores an entry as the latest change."""
    (revision,) = db.execute(_NEXT).fetchone()
    kept = replace(entry, revision=revision)
    place = (kept.name, kept.source, kept.owner, kept.until, kept.removed_at, revision)
    db.execute(_KEEP, (*place, pack(kept)))
    return kept
