"""The keys of links in a SQLite file. Each method is one job of the writer or of a reader."""

from __future__ import annotations

import sqlite3
from typing import Any

from msgspec.structs import replace

from dragoman.core.errors import Conflict

from ..codec import Unpacker, pack
from ..link_keys import LinkKey
from .collection import SqliteCollection

_SELECT = "SELECT body, revoked_at FROM link_key "
_FIND = f"{_SELECT} WHERE access_key = ?"
_ALL = f"{_SELECT} ORDER BY added_at, access_key"
_ADD = """
INSERT INTO link_key (access_key, added_at, revoked_at, body) VALUES (?, ?, 0, ?)
ON CONFLICT (access_key) DO NOTHING"""
_REVOKE = "UPDATE link_key SET revoked_at = ? WHERE access_key = ? AND revoked_at = 0"

_key_in = Unpacker(LinkKey)


class SqliteLinkKeys(SqliteCollection):
    """Implements `LinkKeyStore`."""

    async def add(self, key: LinkKey) -> LinkKey:
        kept = replace(key, added_at=self._clock(), revoked_at=0)
        place = (kept.access_key, kept.added_at, pack(kept))
        if not await self._write(lambda db: db.execute(_ADD, place).rowcount):
            raise Conflict("This access key is known already.")
        return kept

    async def find(self, access_key: str) -> LinkKey | None:
        found = await self._read(lambda db: _keys(db, _FIND, access_key))
        return found[0] if found else None

    async def all(self) -> list[LinkKey]:
        return await self._read(lambda db: _keys(db, _ALL))

    async def revoke(self, access_key: str) -> bool:
        now = self._clock()
        return await self._write(lambda db: db.execute(_REVOKE, (now, access_key)).rowcount == 1)


def _keys(db: sqlite3.Connection, sql: str, *arguments: Any) -> list[LinkKey]:
    found = db.execute(sql, arguments).fetchall()
    return [replace(_key_in(body), revoked_at=revoked_at) for body, revoked_at in found]
