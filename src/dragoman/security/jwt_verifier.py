"""Authenticates callers by JSON Web Tokens of an issuer (RFC 8725, RFC 9068).

Only keys of the issuer's set count (`jws` verifies the signature). A token that was verified once
is kept by its digest for a short time, so it costs one signature check in minutes and not one per
request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from dragoman.core.auth_schemes import Grant, Jwt
from dragoman.core.errors import ConfigError, StoreUnavailable, Unauthenticated
from dragoman.core.peer import BearerToken, Context

from .jwks import Fetch, KeysNeeded, KeySource
from .jws import Claims, audience_of, import_keys, seconds_of, verify_token
from .verifiers import MOST_CHARS, Headers, authorization, caller, digest

KEPT = 4096
"""The number of verified tokens that are kept."""
KEPT_SECONDS = 300.0
"""The seconds for which they are kept, so that a key that the issuer withdraws ends its tokens."""
MOST_PRINCIPAL_CHARS = 256


class JwtVerifier:
    """Verifies the tokens of one issuer in `Authorization: Bearer`."""

    def __init__(
        self,
        name: str,
        scheme: Jwt,
        realm: str,
        fetch: Fetch | None = None,
        clock: Callable[[], float] = time.time,
        *,
        keeps_tokens: bool = False,
    ) -> None:
        if not scheme.audience or not all(scheme.audience):
            raise ConfigError(f"[auth.{name}] needs an audience, for which tokens must be issued.")
        if not scheme.issuer:
            raise ConfigError(f"[auth.{name}] needs an issuer.")
        self.challenge = f'Bearer realm="{realm}"'
        self._name, self._scheme, self._clock = name, scheme, clock
        self._source = _source(name, scheme, fetch)
        self._keeps_tokens = keeps_tokens
        self._edition = -1
        self._keys: list[tuple[str, Any]] = []
        self._verified: dict[bytes, tuple[Context, float]] = {}

    def authenticate(self, headers: Headers, target: str, certificate: str) -> Context | None:
        """Returns the caller, or None. Raises `KeysNeeded` if the issuer's keys must be fetched
        first."""
        token = authorization(headers, "bearer")
        if token is None:
            return None
        if len(token) > MOST_CHARS:
            raise Unauthenticated()
        mark, now = digest(token), self._clock()
        kept = self._verified.get(mark)
        if kept is not None:
            if now < kept[1]:
                return kept[0]
            del self._verified[mark]
        scheme = self._scheme
        claims = verify_token(token, self._candidates, scheme.algorithms, scheme.types)
        found, until = self._caller(claims, now)
        if self._keeps_tokens:
            found = replace(found, token=BearerToken(token))
        while len(self._verified) >= KEPT:
            del self._verified[next(iter(self._verified))]
        self._verified[mark] = found, min(until, now + KEPT_SECONDS)
        return found

    def _candidates(self, kid: str) -> list[Any]:
        """Returns the issuer's keys with this id, or all of them if the token names none."""
        source = self._source
        if source.due(unknown=False):
            raise KeysNeeded(source)
        if not source.usable:
            raise StoreUnavailable("The keys of the token's issuer cannot be fetched now.")
        if self._edition != source.edition:
            self._keys = import_keys(source.keys)
            self._edition = source.edition
            self._verified.clear()
        found = [key for name, key in self._keys if not kid or name == kid]
        if not found and source.due(unknown=True):
            raise KeysNeeded(source)
        return found

    def _caller(self, claims: Claims, now: float) -> tuple[Context, float]:
        """Returns the caller that the claims name, and the time until which they hold."""
        scheme = self._scheme
        until = seconds_of(claims.get("exp"), required=True) + scheme.leeway
        principal = claims.get(scheme.principal_claim)
        if (
            claims.get("iss") != scheme.issuer
            or not any(each in scheme.audience for each in audience_of(claims))
            or now >= until
            or seconds_of(claims.get("nbf")) > now + scheme.leeway
            or seconds_of(claims.get("iat")) > now + scheme.leeway
            or not isinstance(principal, str)
            or not 0 < len(principal) <= MOST_PRINCIPAL_CHARS
            or not principal.isprintable()
        ):
            raise Unauthenticated()
        tenants = scheme.tenants
        if scheme.tenant_claim:
            tenants = _names(claims.get(scheme.tenant_claim))
            if not tenants:
                raise Unauthenticated()
        grant = Grant(tenants=tenants, scopes=_scopes(claims.get(scheme.scope_claim)))
        return caller(self._name, f"{self._name}:{principal}", grant), until


def _source(name: str, scheme: Jwt, fetch: Fetch | None) -> KeySource:
    if scheme.keys_file and scheme.keys_url:
        raise ConfigError(f"[auth.{name}]: keys_file or keys_url, not both.")
    if scheme.keys_file:
        return KeySource.from_file(name, scheme.keys_file)
    if fetch is None:
        raise ConfigError(f"[auth.{name}]: keys can only be read from keys_file here.")
    return KeySource(
        name,
        url=scheme.keys_url,
        discovery=scheme.discovery,
        issuer=scheme.issuer,
        keep=scheme.keep_keys,
        fetch=fetch,
    )


def _names(value: object) -> tuple[str, ...]:
    """Returns a claim with one value, or a list of them, each exactly as it is said. An empty one
    is none: it would be the tenant of callers that belong to no other."""
    listed = value if isinstance(value, list) else [value]
    return tuple(each for each in listed if isinstance(each, str) and each)


def _scopes(value: object) -> tuple[str, ...]:
    """Returns scopes from a list, or from one string with spaces between them (RFC 6749 §3.3)."""
    return _names(value.split(" ") if isinstance(value, str) else value)
