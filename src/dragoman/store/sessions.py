"""The sessions whose tokens agents have issued: for whom, and until when each is valid.

A store never holds a token, only its digest. Each process keeps the sessions that it knows in
memory and asks for `news`, so every change gets a `revision` that is higher than all earlier ones.
A revoked session is kept, marked as revoked, until it would have ended, because other processes
could not learn of the revocation otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from dragoman.core.card import Tool

MOST = 10_000
"""The maximum number of sessions in a store, for all agents. Those that would end first are dropped
first."""


class TokenSession(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session whose token was issued. Times are milliseconds since the epoch."""

    key: bytes
    """The digest of its token."""
    agent: str
    """The agent that accepts its token."""
    who: str
    """The name under which the session can be revoked."""
    since: int
    until: int
    tenant: str = ""
    principal: str = ""
    tenants: tuple[str, ...] = ("",)
    scopes: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    granted: tuple[Tool, ...] = ()
    revoked: bool = False
    revision: int = 0
    """The number of the latest change, set by the store."""


class UsedKey(Struct, frozen=True):
    """A key that is good once, such as the digest of a signature, and has been used."""

    key: bytes
    until: int
    """When it may be forgotten."""


class SessionStore(Protocol):
    """The part of a store that keeps sessions."""

    async def keep(self, session: TokenSession) -> None:
        """Stores a new session or changes a known one, unless it was revoked. Drops the sessions
        that have ended."""

    async def find(self, agent: str, key: bytes) -> TokenSession | None:
        """Returns the session, if it is known, not revoked, and has not ended."""

    async def list_valid(self, agent: str | None, who: str | None) -> list[TokenSession]:
        """Returns the valid sessions of an agent and a name, oldest first; None stands for any."""

    async def news(self, after: int) -> list[TokenSession]:
        """Returns the sessions that changed after this revision, including revoked ones, in
        order."""

    async def revoke(self, who: str, agent: str | None = None) -> int:
        """Revokes all sessions of a name, at one agent or at all of them. Returns how many there
        were."""

    async def first(self, key: bytes, until: int) -> bool:
        """Remembers a key until that time, as a guard against replays. Returns whether it is
        new."""

    async def seen(self, key: bytes) -> bool:
        """Returns whether this key is remembered."""


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
