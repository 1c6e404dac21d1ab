"""The `Auth` that finds the credentials which an agent's card asks for.

A requirement of the card names schemes that are needed together, and any one requirement suffices:
the first one whose schemes all have credentials is used.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Callable, Mapping

from dragoman.core.card import (
    ApiKey,
    Card,
    HttpAuth,
    MutualTls,
    OAuth2,
    OpenId,
    Requirement,
    Requirements,
    Scheme,
)
from dragoman.core.errors import Unauthenticated

from ..credentials import NONE, Certificate, Credentials, origin_of
from . import private_files
from .origins import is_safe, printable, shown
from .token_refresh import GRACE, Need, TokenRefresher
from .token_store import TokenStore
from .user_credentials import Ask, Own, UserCredentials, described

MOST_GIVEN = 16
"""The number of an origin's credentials whose digests are kept, to recognise refused ones."""
_TOKENS = ("bearer", "token")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}").fullmatch
_NOT_OURS = frozenset(("host", "content-length", "transfer-encoding", "connection"))
"""The headers that belong to HTTP itself; a card that wants a key in one of them gets none."""


class CardAuth:
    """An `Auth` from what the user has (`UserCredentials`) and what was fetched (`Tokens`)."""

    def __init__(
        self,
        keyring: UserCredentials | None = None,
        tokens: TokenStore | None = None,
        *,
        allow_private: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.keyring = keyring or UserCredentials()
        self.tokens = tokens or TokenStore()
        self._clock = clock
        self.fetcher = TokenRefresher(self.tokens, allow_private=allow_private, clock=clock)
        self._given: dict[str, dict[bytes, float]] = {}

    @classmethod
    def of(
        cls,
        environ: Mapping[str, str],
        ask: Ask | None = None,
        *,
        allow_private: bool = False,
        shared: Mapping[str, str] | None = None,
    ) -> CardAuth:
        """Uses the user's own credentials: environment variables, `credentials.toml` and the tokens
        of `dragoman login`.

        `shared` maps an origin without credentials to the origin whose credentials it may be sent.
        """
        tokens = TokenStore(private_files.folder(environ) / private_files.TOKENS)
        return cls(UserCredentials.of(environ, ask, shared), tokens, allow_private=allow_private)

    async def __aenter__(self) -> CardAuth:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self.fetcher.close()

    # The methods of `client.credentials.Auth`.

    def certificate(self, origin: str) -> Certificate | None:
        """Returns the client certificate for this origin, if there is one."""
        return self.keyring.certificate(origin_of(origin))

    async def credentials(
        self, origin: str, card: Card | None, required: Requirements, *, refused: str | None
    ) -> Credentials:
        """Returns the credentials for this origin. Raises `Unauthenticated` if they were refused;
        its message says what the user can do."""
        origin = origin_of(origin)
        owner, own = await self.keyring.find(origin)
        schemes = card.schemes if card is not None else {}
        ways = required or _any_of(schemes, refused)
        for way in ways:
            found = await self._together(owner, own, schemes, way, refused is not None)
            if found is not None and self._is_worth_a_try(origin, found, refused):
                return found
        fixed = _bearer(own.token) if own.token and not schemes else None
        if fixed is not None and self._is_worth_a_try(origin, fixed, refused):
            return fixed
        if refused is None:
            return NONE
        raise Unauthenticated(self._why(origin, ways, refused), origin=shown(origin))

    async def _together(
        self, owner: str, own: Own, schemes: Mapping[str, Scheme], way: Requirement, renew: bool
    ) -> Credentials | None:
        """Returns the credentials for all schemes of one requirement, or None if something is
        missing."""
        headers: dict[str, str] = {}
        query: dict[str, str] = {}
        until: float | None = None
        for name, scopes in way.items():
            need = Need(
                owner=owner, own=own.for_scheme(name), name=name, scopes=tuple(scopes), renew=renew
            )
            one = await self._one(need, schemes.get(name))
            if one is None:
                return None
            if "cookie" in headers and "cookie" in one.headers:
                headers["cookie"] += f"; {one.headers['cookie']}"
                headers |= {k: v for k, v in one.headers.items() if k != "cookie"}
            else:
                headers |= one.headers
            query |= one.query
            if one.until is not None:
                until = one.until if until is None else min(until, one.until)
        return Credentials(headers=headers, query=query, until=until)

    async def _one(self, need: Need, scheme: Scheme | None) -> Credentials | None:
        """Returns the credentials for one scheme, or None."""
        own, owner = need.own, need.owner
        kept = self.tokens.get(owner, need.name) if is_safe(owner) else None
        match scheme:
            case ApiKey():
                key = own.api_key or (kept.secret if kept and kept.kind == "key" else "")
                return _placed(scheme, key) if key else None
            case HttpAuth() if scheme.scheme.lower() == "basic":
                pair = f"{own.user}:{own.password}" if own.user or own.password else ""
                pair = pair or (kept.secret if kept and kept.kind == "basic" else "")
                return _basic(pair) if pair else None
            case HttpAuth() if scheme.scheme.lower() == "bearer":
                fixed = own.token or (kept.secret if kept and kept.kind in _TOKENS else "")
                return _bearer(fixed) if fixed else None
            case OAuth2() | OpenId():
                if own.token:
                    return _bearer(own.token)
                found = await self.fetcher.token(need, scheme)
                return _bearer(found.secret, found.renew_at) if found else None
            case MutualTls():
                return NONE if own.cert else None
            case _:
                return None  # we do not support the scheme, or the card does not describe it

    def _is_worth_a_try(self, origin: str, found: Credentials, refused: str | None) -> bool:
        """Returns whether these credentials differ from the refused ones, as a token does that was
        renewed meanwhile."""
        said = repr((sorted(found.headers.items()), sorted(found.query.items()))).encode()
        mark, now = hashlib.sha256(said).digest(), self._clock()
        given = self._given.setdefault(origin, {})
        since = given.setdefault(mark, now)
        if len(given) > MOST_GIVEN:
            del given[next(iter(given))]
        return refused is None or now - since <= GRACE

    def _why(self, origin: str, ways: Requirements, refused: str) -> str:
        where, said = shown(origin), f" ({printable(refused)})" if refused else ""
        wants = " or ".join(" and ".join(printable(name, 60) for name in way) for way in ways)
        if self._given.get(origin):
            why = f"{where} refused the credentials it was given{said}."
        else:
            why = f"{where} wants to know who is calling{said}."
        asks = f" It asks for: {wants}." if wants else ""
        return f"{why}{asks} Put them in {described(origin)}, or run: dragoman login {where}"


def _any_of(schemes: Mapping[str, Scheme], refused: str | None) -> Requirements:
    """Returns each scheme as a requirement: a card may describe schemes and require none, and
    refuse us all the same."""
    return tuple({name: ()} for name in schemes) if refused is not None else ()


def _bearer(token: str, until: float | None = None) -> Credentials:
    return Credentials(headers={"authorization": f"Bearer {token}"}, until=until)


def _basic(pair: str) -> Credentials:
    told = base64.b64encode(pair.encode()).decode()
    return Credentials(headers={"authorization": f"Basic {told}"})


def _placed(scheme: ApiKey, key: str) -> Credentials | None:
    if not _NAME(scheme.name) or scheme.name.lower() in _NOT_OURS:
        return None
    match scheme.location:
        case "query":
            return Credentials(query={scheme.name: key})
        case "cookie":
            return Credentials(headers={"cookie": f"{scheme.name}={key}"})
        case _:
            return Credentials(headers={scheme.name.lower(): key})
