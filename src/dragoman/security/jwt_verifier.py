"""JSON Web Tokens: every check before a claim is believed (RFC 8725, RFC 9068).

Only keys of the issuer's set count: `jwk`, `jku`, `x5c` and `x5u` in a token's header are what the
sender says of itself. A header that lists critical extensions is refused, since we know none. What
was verified once is kept by its digest, for a short time, so a token costs one signature check in
minutes and not one per request.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from joserfc import jwk
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry

from dragoman.core.auth_schemes import Grant, Jwt
from dragoman.core.errors import ConfigError, StoreUnavailable, Unauthenticated
from dragoman.core.peer import Context

from .jwks import Fetch, KeysNeeded, KeySource
from .verifiers import MOST_CHARS, authorization, caller, digest

KEPT = 4096
"""Verified tokens kept."""
KEPT_SECONDS = 300.0
"""No longer than this, so that a key which the issuer withdraws ends its tokens."""
MOST_PRINCIPAL_CHARS = 256
LEAST_RSA_BITS = 2048


class JwtVerifier:
    """Tokens of one issuer behind `Authorization: Bearer`."""

    def __init__(
        self,
        name: str,
        scheme: Jwt,
        realm: str,
        fetch: Fetch | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not scheme.audience or not all(scheme.audience):
            raise ConfigError(f"[auth.{name}] needs an audience: for whom tokens must be meant.")
        if not scheme.issuer:
            raise ConfigError(f"[auth.{name}] needs an issuer.")
        self.challenge = f'Bearer realm="{realm}"'
        self._name, self._scheme, self._clock = name, scheme, clock
        self._source = _source(name, scheme, fetch)
        self._edition = -1
        self._keys: list[tuple[str, Any]] = []
        self._verified: dict[bytes, tuple[Context, float]] = {}

    def authenticate(
        self, headers: Mapping[str, str], target: str, certificate: str
    ) -> Context | None:
        """See `Verifier`; raises `KeysNeeded` when the issuer must be asked first."""
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
        if token.count(".") != 2:
            raise Unauthenticated()  # a fixed token, perhaps of another scheme
        claims = self._claims(token)
        found, until = self._caller(claims, now)
        while len(self._verified) >= KEPT:
            del self._verified[next(iter(self._verified))]
        self._verified[mark] = found, min(until, now + KEPT_SECONDS)
        return found

    def _claims(self, token: str) -> Mapping[str, Any]:
        """What the token says, once its signature is known to be the issuer's."""
        head, payload, sealed = token.split(".")
        header = _object(head)
        name, kid, kind = header.get("alg"), header.get("kid", ""), header.get("typ", "")
        if (
            name not in self._scheme.algorithms
            or "crit" in header
            or "b64" in header
            or not isinstance(kid, str)
            or not isinstance(kind, str)
            or kind.lower().removeprefix("application/") not in self._scheme.types
        ):
            raise Unauthenticated()
        algorithm = JWSRegistry.algorithms[name]
        signed, signature = f"{head}.{payload}".encode("ascii", "replace"), _bytes(sealed)
        for key in self._candidates(kid):
            try:
                algorithm.check_key(key)
                if algorithm.verify(signed, signature, key):
                    return _object(payload)
            except (JoseError, ValueError):
                continue  # of another kind, or for another algorithm
        raise Unauthenticated()

    def _candidates(self, kid: str) -> list[Any]:
        """The issuer's keys with this id, or all of them when the token names none."""
        source = self._source
        if source.due(unknown=False):
            raise KeysNeeded(source)
        if not source.usable:
            raise StoreUnavailable("The keys of the token's issuer cannot be had now.")
        if self._edition != source.edition:
            self._keys = list(_imported(source.keys))
            self._edition = source.edition
            self._verified.clear()
        found = [key for name, key in self._keys if not kid or name == kid]
        if not found and source.due(unknown=True):
            raise KeysNeeded(source)
        return found

    def _caller(self, claims: Mapping[str, Any], now: float) -> tuple[Context, float]:
        """Who that is, and until when."""
        scheme = self._scheme
        told = claims.get("aud")
        audience = [told] if isinstance(told, str) else told if isinstance(told, list) else []
        until = _seconds(claims.get("exp"), required=True) + scheme.leeway
        principal = claims.get(scheme.principal_claim)
        if (
            claims.get("iss") != scheme.issuer
            or not any(each in scheme.audience for each in audience if isinstance(each, str))
            or now >= until
            or _seconds(claims.get("nbf")) > now + scheme.leeway
            or _seconds(claims.get("iat")) > now + scheme.leeway
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


def _imported(keys: list[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """What can be used of a key set; one odd key does not spoil the others."""
    found = []
    for key in keys:
        public = {name: value for name, value in key.items() if name not in _PRIVATE}
        try:
            imported = jwk.import_key(public)
            weak = key["kty"] == "RSA" and imported.public_key.key_size < LEAST_RSA_BITS  # type: ignore[union-attr]
        except (JoseError, ValueError, TypeError):
            continue
        if not weak:
            kid = key.get("kid")
            found.append((kid if isinstance(kid, str) else "", imported))
    return found


_PRIVATE = frozenset(("d", "p", "q", "dp", "dq", "qi", "oth", "k"))


def _bytes(text: str) -> bytes:
    """Base64url without padding, and nothing else (RFC 7515 §2)."""
    if not text.isascii() or not text.replace("-", "").replace("_", "").isalnum():
        raise Unauthenticated()
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise Unauthenticated() from None


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(_bytes(text))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Unauthenticated() from None
    if not isinstance(found, dict):
        raise Unauthenticated()
    return found


def _seconds(value: object, *, required: bool = False) -> float:
    """A NumericDate. One that is missing where it may be is long ago."""
    if value is None and not required:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unauthenticated()
    try:
        return float(value)
    except OverflowError:
        raise Unauthenticated() from None


def _names(value: object) -> tuple[str, ...]:
    """A claim with one value, or a list of them, each exactly as it is said. An empty one is none:
    it would be the tenant of callers that belong to no other."""
    listed = value if isinstance(value, list) else [value]
    return tuple(each for each in listed if isinstance(each, str) and each)


def _scopes(value: object) -> tuple[str, ...]:
    """Scopes: a list, or one string with spaces between them and nothing else (RFC 6749 §3.3)."""
    return _names(value.split(" ") if isinstance(value, str) else value)
