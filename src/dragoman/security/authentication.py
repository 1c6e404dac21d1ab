"""Authenticates every request before its body is read."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import reduce

import msgspec
from msgspec.structs import replace

from dragoman.agent.remote_calls import MOST_HOPS
from dragoman.core.auth_schemes import ApiKeys, Certificates, Jwt, Passwords, Scheme, Tokens
from dragoman.core.card import Card, Requirement, takes_scopes
from dragoman.core.errors import (
    BadParams,
    ConfigError,
    DragomanError,
    Forbidden,
    Unauthenticated,
)
from dragoman.core.ids import check_id
from dragoman.core.peer import ANYONE, DEADLINE, HOPS, Context
from dragoman.net.http.asgi import Header

from .jwks import Fetch, KeysNeeded
from .rate_limits import Meter
from .verifiers import CertificateVerifier, KeyVerifier, PasswordVerifier, TokenVerifier, Verifier

Admit = Callable[[Mapping[str, str], str, str], Context | Awaitable[Context]]
"""`admit(headers, target, certificate)`: the caller's context, or `Unauthenticated`.

`target` is method, path and query ("POST /?key=x"); `certificate` the name in the client's verified
certificate, or nothing. An awaitable comes back only when an issuer's keys must be fetched first.
"""
Recognizes = Callable[[Mapping[str, str], str, str], Awaitable[bool]]
"""`recognizes(headers, target, certificate)`: whether they show a caller, without counting a
call."""
MOST_FETCHES = 3
"""The number of key sets that are fetched for one request."""

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_TELLING = frozenset(
    (
        *("last-event-id", "idempotency-key", "traceparent", "a2a-extensions", "x-a2a-extensions"),
        *(HOPS, DEADLINE),
    )
)
_FEW_DIGITS = re.compile(r"[0-9]{1,4}").fullmatch
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?").fullmatch
MOST_CURSOR_DIGITS = 18
"""Cursors are 64-bit numbers; int() of a longer string would also be a cheap way to burn CPU."""


def anyone(headers: Mapping[str, str], target: str, certificate: str) -> Context:
    """Without authentication everybody is `anonymous` of tenant ``; the headers still count.

    Raises `BadParams` for a cursor or key that cannot be one.
    """
    return told(ANYONE, headers)


def told(caller: Context, headers: Mapping[str, str]) -> Context:
    """Returns the caller's context with what the other headers say."""
    if _TELLING.isdisjoint(headers):
        return caller
    return replace(
        caller,
        extensions=extensions_in(headers),
        cursor=cursor_in(headers.get("last-event-id")),
        idempotency_key=key_in(headers.get("idempotency-key", "")),
        trace=trace_in(headers.get("traceparent", "")),
        hops=_hops_in(headers.get(HOPS, "")),
        deadline=deadline_in(headers.get(DEADLINE, "")),
    )


