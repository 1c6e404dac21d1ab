"""Who sends an IAT message: a session token, a signature, or (to begin with) another credential.

Every message says who it is from, on every endpoint and in every frame, on loopback too; only
`--insecure` lets everyone in. A session token is given for `register` and `HELO`, to whoever has
the shared secret or passes one of the agent's other schemes. Tokens are kept as digests, and are
never logged, stored in tasks or passed on.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from ..card import Tool
from ..dialects.iat.wire import Envelope, bare_token
from ..errors import Forbidden, Unauthenticated
from ..peer import ANYONE, Context
from ..settings import Iat
from .auth import Admit, told
from .credentials import digest, read_secret
from .rates import Meter

LEAST_CHARS = 16
MOST_SESSIONS = 10_000
MOST_TOOLS = 256
"""Tools that one session may be granted; the latest count."""
JOINING = frozenset(("register", "HELO", "helo", "hello"))
"""What may be said with the secret itself, or without a name that is known yet."""
SIGNATURE, TIMESTAMP, TOKEN = "x-iat-signature", "x-iat-timestamp", "x-iat-token"


class IatSession(Struct):
    """Someone who introduced itself."""

    who: str
    caller: Context
    until: float
    tools: tuple[Tool, ...] = ()
    granted: tuple[Tool, ...] = ()
    key: bytes = b""
    """Of its token; empty for who has none."""


class Sessions:
    """The session tokens of this process, the oldest first."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds, self._clock = seconds, clock
        self._open: OrderedDict[bytes, IatSession] = OrderedDict()

    def issue(self, who: str, caller: Context, tools: tuple[Tool, ...]) -> tuple[str, float]:
        """A new token, and until when it is good."""
        now = self._clock()
        while self._open:
            first = next(iter(self._open))
            if self._open[first].until > now and len(self._open) < MOST_SESSIONS:
                break
            del self._open[first]
        token = secrets.token_urlsafe(32)
        until = now + self._seconds
        key = digest(token)
        self._open[key] = IatSession(who, caller, until, tools, key=key)
        return token, until

    def adopt(self, token: str, who: str, caller: Context) -> None:
        """A token that a host gave us: by it we know the host on the line we opened."""
        self._open[digest(token)] = IatSession(who, caller, self._clock() + self._seconds)

    def find(self, token: str) -> IatSession | None:
        """Whose token this is, if it is still good."""
        key = digest(token)
        found = self._open.get(key)
        if found is not None and found.until <= self._clock():
            del self._open[key]
            return None
        return found

    def renew(self, token: str) -> float:
        """Keeps a session for as long again; until when."""
        key = digest(token)
        found = self._open.get(key)
        if found is None:
            return 0.0
        found.until = self._clock() + self._seconds
        self._open.move_to_end(key)
        return found.until

    def grant(self, key: bytes, tools: tuple[Tool, ...]) -> None:
        """One more tool for the calls of a session."""
        found = self._open.get(key)
        if found is not None:
            kept = {tool.name: tool for tool in (*found.granted, *tools)}
            found.granted = tuple(kept.values())[-MOST_TOOLS:]

    def revoke(self, who: str) -> int:
        """Ends all sessions of an agent; how many there were."""
        gone = [key for key, session in self._open.items() if session.who == who]
        for key in gone:
            del self._open[key]
        return len(gone)


class Signatures:
    """`X-IAT-Signature`: hex HMAC-SHA256 of `<X-IAT-Timestamp>.<body>`, each good once."""

    def __init__(self, secret: str, window: float, clock: Callable[[], float]) -> None:
        self._secret, self._window, self._clock = secret.encode(), window, clock
        self._seen: OrderedDict[bytes, float] = OrderedDict()

    def check(self, headers: Mapping[str, str], body: bytes) -> None:
        """`Unauthenticated` if it is wrong, old, or was seen before."""
        stamp, now = headers.get(TIMESTAMP, ""), self._clock()
        if not self._secret or not (stamp.isascii() and stamp.isdigit() and len(stamp) < 12):
            raise Unauthenticated()
        given = headers[SIGNATURE].strip().lower().encode("latin-1", "replace")
        wanted = signature(self._secret, stamp, body).encode()
        fresh = abs(now - int(stamp)) <= self._window
        if not hmac.compare_digest(given, wanted) or not fresh:
            raise Unauthenticated()
        while self._seen and next(iter(self._seen.values())) < now:
            self._seen.popitem(last=False)
        if wanted in self._seen:
            raise Unauthenticated("This message was sent before.")
        self._seen[wanted] = now + 2 * self._window


def signature(secret: bytes, stamp: str, body: bytes) -> str:
    """How a message is signed."""
    return hmac.new(secret, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class Guard:
    """The door of every IAT endpoint."""

    def __init__(
        self,
        iat: Iat,
        admit: Admit,
        *,
        locked: bool,
        insecure: bool,
        meter: Meter | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._secret = read_secret(iat.secret, "iat.secret", LEAST_CHARS) if iat.secret else ""
        self._signatures = Signatures(self._secret, iat.window, clock)
        self.sessions = Sessions(iat.session, clock)
        self._admit, self._locked, self._insecure = admit, locked, insecure
        self._meter = meter

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
        """Who sends this, `Unauthenticated`, or `Forbidden` if `from` is somebody else.

        `plain` is for endpoints whose callers cannot introduce themselves: there the shared secret
        itself is a token.
        """
        if SIGNATURE in headers:
            self._signatures.check(headers, body)
            return self._named(said.sender, headers)
        joining = said.action in JOINING
        for token in _tokens(said, headers):
            session = self.sessions.find(token)
            if session is not None:
                if said.sender not in ("", session.who):
                    raise Forbidden("`from` is not who has this token.")
                return replace(session, caller=self._counted(session.caller, headers))
            known = self._secret and hmac.compare_digest(token.encode(), self._secret.encode())
            if known and (joining or plain):
                return self._named(said.sender, headers)
        if self._locked:
            admitted = self._admit(headers, target, certificate)
            caller = admitted if isinstance(admitted, Context) else await admitted
            if not joining and said.sender not in ("", caller.principal):
                raise Forbidden("`from` is not who has this credential.")
            return IatSession(said.sender or caller.principal, caller, 0)
        if self._insecure:
            return IatSession(said.sender, self._counted(ANYONE, headers), 0)
        raise Unauthenticated()

    def _named(self, who: str, headers: Mapping[str, str]) -> IatSession:
        principal = f"iat:{who}" if who else "iat"
        caller = Context(principal=principal, schemes=("iat",))
        return IatSession(who, self._counted(caller, headers), 0)

    def _counted(self, caller: Context, headers: Mapping[str, str]) -> Context:
        if self._meter is not None:
            self._meter.take(caller)
        return told(caller, headers)


def _tokens(said: Envelope, headers: Mapping[str, str]) -> list[str]:
    """What may be a token; that of the transport counts first."""
    given = headers.get(TOKEN, ""), bare_token(headers.get("authorization", "")), said.token
    return [token for token in given if token]
