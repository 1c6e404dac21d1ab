"""Session tokens that an agent gave out: whose they are, and until when.

The token itself is never here, only its digest. Processes keep what they know of a session at hand
and ask for `news`, so every change gets a `revision` that is higher than all before it. What was
revoked stays, marked, until its time is over: only so can others hear of it.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from dragoman.core.card import Tool

MOST = 10_000
"""Sessions of all agents in one store; those that would end first go first."""


class TokenSession(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One that was given out. Times are milliseconds since the epoch."""

    key: bytes
    """The digest of its token."""
    agent: str
    """At whose door it is good."""
    who: str
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
    """Set by the store."""


class SessionBook(Protocol):
    """The part of a store that keeps sessions."""

    async def keep(self, session: TokenSession) -> None:
        """Keeps a new session, or what became of one; a revoked one stays as it is. Drops all
        whose time is over."""

    async def find(self, agent: str, key: bytes) -> TokenSession | None:
        """The session, if it is known, not revoked, and its time is not over."""

    async def named(self, agent: str | None, who: str | None) -> list[TokenSession]:
        """All such sessions, of whomever if None, oldest first."""

    async def news(self, after: int) -> list[TokenSession]:
        """What changed behind this revision, revoked ones included, in order."""

    async def revoke(self, who: str, agent: str | None = None) -> int:
        """Ends all sessions of someone, at one door or at all; how many there were."""

    async def first(self, key: bytes, until: int) -> bool:
        """Whether this was never said before; it is remembered until then."""
