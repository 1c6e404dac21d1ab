"""Credentials, which are sent only to the origins that the user allows.

Theory. A card is written by the agent, and it may name any address. So credentials are sent to the
origin that the user typed (where the card is) and to origins that the user adds; an interface on
another origin is called without credentials. An origin is scheme, host and port, so a card that was
fetched over TLS cannot make the client send a token over plain HTTP.

An `Auth` supplies the credentials: a fixed token, a file, an OAuth flow. It is called before the
first request to an origin, when its credentials have expired, and once when the agent refuses them.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.card import Card, Requirements
from dragoman.core.errors import BadParams, ConfigError, DragomanError
from dragoman.core.peer import BearerToken
from dragoman.security.outbound.guarded_http import safe_field

PORTS = {"http": 80, "https": 443}
SHORTEST_SECRET = 6
"""The length from which a value in a header counts as a secret in the words of others."""
HIDDEN = "[hidden]"


class Credentials(Struct, frozen=True, kw_only=True):
    """The credentials for one origin. `repr` shows only the names, never the values."""

    headers: Mapping[str, str] = {}
    """Headers by lower-case name; a cookie is the header `cookie`. In gRPC they are metadata."""
    query: Mapping[str, str] = {}
    """Query parameters; gRPC has none."""
    until: float | None = None
    """The time (`time.time()`) at which they expire; None: valid until they are refused."""
    secret: str = ""
    """A shared secret. It is never sent: messages are signed with it, in dialects that support it,
    and only for `to`."""
    to: str = ""
    """The name of the agent that signed messages are for."""
    me: str = ""
    """The name of this client, in dialects whose callers have a name."""

    @property
    def secrets(self) -> list[str]:
        """Every text in them that nobody else may see, the longest first."""
        found = {self.secret, *self.headers.values(), *self.query.values()}
        for name, value in self.headers.items():
            if name == "authorization":
                scheme, _, token = value.partition(" ")
                found.add(token)
                if scheme.lower() == "basic":
                    found |= _decoded(token)
            elif name == "cookie":
                found.update(pair.partition("=")[2] for pair in value.split("; "))
        return sorted((each for each in found if len(each) >= SHORTEST_SECRET), key=len)[::-1]

    def __repr__(self) -> str:
        return (
            f"Credentials(headers={[*self.headers]}, query={[*self.query]}, "
            f"secret={bool(self.secret)}, to={self.to!r}, me={self.me!r})"
        )


NONE = Credentials()


def _decoded(token: str) -> set[str]:
    """Returns the pair in the token of HTTP Basic, and its password."""
    try:
        pair = base64.b64decode(token).decode()
    except ValueError:
        return set()
    return {pair, pair.partition(":")[2]}


def hide_secrets(error: DragomanError, secrets: Iterable[str]) -> None:
    """Removes secrets of ours from what another side has written into an error. It had them from
    our request, but those who read the error should not."""
    for secret in secrets:
        if secret in error.message:
            error.reword(error.message.replace(secret, HIDDEN))
        if any(secret in value for value in error.public.values()):
            error.public = {k: v.replace(secret, HIDDEN) for k, v in error.public.items()}
        if error.data is not None and secret in repr(error.data):
            error.data = _without(secret, error.data)


def _without(secret: str, value: object) -> object:
    match value:
        case str():
            return value.replace(secret, HIDDEN)
        case list() | tuple():
            return [_without(secret, each) for each in value]
        case dict():
            return {_without(secret, key): _without(secret, each) for key, each in value.items()}
    return value


def acting(own: Credentials, bearer: BearerToken) -> Credentials:
    """Returns our credentials with this token in place of our own."""
    headers = {**own.headers, "authorization": f"Bearer {bearer.secret}"}
    return replace(own, headers=headers, until=None)


class Certificate(Struct, frozen=True):
    """A client certificate for mutual TLS: paths of PEM files."""

    cert: str
    key: str = ""
    """The file with the private key; empty if it is in the same file."""


class Auth(Protocol):
    """Supplies credentials. It is called for allowed origins only, and need not check them."""

    async def credentials(
        self, origin: str, card: Card | None, required: Requirements, *, refused: str | None
    ) -> Credentials:
        """Returns the credentials for `origin` (`https://host:port`), or `NONE` if there are none.

        `required` is the card's `security`: one of these requirements must be met, and each names
        schemes of `card.schemes`; empty means that nothing is required. `card` is None while the
        card itself is being fetched. `refused` is None at first; after a 401 it is the value of
        WWW-Authenticate, possibly empty, and the previous credentials are no longer valid.
        """

    def certificate(self, origin: str) -> Certificate | None:
        """Returns the client certificate for this origin, if there is one."""


class Fixed:
    """Supplies fixed credentials: a bearer token, or headers."""

    def __init__(self, what: str | Mapping[str, str]) -> None:
        headers = {"authorization": f"Bearer {what}"} if isinstance(what, str) else what
        self._given = Credentials(headers={k.lower(): v for k, v in headers.items()})

    async def credentials(
        self, origin: str, card: Card | None, required: Requirements, *, refused: str | None
    ) -> Credentials:
        """Returns the fixed credentials, also after they were refused."""
        return self._given

    def certificate(self, origin: str) -> Certificate | None:
        """Returns None: fixed credentials include no certificate."""
        return None


class SharedSecret:
    """Proves the knowledge of a shared secret without sending it.

    `to` is the name of the agent, which you get from its operator: messages are signed for it, and
    without a name nothing is signed. An agent that could choose the name itself could replay our
    signed messages to another agent. `me` is the name of this client. `beside` supplies additional
    credentials.
    """

    def __init__(
        self, secret: str, *, to: str, me: str = "dragoman", beside: Auth | None = None
    ) -> None:
        self._given = Credentials(secret=secret if to else "", to=to, me=me)
        self._beside = beside

    async def credentials(
        self, origin: str, card: Card | None, required: Requirements, *, refused: str | None
    ) -> Credentials:
        """Returns the secret that signs messages, with the additional credentials."""
        if self._beside is None or refused is not None:
            return self._given
        beside = await self._beside.credentials(origin, card, required, refused=None)
        given = self._given
        return replace(beside, secret=given.secret, to=given.to, me=given.me)

    def certificate(self, origin: str) -> Certificate | None:
        """Returns the certificate of the additional credentials, if any."""
        return self._beside.certificate(origin) if self._beside is not None else None


class ExtraHeaders:
    """Adds headers to the requests that go to the origins of the credentials, which `beside`
    supplies."""

    def __init__(self, headers: Mapping[str, str], beside: Auth | None = None) -> None:
        self._headers = {name.lower(): value for name, value in headers.items()}
        self._beside = beside

    async def credentials(
        self, origin: str, card: Card | None, required: Requirements, *, refused: str | None
    ) -> Credentials:
        """Returns the other credentials, with the headers."""
        found = NONE
        if self._beside is not None:
            found = await self._beside.credentials(origin, card, required, refused=refused)
        return replace(found, headers={**found.headers, **self._headers})

    def certificate(self, origin: str) -> Certificate | None:
        """Returns the certificate of the other credentials, if any."""
        return self._beside.certificate(origin) if self._beside is not None else None


def auth_of(
    given: Auth | str | Mapping[str, str] | None, headers: Mapping[str, str] | None = None
) -> Auth | None:
    """Returns an `Auth` for the values of `connect(auth=, headers=)`."""
    found = Fixed(given) if isinstance(given, str | Mapping) else given
    return ExtraHeaders(headers, found) if headers else found


def origin_of(url: str) -> str:
    """Returns the origin of a URL: scheme, host and port."""
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
        me: str = "",
    ) -> None:
        """`me` is our name, if the credentials have none for us."""
        self.me = me
        self._auth = auth
        self._certificate = certificate
        self._allowed = frozenset(map(origin_of, origins))
        self._kept: dict[str, Credentials] = {}
        self.card: Card | None = None
        """The card with the agent's requirements, once it is known."""

    @property
    def holds(self) -> bool:
        """Returns whether any origin may receive credentials."""
        return self._auth is not None

    def allows(self, origin: str) -> bool:
        """Returns whether this origin may receive credentials."""
        return self._auth is not None and origin in self._allowed

    def kept(self, origin: str) -> Credentials | None:
        """Returns the credentials that are valid now without a call of the `Auth`; None: use
        `ask`."""
        if self._auth is None or origin not in self._allowed:
            return NONE
        found = self._kept.get(origin)
        if found is None or (found.until is not None and found.until <= time.time()):
            return None
        return found

    async def ask(self, origin: str, *, refused: str | None = None) -> Credentials:
        """Returns the credentials from the `Auth` for this origin, at first or after a refusal."""
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
        """Returns the client certificate for this origin."""
        if origin not in self._allowed:
            return None
        given = self._auth.certificate(origin) if self._auth is not None else None
        return given or self._certificate
