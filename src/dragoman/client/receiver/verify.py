"""Verifies the sender and the age of a call: token, signature, timestamp, JSON Web Token.

Theory. A token proves only that the caller knows it, and anybody who sees one call can forge
another. A signature (Standard Webhooks) also proves the body, the delivery id and the time: a call
that is replayed late is too old, and one that is replayed early has an id that was seen before.
Dragoman signs; the official SDKs send the bare token. The receiver decides which of them suffices
and never the caller, who could otherwise evade the check by leaving the signature out.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from dragoman.core.errors import ConfigError, PeerUnreachable, Unauthenticated
from dragoman.core.ids import is_id
from dragoman.net.webhooks import signed
from dragoman.security.jwks import JwksFetcher, keys_in

TOKENS = ("x-a2a-notification-token", "a2a-notification-token")
"""The headers of the token: 0.3 and most SDKs use the name with X, a2a-go the one without
(a2a-wire D8)."""
ID, AT, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
LONGEST_ID = 1024
MOST_SIGNATURES = 8
"""The number of signatures that are read: a sender that rotates its key signs with both for a
while."""


class Issuer(Struct, frozen=True, kw_only=True):
    """A sender that signs with a key pair: its JSON Web Token in `Authorization: Bearer`.

    The token must say when it was issued. If it has the claim `request_body_sha256`, as in the
    samples of A2A, the body must have that digest; `iss`, `aud` and `exp` are checked where they
    are expected here.
    """

    keys: Sequence[Mapping[str, Any]]
    """The public keys of the sender (the members of a JWKS)."""
    issuer: str = ""
    audience: str = ""
    body: bool = True
    """Whether a token without the digest of the body is refused."""

    @classmethod
    async def at(cls, url: str, *, allow_private: bool = False, **about: Any) -> Issuer:
        """Fetches the keys that the sender publishes at `url` (a JWKS) once, and returns the
        issuer."""
        fetch = JwksFetcher(allow_private=allow_private)
        try:
            return cls(keys=keys_in(await fetch(url)), **about)
        except ValueError as exc:
            raise PeerUnreachable(f"There are no keys at {url}: {exc}") from None
        finally:
            await fetch.close()


class Proof(Struct, frozen=True, kw_only=True):
    """What a call must prove. Everything that is set here is required. `repr` shows none of it."""

    tokens: tuple[str, ...] = ()
    """The accepted tokens of the push config, more than one while a token is replaced. The token is
    the key of the signature too."""
    secrets: tuple[str, ...] = ()
    """The keys of the signature where they are not the token (`whsec_...`, or any text)."""
    authorization: str = ""
    """The Authorization header, such as `Bearer x`, if the push config has `authentication`."""
    issuer: Issuer | None = None
    unsigned: bool = False
    """Whether the token, or `authorization`, alone is enough, as the official SDKs send it."""
    tolerance: float = 300.0
    """The number of seconds by which the time of a call may differ from ours."""

    @property
    def shown_in_headers(self) -> bool:
        """Whether the headers of a call alone show who calls. If only a signature does, anyone may
        send one that looks right until the body has come."""
        return bool(self.tokens or self.authorization or self.issuer)

    def __repr__(self) -> str:
        names = ("tokens", "secrets", "authorization", "issuer")
        return f"Proof({', '.join(name for name in names if getattr(self, name))})"

    def __post_init__(self) -> None:
        if not all((*self.tokens, *self.secrets)):
            raise ConfigError("An empty token proves nothing.")
        keyed = self.tokens or self.secrets or self.issuer
        if not keyed and not (self.unsigned and self.authorization):
            raise ConfigError(
                "A receiver needs a proof: the token of the push config, a secret or an issuer."
            )
        if self.issuer is not None and self.authorization:
            raise ConfigError("There is one Authorization header: an issuer's token or your own.")


class Proved(Struct, frozen=True):
    """A verified call."""

    id: str
    """The id under which the call is remembered; empty if it has none."""
    signed: bool


def greet(headers: Mapping[str, str], proof: Proof, now: float) -> None:
    """Verifies the headers. Raises `Unauthenticated` if the call can be refused before its body is
    read."""
    _check_shown(headers, proof)
    if proof.issuer is not None:
        from .jwt import check_token  # joserfc is loaded only where someone needs it

        check_token(headers, proof.issuer, now, proof.tolerance)
    if _has_signature(headers) and (proof.issuer is None or _keys(proof)):
        _check_form(headers, proof, now)


def _check_shown(headers: Mapping[str, str], proof: Proof) -> None:
    if proof.tokens:
        given = {headers[name] for name in TOKENS if name in headers}
        if len(given) != 1 or not _among(given.pop(), proof.tokens):
            raise Unauthenticated("The token is missing or wrong.")
    if proof.authorization and not _among(headers.get("authorization", ""), (proof.authorization,)):
        raise Unauthenticated("The Authorization header is missing or wrong.")
    if not _has_signature(headers) and proof.issuer is None and not proof.unsigned:
        raise Unauthenticated(
            "The call is not signed. This receiver does not accept the token alone."
        )


def prove(headers: Mapping[str, str], body: bytes, proof: Proof, now: float) -> Proved:
    """Verifies a call. Raises `Unauthenticated` unless everything that `proof` requires is there.
    The names of the headers are in lower case."""
    _check_shown(headers, proof)
    said: Proved | None = None
    if proof.issuer is not None:
        from .jwt import claimed  # joserfc is loaded only where someone needs it

        said = claimed(headers, body, proof.issuer, now, proof.tolerance)
    keys = _keys(proof)
    if said is not None and not (keys and _has_signature(headers)):
        return said  # no signature covers the other headers
    if not _has_signature(headers):
        return Proved("", False)
    id, at = _check_form(headers, proof, now)
    if keys and not _is_signed(headers.get(SIGNATURE, ""), keys, id, at, body):
        raise Unauthenticated("The signature is wrong.")
    return Proved(id, bool(keys))


def _check_form(headers: Mapping[str, str], proof: Proof, now: float) -> tuple[str, str]:
    """Returns the id and the time of a signed call. Raises `Unauthenticated` if they are invalid
    whatever the body is."""
    id = headers.get(ID, "")
    if not is_id(id, LONGEST_ID):
        raise Unauthenticated("The call has no webhook-id.")
    at = headers.get(AT, "")
    if not (at.isascii() and at.isdigit() and len(at) <= 12):
        raise Unauthenticated("The call does not say when it was made.")
    if abs(now - int(at)) > proof.tolerance:
        raise Unauthenticated("The call is too old, or a clock is wrong.")
    if _keys(proof) and not _given(headers.get(SIGNATURE, "")):
        raise Unauthenticated("The signature is wrong.")
    return id, at


def _keys(proof: Proof) -> list[bytes]:
    return [key_of(each) for each in (proof.secrets or proof.tokens)]


def key_of(secret: str) -> bytes:
    """Returns the key of a secret: base64 after the prefix `whsec_` (Standard Webhooks), or else
    the text itself."""
    if secret.startswith("whsec_"):
        try:
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def _has_signature(headers: Mapping[str, str]) -> bool:
    """Returns whether the call claims to be signed. The signature must then be valid, even if the
    token alone would suffice."""
    return SIGNATURE in headers or ID in headers


def _is_signed(said: str, keys: list[bytes], id: str, at: str, body: bytes) -> bool:
    # All of them are compared, so that the time does not reveal which one matches.
    fits = [_same(each, signed(key, id, at, body)) for each in _given(said) for key in keys]
    return any(fits)


def _given(said: str) -> list[str]:
    """Returns the first signatures of a header that have the right form: base64 of 32 bytes."""
    found = [each.removeprefix("v1,") for each in said.split() if each.startswith("v1,")]
    return [each for each in found[:MOST_SIGNATURES] if len(each) == 44]


def _among(given: str, known: tuple[str, ...]) -> bool:
    fits = [_same(given, each) for each in known]
    return any(fits)


def _same(left: str, right: str) -> bool:
    """Compares two texts in constant time. It compares their digests, since `compare_digest` leaks
    the length."""
    return hmac.compare_digest(
        *(
            hashlib.sha256(each.encode("utf-8", "surrogateescape")).digest()
            for each in (left, right)
        )
    )
