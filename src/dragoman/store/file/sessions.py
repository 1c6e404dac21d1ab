"""Sessions of a file store: one small JSON file for each, replaced as a whole.

Only one process uses the folder, so the sessions in its memory are the valid ones. The files are
for the next process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from ..clock import Clock
from ..memory.sessions import MemorySessions
from ..sessions import TokenSession, UsedKey
from .damage import Quarantine
from .writer import clean_folder

_decode = msgspec.json.Decoder(TokenSession).decode

Replace = Callable[[Path, bytes], Awaitable[None]]
"""Replaces a file as a whole, or removes it if there is no data. Returns when that is on the
disk."""


class FileSessions(MemorySessions):
    """Sessions in memory that are written to files, and read back when the store is opened."""

    def __init__(self, folder: Path, clock: Clock, put: Replace) -> None:
        super().__init__(clock)
        self._folder, self._replace = folder, put

    def recover(self, damaged: Quarantine) -> None:
        """Reads all files. Sessions that have ended in the meantime are dropped with the next
        change."""
        clean_folder(self._folder)
        said: dict[bytes, int] = {}
        sessions: list[TokenSession] = []
        for path in sorted(self._folder.iterdir()):
            try:
                if path.suffix == ".said":
                    said[bytes.fromhex(path.stem)] = int(path.read_text())
                elif path.suffix == ".json":
                    sessions.append(_decode(path.read_bytes()))
            except ValueError as error:  # not a number, not JSON, or not UTF-8
                damaged.put(path, error)
        sessions.sort(key=lambda each: each.revision)
        self._open = {each.key: each for each in sessions}
        self._revision = max((each.revision for each in sessions), default=0)
        self._said = dict(sorted(said.items(), key=lambda one: one[1]))

    async def restore(self, sessions: Sequence[TokenSession], used: Sequence[UsedKey]) -> None:
        before = {*self._open, *self._said}
        await super().restore(sessions, used)
        for each in used:
            await self._replace(self._folder / f"{each.key.hex()}.said", str(each.until).encode())
        for key in before - {*self._said}:
            await self._replace(self._folder / f"{key.hex()}.said", b"")
        await self._save(*before, *self._open)

    async def keep(self, session: TokenSession) -> None:
        gone = self._put(session)
        await self._save(session.key, *gone)

    async def revoke(self, who: str, agent: str | None = None) -> int:
        ended = self._end(who, agent)
        await self._save(*ended)
        return len(ended)

    async def first(self, key: bytes, until: int) -> bool:
        for old in self._forget():
            await self._replace(self._folder / f"{old.hex()}.said", b"")
        new = await super().first(key, until)
        if new:
            await self._replace(self._folder / f"{key.hex()}.said", str(until).encode())
        return new

    async def _save(self, *keys: bytes) -> None:
        for key in keys:
            kept = self._open.get(key)
            data = msgspec.json.encode(kept) if kept is not None else b""
            await self._replace(self._folder / f"{key.hex()}.json", data)
