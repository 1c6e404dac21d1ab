"""Sessions in memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from msgspec.structs import replace

from ..clock import Clock
from ..sessions import MOST, TokenSession, UsedKey


class MemorySessions:
    """Implements `SessionStore`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[bytes, TokenSession] = {}
        self._revision = 0
        self._said: dict[bytes, int] = {}

    async def keep(self, session: TokenSession) -> None:
        self._put(session)

    def _put(self, session: TokenSession) -> list[bytes]:
        """Stores a session. Returns the keys of those that were dropped."""
        known = self._open.get(session.key)
        if known is None or not known.revoked:
            self._revision += 1
            self._open[session.key] = replace(session, revision=self._revision)
        now = self._clock()
        by_end = sorted(self._open.values(), key=lambda kept: kept.until)
        many = len(by_end) - MOST
        gone = [kept.key for n, kept in enumerate(by_end) if n < many or kept.until <= now]
        for key in gone:
            del self._open[key]
        return gone

    async def find(self, agent: str, key: bytes) -> TokenSession | None:
        found = self._open.get(key)
        return found if found is not None and found.agent == agent and self._good(found) else None

    def _good(self, session: TokenSession) -> bool:
        return not session.revoked and session.until > self._clock()

    async def list_valid(self, agent: str | None, who: str | None) -> list[TokenSession]:
        found = [kept for kept in self._open.values() if self._good(kept) and _of(kept, agent, who)]
        return sorted(found, key=lambda kept: (kept.since, kept.key))

    async def news(self, after: int) -> list[TokenSession]:
        if after >= self._revision:
            return []
        found = [kept for kept in self._open.values() if kept.revision > after]
        return sorted(found, key=lambda kept: kept.revision)

    async def revoke(self, who: str, agent: str | None = None) -> int:
        return len(self._end(who, agent))

    def _end(self, who: str, agent: str | None) -> list[bytes]:
        found = [kept for kept in self._open.values() if self._good(kept) and _of(kept, agent, who)]
        for kept in found:
            self._revision += 1
            self._open[kept.key] = replace(kept, revoked=True, revision=self._revision)
        return [kept.key for kept in found]

    async def first(self, key: bytes, until: int) -> bool:
        self._forget()
        new = key not in self._said
        if new:
            self._said[key] = until
        return new

    async def seen(self, key: bytes) -> bool:
        return self._said.get(key, 0) > self._clock()

    def used_keys(self) -> list[UsedKey]:
        """Returns the keys that are remembered, oldest first."""
        return [UsedKey(key, until) for key, until in self._said.items()]

    async def restore(self, sessions: Sequence[TokenSession], used: Sequence[UsedKey]) -> None:
        """Takes these in place of all that there are. The sessions are in the order of their
        revisions."""
        self._open = {each.key: each for each in sessions}
        self._revision = sessions[-1].revision if sessions else 0
        self._said = {each.key: each.until for each in used}

    def _forget(self) -> list[bytes]:
        """Drops the keys that need not be remembered any longer, and returns them."""
        now = self._clock()
        gone = list(takewhile(lambda key: self._said[key] < now, self._said))  # the oldest first
        for key in gone:
            del self._said[key]
        return gone


def _of(session: TokenSession, agent: str | None, who: str | None) -> bool:
    return (agent is None or session.agent == agent) and (who is None or session.who == who)
