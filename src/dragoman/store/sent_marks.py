"""Marks in the store: what was sent to somebody who cannot be asked what has arrived."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from .sessions import SessionStore

OWED = 24 * 3600 * 1000
"""The milliseconds for which an answer that could not be sent is kept for its receiver."""


class SentMarks:
    """Records in the store what one owner has sent, such as the answers of an agent to phones."""

    def __init__(self, store: SessionStore, clock: Callable[[], int], *owner: str) -> None:
        self._store, self._clock, self._owner = store, clock, owner

    async def add(self, *about: object) -> bool:
        """Records a mark for longer than any unsent answer is kept. Returns whether it is new."""
        return await self._store.first(self._key(about), self._clock() + 2 * OWED)

    async def has(self, *about: object) -> bool:
        """Returns whether a mark was recorded."""
        return await self._store.seen(self._key(about))

    def _key(self, about: tuple[object, ...]) -> bytes:
        return hashlib.sha256(repr((*self._owner, *about)).encode()).digest()
