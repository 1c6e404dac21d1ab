"""The sessions of agents that introduced themselves, each found by its token.

Sessions live in the agent's store, so a restart forgets none and other processes know them. What
this process has met is at hand; once a second the first frame asks the store what changed, and if
it cannot be asked nobody is let in. Tokens are kept as digests, and are never logged, stored in
tasks or passed on.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct

from dragoman.core.card import Tool
from dragoman.core.log import Logger
from dragoman.core.peer import Context, identity_of
from dragoman.store.sessions import SessionStore, TokenSession

log = Logger("iat")

MOST_AT_HAND = 10_000
"""The number of sessions in memory; the others are in the store."""
MOST_TOOLS = 256
"""The number of tools that one session may be granted; the latest count."""
LOOK = 1.0
"""The seconds after which the store is asked again; for so long a revoked token may still be
good."""
RENEWED = 1 / 20
"""Of its life must a session have lost before a pulse renews it: each renewal is a write."""
MARK = "iat_"
"""The prefix of our tokens. Other tokens need not be looked for in the store."""


class IatSession(Struct):
    """The session of an agent that introduced itself."""

    who: str
    caller: Context
    until: float
    tools: tuple[Tool, ...] = ()
    granted: tuple[Tool, ...] = ()
    key: bytes = b""
    """The digest of its token; empty if it has no token of ours."""
    since: float = 0.0


class Sessions:
    """The session tokens of an agent; those met last are at hand."""

    def __init__(
        self, agent: str, store: SessionStore, seconds: float, clock: Callable[[], float]
    ) -> None:
        self._agent, self._store = agent, store
        self._seconds, self._clock = seconds, clock
        self._open: OrderedDict[bytes, IatSession] = OrderedDict()
        self._revision = 0
        self._looked = 0.0
        self._looking = asyncio.Lock()
        self._writes: set[asyncio.Task[None]] = set()

    def issue(self, who: str, caller: Context, tools: tuple[Tool, ...]) -> tuple[str, float]:
        """Returns a new token, and the time until which it is good. Other processes know it after
        `landed`."""
        now = self._clock()
        token = MARK + secrets.token_urlsafe(32)
        session = IatSession(who, caller, now + self._seconds, tools, key=_key(token), since=now)
        self._at_hand(session.key, session)
        self._keep(session)
        return token, session.until

    def adopt(self, token: str, who: str, caller: Context) -> None:
        """A token that a host gave us: by it we know the host on the line we opened."""
        self._at_hand(_key(token), IatSession(who, caller, self._clock() + self._seconds))

    async def find(self, token: str) -> IatSession | None:
        """Returns the session of a token, if it is still good."""
        key, now = _key(token), self._clock()
        if abs(now - self._looked) >= LOOK:
            await self._look()
        found = self._open.get(key)
        if found is not None and found.until > now:
            return found
        # One that is over here may have been renewed elsewhere.
        kept = await self._store.find(self._agent, key) if token.startswith(MARK) else None
        if kept is None:
            self._open.pop(key, None)
            return None
        found = _session(kept)
        self._at_hand(key, found)
        return found

    async def list_valid(self, who: str) -> list[TokenSession]:
        """Returns the sessions of an agent of this name."""
        await self.landed()
        return await self._store.list_valid(self._agent, who)

    def renew(self, token: str) -> float:
        """Renews a session, and returns the time until which it is good, or 0 if there is none."""
        found, now = self._open.get(_key(token)), self._clock()
        if found is None or found.until <= now:
            return 0.0
        if now + self._seconds - found.until >= self._seconds * RENEWED:
            found.until = now + self._seconds
            self._keep(found)
        return found.until

    def grant(self, key: bytes, tools: tuple[Tool, ...]) -> None:
        """Grants one more tool to the calls of a session."""
        found = self._open.get(key)
        if found is not None:
            found.granted = _joined(found.granted, tools)
            self._keep(found)

    async def revoke(self, who: str) -> int:
        """Ends all sessions of an agent, and returns how many there were."""
        await self.landed()
        for key in [key for key, session in self._open.items() if session.who == who]:
            del self._open[key]
        return await self._store.revoke(who, self._agent)

    async def landed(self) -> None:
        """Returns when the store has all that was issued, renewed and granted here."""
        if self._writes:
            await asyncio.gather(*self._writes)

    def _at_hand(self, key: bytes, session: IatSession) -> None:
        self._open[key] = session
        self._open.move_to_end(key)
        if len(self._open) > MOST_AT_HAND:
            self._open.popitem(last=False)

    def _keep(self, session: IatSession) -> None:
        if not session.key:  # a host's token: the host keeps it
            return
        kept = _kept(session, self._agent)
        write = asyncio.get_running_loop().create_task(self._store.keep(kept))
        self._writes.add(write)
        write.add_done_callback(self._written)

    def _written(self, write: asyncio.Task[None]) -> None:
        self._writes.discard(write)
        if not write.cancelled() and (error := write.exception()) is not None:
            log.warning("A session could not be stored", why=error)

    async def _look(self) -> None:
        """Reads what other processes changed. Messages that come meanwhile wait for it too."""
        async with self._looking:
            now = self._clock()
            if abs(now - self._looked) < LOOK:
                return
            for kept in await self._store.news(self._revision):
                self._revision = kept.revision
                found = self._open.get(kept.key)
                if found is None:
                    continue
                if kept.revoked:
                    del self._open[kept.key]
                    continue
                # Changes of ours may still be on their way, so nothing is taken back.
                found.until = max(found.until, kept.until / 1000)
                found.granted = _joined(kept.granted, found.granted)
            self._looked = now


def _key(token: str) -> bytes:
    """Returns a stand-in for a token, the same in every process. Ours cannot be guessed from it:
    they are 256 random bits."""
    said = token.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(said, digest_size=32, person=b"iat-session").digest()


def _joined(before: tuple[Tool, ...], more: tuple[Tool, ...]) -> tuple[Tool, ...]:
    kept = {tool.name: tool for tool in (*before, *more)}
    return tuple(kept.values())[-MOST_TOOLS:]


def _kept(session: IatSession, agent: str) -> TokenSession:
    return TokenSession(
        key=session.key,
        agent=agent,
        who=session.who,
        since=int(session.since * 1000),
        until=int(session.until * 1000),
        tools=session.tools,
        granted=session.granted,
        **identity_of(session.caller),
    )


def _session(kept: TokenSession) -> IatSession:
    caller = Context(**identity_of(kept))
    return IatSession(
        *(kept.who, caller, kept.until / 1000, kept.tools, kept.granted, kept.key),
        since=kept.since / 1000,
    )
