"""Verifies the signature of a JSON Web Token, and reads its claims (RFC 7515, RFC 8725).

Callers decide which keys count and which claims they need; this module holds every check that does
not depend on that. Keys that a token brings along (`jwk`, `jku`, `x5c`, `x5u`) are only what its
sender says of itself, so they are never looked at, and a header with critical extensions is
refused, since we know none.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import msgspec
from joserfc import jwk
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry

from dragoman.core.errors import Unauthenticated

LEAST_RSA_BITS = 2048
_PUBLIC_KINDS = ("RSA", "EC", "OKP")
"""The kinds of public keys; a shared secret (`oct`) is not one."""
_PRIVATE = frozenset(("d", "p", "q", "dp", "dq", "qi", "oth", "k"))

Claims = Mapping[str, Any]


def import_keys(keys: Iterable[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """Returns the usable public keys of a key set, each with its id. One odd key does not spoil the
    others."""
    found = []
    for key in keys:
        if key.get("kty") not in _PUBLIC_KINDS:
            continue
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


def verify_token(
    token: str,
    candidates: Callable[[str], Iterable[Any]],
    algorithms: Container[str],
    types: Container[str] | None = None,
) -> Claims:
    """Returns the claims of a token in compact form, once its signature is known to be good.

    `candidates` gives the keys for a key id, which is empty if the token names none. `types` is
    what the header `typ` may say, in lower case; None accepts any. `Unauthenticated` if anything
    is wrong.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise Unauthenticated()
    head, payload, sealed = parts
    header = _object(head)
    name, kid, kind = header.get("alg"), header.get("kid", ""), header.get("typ", "")
    if (
        not isinstance(name, str)
        or name not in algorithms
        or "crit" in header
        or "b64" in header
        or not isinstance(kid, str)
        or not isinstance(kind, str)
        or (types is not None and kind.lower().removeprefix("application/") not in types)
    ):
        raise Unauthenticated()
    algorithm = JWSRegistry.algorithms[name]
    signed, signature = f"{head}.{payload}".encode("ascii", "replace"), _bytes(sealed)
    for key in candidates(kid):
        try:
            algorithm.check_key(key)
            if algorithm.verify(signed, signature, key):
                return _object(payload)
        except (JoseError, ValueError):
            continue  # of another kind, or for another algorithm
    raise Unauthenticated()


def audience_of(claims: Claims) -> list[str]:
    """Returns the audience of a token: `aud` is a name or a list of names (RFC 7519 §4.1.3)."""
    told = claims.get("aud")
    listed = told if isinstance(told, list) else [told]
    return [each for each in listed if isinstance(each, str)]


def seconds_of(value: object, *, required: bool = False) -> float:
    """Returns a NumericDate (RFC 7519 §2). One that is missing, where it may be, is long ago."""
    if value is None and not required:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unauthenticated()
    try:
        return float(value)
    except OverflowError:
        raise Unauthenticated() from None


def _bytes(text: str) -> bytes:
    """Decodes base64url without padding, and nothing else (RFC 7515 §2)."""
    if not text.isascii() or not text.replace("-", "").replace("_", "").isalnum():
        raise Unauthenticated()
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise Unauthenticated() from None


def _object(text: str) -> Claims:
    try:
        found = msgspec.json.decode(_bytes(text))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Unauthenticated() from None
    if not isinstance(found, dict):
        raise Unauthenticated()
    return found
