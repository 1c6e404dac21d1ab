"""Authenticates IAT messages by a session token, a signature, or (at first) another credential.

Every message says who it is from, on every endpoint and in every frame, on loopback too; only
`--insecure` lets everyone in. A session token is given for `register` and `HELO`, to whoever has
the shared secret or passes one of the agent's other schemes. Tokens are kept as digests, and are
never logged, stored in tasks or passed on.

Sessions live in the agent's store, so a restart forgets none and other processes know them. What
this process has met is at hand; once a second the first frame asks the store what changed, and if
it cannot be asked nobody is let in.

`X-IAT-Signature`: hex HMAC-SHA256 of `<X-IAT-Timestamp>.<body>`, each good once.

What was used is remembered in the agent's store, as a digest: neither a restart nor another process
makes it good again.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.card import Tool
from dragoman.core.errors import Forbidden, Unauthenticated
from dragoman.core.log import Logger
from dragoman.core.peer import ANYONE, Context
from dragoman.dialects.iat.signature import SIGNATURE, TIMESTAMP, signature
from dragoman.dialects.iat.wire import Envelope, bare_token
from dragoman.settings import Iat
from dragoman.store.sessions import SessionBook, TokenSession

from .authentication import Admit, told
from .rate_limits import Meter
from .verifiers import read_secret

log = Logger("iat")

LEAST_CHARS = 16
MOST_AT_HAND = 10_000
"""The number of sessions in memory; the others are in the store."""
MOST_TOOLS = 256
"""The number of tools that one session may be granted; the latest count."""
LOOK = 1.0
"""The seconds after which the store is asked again; for so long a revoked token may still be
good."""
RENEWED = 1 / 20
"""Of its life must a session have lost before a pulse renews it: each renewal is a write."""
JOINING = frozenset(("register", "HELO", "helo", "hello"))
"""The actions that need no session: a sender introduces itself with them."""
PROVED = "iat"
"""The scheme of a caller that has the shared secret."""
HEADER = "x-iat-token"
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
        self, agent: str, book: SessionBook, seconds: float, clock: Callable[[], float]
    ) -> None:
        self._agent, self._book = agent, book
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
        kept = await self._book.find(self._agent, key) if token.startswith(MARK) else None
        if kept is None:
            self._open.pop(key, None)
            return None
        found = _session(kept)
        self._at_hand(key, found)
        return found

    async def named(self, who: str) -> list[TokenSession]:
        """Returns the sessions of an agent of this name."""
        await self.landed()
        return await self._book.named(self._agent, who)

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
        return await self._book.revoke(who, self._agent)

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
        write = asyncio.get_running_loop().create_task(self._book.keep(kept))
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
            for kept in await self._book.news(self._revision):
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
    """A stand-in for a token, the same in every process. Ours cannot be guessed from it: they are
    256 random bits."""
    said = token.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(said, digest_size=32, person=b"iat-session").digest()


def _joined(before: tuple[Tool, ...], more: tuple[Tool, ...]) -> tuple[Tool, ...]:
    kept = {tool.name: tool for tool in (*before, *more)}
    return tuple(kept.values())[-MOST_TOOLS:]


def _kept(session: IatSession, agent: str) -> TokenSession:
    caller = session.caller
    return TokenSession(
        key=session.key,
        agent=agent,
        who=session.who,
        since=int(session.since * 1000),
        until=int(session.until * 1000),
        tenant=caller.tenant,
        principal=caller.principal,
        tenants=caller.tenants,
        scopes=caller.scopes,
        schemes=caller.schemes,
        tools=session.tools,
        granted=session.granted,
    )


def _session(kept: TokenSession) -> IatSession:
    caller = Context(
        tenant=kept.tenant,
        principal=kept.principal,
        tenants=kept.tenants,
        scopes=kept.scopes,
        schemes=kept.schemes,
    )
    return IatSession(
        *(kept.who, caller, kept.until / 1000, kept.tools, kept.granted, kept.key),
        since=kept.since / 1000,
    )


class IatAuthenticator:
    """Authenticates the messages of every IAT endpoint."""

    def __init__(
        self,
        iat: Iat,
        admit: Admit,
        *,
        agent: str,
        me: str,
        book: SessionBook,
        locked: bool,
        insecure: bool,
        meter: Meter | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secret = read_secret(iat.secret, "iat.secret", LEAST_CHARS) if iat.secret else ""
        self._signatures = Signatures(self._secret, iat.window, clock, book)
        self.sessions = Sessions(agent, book, iat.session, clock)
        self._admit, self._locked, self._insecure = admit, locked, insecure
        self._meter = meter
        self._me = me
        """The name of this agent in envelopes."""

    async def who(
        self,
        said: Envelope,
        headers: Mapping[str, str],
        target: str,
        certificate: str,
        body: bytes,
        *,
        plain: bool = False,
    ) -> IatSession:
        """Returns the sender. Raises `Unauthenticated`, or `Forbidden` if `from` is somebody else.

        `plain` is for endpoints whose callers cannot introduce themselves: there the shared secret
        itself is a token.
        """
        found = await self._found(said, headers, body, plain=plain)
        if found is None and self._locked:
            admitted = self._admit(headers, target, certificate)
            caller = admitted if isinstance(admitted, Context) else await admitted
            if said.action not in JOINING and said.sender not in ("", caller.principal):
                raise Forbidden("`from` is not the agent that this credential belongs to.")
            found = IatSession(said.sender or caller.principal, caller, 0)
        if found is None and self._insecure:
            found = IatSession(said.sender, self._counted(ANYONE, headers), 0)
        if found is None:
            raise Unauthenticated()
        if said.action in JOINING and not self._insecure:
            await self._check_name(_name(said), found)
        return found

    async def _found(
        self, said: Envelope, headers: Mapping[str, str], body: bytes, *, plain: bool
    ) -> IatSession | None:
        """Returns the sender by IAT's own proofs: a signature, a session token or the secret."""
        if SIGNATURE in headers and await self._proved(said, headers, body):
            return self._named(_name(said), headers)
        for token in _tokens(said, headers):
            session = await self.sessions.find(token)
            if session is not None:
                if said.sender not in ("", session.who):
                    raise Forbidden("`from` is not the agent that this token belongs to.")
                caller = self._counted(session.caller, headers)
                return session if caller is session.caller else replace(session, caller=caller)
            known = self._secret and hmac.compare_digest(token.encode(), self._secret.encode())
            if known and (said.action in JOINING or plain):
                return self._named(_name(said), headers)
        return None

    async def _proved(self, said: Envelope, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether the sender has the shared secret, and means us: what was signed for another
        agent is not good here, so nobody who is told something can tell it on in our name."""
        try:
            if said.to != self._me:
                # Before it counts as used: it is still good where it belongs.
                raise Unauthenticated("A signed message must name this agent in `to`.")
            if said.sender == self._me:
                raise Unauthenticated("This agent sends itself no messages.")
            await self._signatures.check(headers, body)
        except Unauthenticated:
            if self._insecure:
                return False
            raise
        return True

    async def _check_name(self, who: str, found: IatSession) -> None:
        """Our name is ours, a session is of one agent, and a name is of one principal as long as it
        has a session: else whoever may register could take over the work of others."""
        if who == self._me:
            raise Forbidden("`agent_id` is this agent itself.")
        if found.until and who != found.who:
            raise Forbidden("`agent_id` is not the agent that this token belongs to.")
        whose = found.caller.tenant, found.caller.principal
        for session in await self.sessions.named(who):
            if (session.tenant, session.principal) != whose:
                raise Forbidden("`agent_id` is another agent, whose session is not over.")

    def renew(self, said: Envelope, headers: Mapping[str, str]) -> float:
        """Keeps the session of a message for as long again; until when, 0 if it has none."""
        tokens = reversed(_tokens(said, headers))  # a frame counts before its handshake
        return next(filter(None, map(self.sessions.renew, tokens)), 0.0)

    def _named(self, who: str, headers: Mapping[str, str]) -> IatSession:
        principal = f"iat:{who}" if who else "iat"
        caller = Context(principal=principal, schemes=(PROVED,))
        return IatSession(who, self._counted(caller, headers), 0)

    def _counted(self, caller: Context, headers: Mapping[str, str]) -> Context:
        if self._meter is not None:
            self._meter.take(caller)
        return told(caller, headers)


def _name(said: Envelope) -> str:
    """Returns the sender that a message names. A sender that introduces itself may name itself in
    `agent_id` alone."""
    who = said.payload.get("agent_id") if said.action in JOINING else None
    return who if isinstance(who, str) and who else said.sender


def _tokens(said: Envelope, headers: Mapping[str, str]) -> list[str]:
    """What may be a token; that of the transport counts first."""
    given = headers.get(HEADER, ""), bare_token(headers.get("authorization", "")), said.token
    return [token for token in given if token]


_MOST_DIGITS = 11


class Signatures:
    """Checks what is signed with the shared secret."""

    def __init__(
        self, secret: str, window: float, clock: Callable[[], float], book: SessionBook
    ) -> None:
        self._secret, self._window, self._clock = secret.encode(), window, clock
        self._book = book

    async def check(self, headers: Mapping[str, str], body: bytes) -> None:
        """`Unauthenticated` if it is wrong, old, or was seen before."""
        stamp, now = headers.get(TIMESTAMP, ""), self._clock()
        if not self._secret or not (
            stamp.isascii() and stamp.isdigit() and len(stamp) <= _MOST_DIGITS
        ):
            raise Unauthenticated()
        given = headers[SIGNATURE].strip().lower().encode("latin-1", "replace")
        wanted = signature(self._secret, stamp, body).encode()
        fresh = abs(now - int(stamp)) <= self._window
        if not hmac.compare_digest(given, wanted) or not fresh:
            raise Unauthenticated()
        # A stamp may lie a window ahead, and is then good for two.
        until = int((now + 2 * self._window) * 1000)
        if not await self._book.first(hashlib.sha256(wanted).digest(), until):
            raise Unauthenticated("This message was sent before.")
