"""Who we are, told to the origins the user allows and to nobody else.

Theory. A card is written by the other side, and it may name addresses anywhere. So what proves who
we are goes to the origin that the user typed (where the card lies) and to origins the user adds;
an interface elsewhere is called without credentials. An origin is scheme, host and port, so a card
fetched over TLS does not send a token over plain HTTP.

How credentials come about is the business of an `Auth`: a fixed token, a file, an OAuth flow. It is
asked when something is first sent to an origin, when what it gave has expired, and once more when
the other side refuses it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.card import Card, Requirements
from dragoman.core.errors import BadParams, ConfigError
from dragoman.security.outbound.guarded_http import safe_field

PORTS = {"http": 80, "https": 443}


class Credentials(Struct, frozen=True, kw_only=True):
    """What is sent along to prove who we are. Never shown: `repr` tells only the names."""

    headers: Mapping[str, str] = {}
    """By lower-case name; a cookie is the header `cookie`. Over gRPC they are metadata."""
    query: Mapping[str, str] = {}
    """Parameters of the URL. There are none over gRPC."""
    until: float | None = None
    """When to ask the `Auth` again (`time.time()`); None: not before they are refused."""
    secret: str = ""
    """A secret that both sides have. It is never sent: what we say is signed with it, in dialects
    that can do so, and only for `to`."""
    to: str = ""
    """The name of the agent that signed messages are for."""
    me: str = ""
    """What we are called, in dialects whose callers have a name."""

    def __repr__(self) -> str:
        return (
            f"Credentials(headers={[*self.headers]}, query={[*self.query]}, "
            f"secret={bool(self.secret)}, to={self.to!r}, me={self.me!r})"
        )


NONE = Credentials()


class Certificate(Struct, frozen=True):
    """A client certificate for mutual TLS: paths of PEM files."""

    cert: str
    key: str = ""
    """Empty: the key is in the same file."""


class Auth(Protocol):
    """Supplies credentials. Called for allowed origins only; it need not check them again."""

    async def credentials(
        self, origin: str, card: Card | None, required: Requirements, *, refused: str | None
    ) -> Credentials:
        """What to send to `origin` (`https://host:port`).

        `required` is the card's `security`: any one of these requirements will do, and each names
        schemes of `card.schemes`; empty: nothing is asked for. `card` is None while the card itself
        is being fetched. `refused` is None at first; after a 401 it is the text of
        WWW-Authenticate, perhaps empty, and what was given before is of no use any more. `NONE`
        if there is nothing to give.
        """

    def certificate(self, origin: str) -> Certificate | None:
        """The client certificate for the handshake with this origin, if there is one."""


class Fixed:
    """The same credentials always: a bearer token, or headers."""

    def __init__(self, what: str | Mapping[str, str]) -> None:
        headers = {"authorization": f"Bearer {what}"} if isinstance(what, str) else what
        self._given = Credentials(headers={k.lower(): v for k, v in headers.items()})

    async def credentials(
        self, origin: str, card: Card | None, required: Requirements, *, refused: str | None
    ) -> Credentials:
        """What was given; once refused, there is nothing better."""
        return self._given

    def certificate(self, origin: str) -> Certificate | None:
        """None."""
        return None


class SharedSecret:
    """Proves a secret that both sides have, and never sends it.

    `to` is the name of the agent, as its operator told you: messages are signed for it, and without
    a name nothing is signed. An agent that chose the name itself could show what we signed to
    another one. `me` is what we are called. `beside` supplies what else is sent along.
    """

    def __init__(
        self, secret: str, *, to: str, me: str = "dragoman", beside: Auth | None = None
    ) -> None:
        self._given = Credentials(secret=secret if to else "", to=to, me=me)
        self._beside = beside

    async def credentials(
        self, origin: str, card: Card | None, required: Requirements, *, refused: str | None
    ) -> Credentials:
        """The secret to sign with."""
        if self._beside is None or refused is not None:
            return self._given
        beside = await self._beside.credentials(origin, card, required, refused=None)
        given = self._given
        return replace(beside, secret=given.secret, to=given.to, me=given.me)

    def certificate(self, origin: str) -> Certificate | None:
        """What there is beside the secret."""
        return self._beside.certificate(origin) if self._beside is not None else None


def auth_of(given: Auth | str | Mapping[str, str] | None) -> Auth | None:
    """An `Auth` from what `connect(auth=)` takes."""
    return Fixed(given) if isinstance(given, str | Mapping) else given


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL, as origins are compared."""
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS[parts.scheme]
        host = (parts.hostname or "").lower().removesuffix(".")
    except (ValueError, KeyError):
        raise BadParams(f"This is not a web address: {url[:200]}", field="url") from None
    if not host:
        raise BadParams(f"This is not a web address: {url[:200]}", field="url")
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{port}"


class Wallet:
    """Credentials by origin, for one connection."""

    def __init__(
        self,
        auth: Auth | None,
        origins: Iterable[str],
        certificate: Certificate | None = None,
    ) -> None:
        self._auth = auth
        self._certificate = certificate
        self._allowed = frozenset(map(origin_of, origins))
        self._kept: dict[str, Credentials] = {}
        self.card: Card | None = None
        """What the agent asks for, once it is known."""

    @property
    def holds(self) -> bool:
        """Whether any origin may learn who we are."""
        return self._auth is not None

    def allows(self, origin: str) -> bool:
        """Whether this origin may learn who we are."""
        return self._auth is not None and origin in self._allowed

    def kept(self, origin: str) -> Credentials | None:
        """What is good now, without asking anyone; None: `ask`."""
        if not self.allows(origin):
            return NONE
        found = self._kept.get(origin)
        if found is None or (found.until is not None and found.until <= time.time()):
            return None
        return found

    async def ask(self, origin: str, *, refused: str | None = None) -> Credentials:
        """What the `Auth` gives for this origin, now or after a refusal."""
        if self._auth is None or origin not in self._allowed:
            return NONE
        required = self.card.security if self.card is not None else ()
        given = await self._auth.credentials(origin, self.card, required, refused=refused)
        for name, value in given.headers.items():
            if not safe_field(value):
                raise ConfigError(f"The credentials for the header {name} cannot stand in one.")
        self._kept[origin] = given
        return given

    def certificate(self, origin: str) -> Certificate | None:
        """The client certificate for this origin."""
        if origin not in self._allowed:
            return None
        given = self._auth.certificate(origin) if self._auth is not None else None
        return given or self._certificate