def extensions_in(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the extensions that the caller activates, under either name of the header, in order,
    once each."""
    listed = f"{headers.get('a2a-extensions', '')},{headers.get('x-a2a-extensions', '')}"
    return tuple(dict.fromkeys(filter(None, map(str.strip, listed.split(",")))))


def cursor_in(value: str | None) -> int | None:
    """Returns the seq of the last event that the caller has, if it says so."""
    if value is None:
        return None
    value = value.strip()
    if not (value.isascii() and value.isdigit() and len(value) <= MOST_CURSOR_DIGITS):
        raise BadParams("Last-Event-ID must be the id of an event of this stream.")
    return int(value)


def trace_in(value: str) -> str:
    """Returns the W3C traceparent if it is valid; an invalid one counts as none (W3C §3.2.2)."""
    return value if _TRACEPARENT.fullmatch(value) else ""


def _hops_in(value: str) -> int:
    """Returns how many agents have called each other before. Too many of them are a loop, which
    ends here."""
    hops = int(value) if _FEW_DIGITS(value) else 0
    if hops > MOST_HOPS:
        raise BadParams(f"More than {MOST_HOPS} agents call each other in a row", field=HOPS)
    return hops


def deadline_in(value: str) -> float | None:
    """Returns the seconds of work after which nobody wants the result. What is not a number counts
    as none."""
    return float(value) if _SECONDS(value) else None


def key_in(value: str) -> str:
    """Returns the idempotency key. Raises `BadParams` if it cannot be one."""
    check_id(value, "Idempotency-Key")
    return value


def in_tenant(caller: Context, tenant: str) -> Context:
    """Returns the caller in the tenant it names: one it belongs to, else `Forbidden` (DESIGN §5.7).

    Whether such a tenant exists makes no difference to the answer.
    """
    if not tenant or tenant == caller.tenant:
        return caller
    if tenant not in caller.tenants:
        raise Forbidden("This caller has no such tenant.", tenant=tenant)
    return replace(caller, tenant=tenant)


class Authenticator:
    """All schemes together: any one of them lets a caller in, as the card says.

    A client certificate is asked for in the handshake, so where there is such a scheme it goes
    along with each of the others.
    """

    def __init__(
        self,
        schemes: Mapping[str, Scheme],
        realm: str,
        *,
        meter: Meter | None = None,
        fetch: Fetch | None = None,
        scopes: tuple[str, ...] = (),
        keeps_tokens: bool = False,
    ) -> None:
        """With `keeps_tokens`, a caller's context has the issuer's token that it showed."""
        self.schemes = dict(schemes)
        realm = re.sub(r"[^ !#-\[\]-~]", "", realm) or "agent"
        self._verifiers = {
            name: _verifier(name, scheme, realm, fetch, keeps_tokens)
            for name, scheme in schemes.items()
        }
        gates = [name for name, each in schemes.items() if isinstance(each, Certificates)]
        others = [name for name in schemes if name not in gates]
        self._ways = [(name, *gates) for name in others] or [(name,) for name in gates]
        self._meter = meter
        declared = {name: each.declared() for name, each in schemes.items()}
        self.security: tuple[Requirement, ...] = tuple(
            {name: scopes if takes_scopes(declared[name]) else () for name in way}
            for way in self._ways
        )
        """Returns the requirements for the card."""
        said = [each.challenge for each in self._verifiers.values() if each.challenge]
        # A 401 must say how to come in (RFC 9110 §15.5.2). HTTP has no word for certificates, and
        # where there are no schemes at all the tokens of IAT are asked for.
        said = said or [f'{"MutualTLS" if gates else "Bearer"} realm="{realm}"']
        self.challenges: tuple[Header, ...] = tuple(
            (b"www-authenticate", text.encode("latin-1", "replace")) for text in dict.fromkeys(said)
        )

    def on_card(self, card: Card) -> Card:
        """Returns the card with the schemes that are enforced here."""
        if not self.schemes:
            return card
        declared = {name: scheme.declared() for name, scheme in self.schemes.items()}
        return replace(card, schemes=declared, security=self.security)

    def admit(
        self, headers: Mapping[str, str], target: str, certificate: str
    ) -> Context | Awaitable[Context]:
        """Returns the context of the caller, or raises `Unauthenticated`; see `Admit`."""
        return self._admitted(headers, target, certificate, None)

    def admit_or_anyone(
        self, headers: Mapping[str, str], target: str, certificate: str
    ) -> Context | Awaitable[Context]:
        """Returns the same, but a caller that shows no credentials at all is `anonymous`. What it
        may do then is for the guard to say: only some operations are open to it."""
        return self._admitted(headers, target, certificate, ANYONE)

    def _admitted(
        self, headers: Mapping[str, str], target: str, certificate: str, nobody: Context | None
    ) -> Context | Awaitable[Context]:
        if not self._verifiers:
            return self._in(ANYONE, headers)
        try:
            caller = self._caller(headers, target, certificate) or nobody
        except KeysNeeded as need:
            return self._later(need, headers, target, certificate)
        if caller is None:
            raise Unauthenticated()
        return self._in(caller, headers)

    async def recognizes(self, headers: Mapping[str, str], target: str, certificate: str) -> bool:
        """Returns whether these headers show a caller, without counting it as a call."""
        try:
            return await self.identify(headers, target, certificate) is not None
        except Unauthenticated:
            return False

    async def identify(
        self, headers: Mapping[str, str], target: str, certificate: str
    ) -> Context | None:
        """Returns the caller that these headers show, without counting it as a call; None if they
        show no credentials, or if there are no schemes. Raises `Unauthenticated` if those are
        wrong."""
        if not self._verifiers:
            return None
        try:
            return self._caller(headers, target, certificate)
        except KeysNeeded as need:
            return await self._caller_by_keys(need, headers, target, certificate)

    async def _later(
        self, need: KeysNeeded, headers: Mapping[str, str], target: str, certificate: str
    ) -> Context:
        caller = await self._caller_by_keys(need, headers, target, certificate)
        entered = self._in(caller, headers)
        return entered if isinstance(entered, Context) else await entered

    async def _caller_by_keys(
        self, need: KeysNeeded, headers: Mapping[str, str], target: str, certificate: str
    ) -> Context:
        for _ in range(MOST_FETCHES):
            await need.source.look()
            try:
                caller = self._caller(headers, target, certificate)
            except KeysNeeded as another:
                need = another
                continue
            if caller is not None:
                return caller
        raise Unauthenticated()

    def _in(self, caller: Context, headers: Mapping[str, str]) -> Context | Awaitable[Context]:
        if self._meter is not None and (counted := self._meter.take(caller)) is not None:
            return _told_later(counted, caller, headers)
        return told(caller, headers)

    def _caller(self, headers: Mapping[str, str], target: str, certificate: str) -> Context | None:
        """Returns the caller by the first scheme that authenticates it, or None if it shows no
        credentials at all."""
        shown = "authorization" in headers
        for way in self._ways:
            try:
                found = [
                    self._verifiers[name].authenticate(headers, target, certificate) for name in way
                ]
            except Unauthenticated:
                shown = True
                continue  # perhaps what is wrong here is right for another scheme
            callers = [each for each in found if each is not None]
            if len(callers) == len(way):
                return reduce(_both, callers) if len(callers) > 1 else callers[0]
        if shown:
            raise Unauthenticated()
        return None

    def refusal_headers(self, error: Exception) -> tuple[Header, ...]:
        """Returns the headers that go with an error: how to authenticate, or when to try again."""
        if isinstance(error, Unauthenticated):
            return self.challenges
        if isinstance(error, Forbidden) and (scope := error.public.get("scope")):
            said = f'Bearer error="insufficient_scope", scope="{scope}"'  # RFC 6750 §3.1
            return ((b"www-authenticate", said.encode("latin-1", "replace")),)
        if isinstance(error, DragomanError) and (after := error.public.get("retry_after")):
            return ((b"retry-after", after.encode("latin-1", "replace")),)
        return ()


async def _told_later(
    counted: Awaitable[None], caller: Context, headers: Mapping[str, str]
) -> Context:
    await counted
    return told(caller, headers)


class Recognizer:
    """Whether an agent may let a caller in, asked before it is known which agent a call is for. It
    is not counted as a call.

    Recognizers with the same schemes are equal, so that a server with a thousand agents needs to
    ask once where all of them have the schemes of its settings.
    """

    __slots__ = ("_authenticator", "_schemes")

    def __init__(self, authenticator: Authenticator | None = None) -> None:
        """Without an authenticator it recognizes everyone."""
        self._authenticator = authenticator
        schemes = authenticator.schemes if authenticator is not None else None
        self._schemes = msgspec.json.encode(schemes, order="deterministic")

    @property
    def everyone(self) -> bool:
        """Whether there is nothing to ask."""
        return self._authenticator is None

    async def __call__(self, headers: Mapping[str, str], target: str, certificate: str) -> bool:
        """See `Recognizes`."""
        authenticator = self._authenticator
        return authenticator is None or await authenticator.recognizes(headers, target, certificate)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recognizer) and self._schemes == other._schemes

    def __hash__(self) -> int:
        return hash(self._schemes)


def _both(first: Context, second: Context) -> Context:
    """Returns one caller for two credentials. The first names it, and its tenants are those of
    both."""
    if set(second.tenants) == {""}:
        tenants = first.tenants
    else:
        tenants = tuple(each for each in first.tenants if each in second.tenants)
    if not tenants:
        raise Unauthenticated()
    return replace(
        first,
        tenant=tenants[0],
        tenants=tenants,
        scopes=tuple(dict.fromkeys(first.scopes + second.scopes)),
        schemes=first.schemes + second.schemes,
    )


def _verifier(
    name: str, scheme: Scheme, realm: str, fetch: Fetch | None, keeps_tokens: bool
) -> Verifier:
    match scheme:
        case ApiKeys():
            return KeyVerifier(name, scheme, realm)
        case Passwords():
            return PasswordVerifier(name, scheme, realm)
        case Tokens():
            return TokenVerifier(name, scheme, realm)
        case Certificates():
            return CertificateVerifier(name, scheme)
        case Jwt():
            try:
                from .jwt_verifier import (
                    JwtVerifier,  # joserfc is loaded only where someone needs it
                )
            except ModuleNotFoundError as exc:
                if exc.name != "joserfc":
                    raise
                raise ConfigError("Tokens of an issuer need joserfc: pip install joserfc") from exc
            return JwtVerifier(name, scheme, realm, fetch, keeps_tokens=keeps_tokens)


def certificate_in(scope: Mapping[str, object]) -> str:
    """Returns the name in the client's certificate, if the server tells it (ASGI's TLS
    extension)."""
    if scope.get("scheme") != "https":
        return ""
    extensions = scope.get("extensions")
    tls = extensions.get("tls") if isinstance(extensions, Mapping) else None
    said = tls.get("client_cert_name") if isinstance(tls, Mapping) else None
    return said if isinstance(said, str) else ""
