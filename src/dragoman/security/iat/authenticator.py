"""Authenticates IAT messages by a session token, a signature, or (at first) another credential.

Every message says who it is from, on every endpoint and in every frame, on loopback too; only
`--insecure` lets everyone in. A session token is given for `register` and `HELO`, to whoever has
the shared secret or passes one of the agent's other schemes.

A credential may stand in the message itself, and a signature is of the whole message. So it can be
wrong only when the message is here, and the wires read little of it from a sender that the headers
do not show (`recognizes`).
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from dragoman.core.errors import Forbidden, Unauthenticated
from dragoman.core.peer import ANYONE, Context
from dragoman.dialects.iat.signature import SIGNATURE
from dragoman.dialects.iat.wire import SESSION_HEADER, Envelope, Kind, bare_token
from dragoman.settings import Iat
from dragoman.store.sessions import SessionStore

from ..authentication import Admit, Recognizes, told
from ..rate_limits import Meter
from ..verifiers import read_secret
from .sessions import IatSession, Sessions
from .signatures import Signatures

LEAST_CHARS = 16
JOINING = frozenset(("register", "HELO", "helo", "hello"))
"""The actions that need no session: a sender introduces itself with them."""
PROVED = "iat"
"""The scheme of a caller that has the shared secret."""
UNREAD = Envelope(kind=Kind.REQUEST)
"""A message that has not come yet."""


class IatAuthenticator:
    """Authenticates the messages of every IAT endpoint."""

    def __init__(
        self,
        iat: Iat,
        admit: Admit,
        *,
        agent: str,
        me: str,
        store: SessionStore,
        recognizes: Recognizes | None,
        insecure: bool,
        meter: Meter | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`recognizes` is for the agent's other schemes, if it has any."""
        self._secret = read_secret(iat.secret, "iat.secret", LEAST_CHARS) if iat.secret else ""
        self._signatures = Signatures(self._secret, iat.window, clock, store)
        self.sessions = Sessions(agent, store, iat.session, clock)
        self._admit, self._recognizes = admit, recognizes
        self.insecure = insecure
        """Whether everybody is let in."""
        self._meter = meter
        self._me = me
        """The name of this agent in envelopes."""

    async def recognizes(self, headers: Mapping[str, str], target: str, certificate: str) -> bool:
        """Returns whether the headers alone show a sender that may send something, which is not
        counted as a call. Raises `Unauthenticated` if what they show is wrong, whatever the message
        says."""
        if SIGNATURE in headers:
            if not self.insecure:
                self._signatures.check_form(headers)
            return False
        tokens = _tokens(UNREAD, headers)
        for token in tokens:
            if self._is_secret(token) or await self.sessions.find(token) is not None:
                return True
        others = self._recognizes
        if others is not None and await others(headers, target, certificate):
            return True
        if tokens and not self.insecure:
            raise Unauthenticated()
        return False

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
        if found is None and self._recognizes is not None:
            admitted = self._admit(headers, target, certificate)
            caller = admitted if isinstance(admitted, Context) else await admitted
            if said.action not in JOINING and said.sender not in ("", caller.principal):
                raise Forbidden("`from` is not the agent that this credential belongs to.")
            found = IatSession(said.sender or caller.principal, caller, 0)
        if found is None and self.insecure:
            found = IatSession(said.sender, await self._counted(ANYONE, headers), 0)
        if found is None:
            raise Unauthenticated()
        if said.action in JOINING and not self.insecure:
            await self._check_name(_name(said), found)
        return found

    async def _found(
        self, said: Envelope, headers: Mapping[str, str], body: bytes, *, plain: bool
    ) -> IatSession | None:
        """Returns the sender by IAT's own proofs: a signature, a session token or the secret."""
        if SIGNATURE in headers and await self._proved(said, headers, body):
            return await self._named(_name(said), headers)
        for token in _tokens(said, headers):
            session = await self.sessions.find(token)
            if session is not None:
                if said.sender not in ("", session.who):
                    raise Forbidden("`from` is not the agent that this token belongs to.")
                caller = await self._counted(session.caller, headers)
                return session if caller is session.caller else replace(session, caller=caller)
            if self._is_secret(token) and (said.action in JOINING or plain):
                return await self._named(_name(said), headers)
        return None

    def _is_secret(self, token: str) -> bool:
        said, secret = token.encode("utf-8", "surrogateescape"), self._secret.encode()
        return bool(secret) and hmac.compare_digest(said, secret)

    async def _proved(self, said: Envelope, headers: Mapping[str, str], body: bytes) -> bool:
        """Returns whether the sender has the shared secret, and means us: what was signed for
        another agent is not good here, so nobody who is told something can tell it on in our
        name."""
        try:
            if said.to != self._me:
                # Before it counts as used: it is still good where it belongs.
                raise Unauthenticated("A signed message must name this agent in `to`.")
            if said.sender == self._me:
                raise Unauthenticated("This agent sends itself no messages.")
            await self._signatures.check(headers, body)
        except Unauthenticated:
            if self.insecure:
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
        for session in await self.sessions.list_valid(who):
            if (session.tenant, session.principal) != whose:
                raise Forbidden("`agent_id` is another agent, whose session is not over.")

    def renew(self, said: Envelope, headers: Mapping[str, str]) -> float:
        """Keeps the session of a message for as long again; until when, 0 if it has none."""
        tokens = reversed(_tokens(said, headers))  # a frame counts before its handshake
        return next(filter(None, map(self.sessions.renew, tokens)), 0.0)

    async def _named(self, who: str, headers: Mapping[str, str]) -> IatSession:
        principal = f"iat:{who}" if who else "iat"
        caller = Context(principal=principal, schemes=(PROVED,))
        return IatSession(who, await self._counted(caller, headers), 0)

    async def _counted(self, caller: Context, headers: Mapping[str, str]) -> Context:
        if self._meter is not None and (counted := self._meter.take(caller)) is not None:
            await counted
        return told(caller, headers)


def _name(said: Envelope) -> str:
    """Returns the sender that a message names. A sender that introduces itself may name itself in
    `agent_id` alone."""
    who = said.payload.get("agent_id") if said.action in JOINING else None
    return who if isinstance(who, str) and who else said.sender


def _tokens(said: Envelope, headers: Mapping[str, str]) -> list[str]:
    """Returns what may be a token; that of the transport counts first."""
    given = (
        headers.get(SESSION_HEADER, ""),
        bare_token(headers.get("authorization", "")),
        said.token,
    )
    return [token for token in given if token]
