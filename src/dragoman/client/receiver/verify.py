"""Whether a call is from whom it says, and new: token, signature, age, JSON Web Token.

Theory. A token proves that the caller knows it; whoever saw one call can make another. A signature
(Standard Webhooks) proves the body, the delivery's name and its time as well, so a call that is
repeated later is too old, and one that is repeated soon has a name that was heard before. Dragoman
signs; the official SDKs send the bare token. Which of them counts is the receiver's decision and
never the caller's: otherwise leaving the signature out would get around it.
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
from dragoman.net.webhooks import signed
from dragoman.security.jwks import JwksFetcher, keys_in

TOKENS = ("x-a2a-notification-token", "a2a-notification-token")
"""The headers of the token: 0.3 and most SDKs name it with X, a2a-go without (a2a-wire D8)."""
ID, AT, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
LONGEST_ID = 1024
MOST_SIGNATURES = 8
"""The number of signatures that are read: a sender that changes its key signs with both for a
while."""


class Issuer(Struct, frozen=True, kw_only=True):
    """A sender that signs with a key pair: its JSON Web Token in `Authorization: Bearer`.

    The token must say when it was made. Where it holds `request_body_sha256`, as the samples of A2A
    do, the body must be that one; `iss`, `aud` and `exp` are checked where they are expected here.
    """

    keys: Sequence[Mapping[str, Any]]
    """The public keys of the sender (the members of a JWKS)."""
    issuer: str = ""
    audience: str = ""
    body: bool = True
    """Whether a token without the digest of the body is refused."""

    @classmethod
    async def at(cls, url: str, *, allow_private: bool = False, **about: Any) -> Issuer:
        """Makes an issuer with the keys that the sender publishes at `url` (a JWKS), as they are
        now."""
        fetch = JwksFetcher(allow_private=allow_private)
        try:
            return cls(keys=keys_in(await fetch(url)), **about)
        except ValueError as exc:
            raise PeerUnreachable(f"There are no keys at {url}: {exc}") from None
        finally:
            await fetch.close()


class Proof(Struct, frozen=True, kw_only=True):
    """What a call must prove. Everything that is set here is required, and never shown by
    `repr`."""

    tokens: tuple[str, ...] = ()
    """The token of the push config: any of these, so that it can be changed. It is the key of the
    signature too."""
    secrets: tuple[str, ...] = ()
    """The keys of the signature where they are not the token (`whsec_...`, or any text)."""
    authorization: str = ""
    """The Authorization header, such as `Bearer x`, if the push config has `authentication`."""
    issuer: Issuer | None = None
    unsigned: bool = False
    """Whether the token, or `authorization`, alone is enough, as the official SDKs send it."""
    tolerance: float = 300.0
    """The seconds by which a call may be old, or early."""

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
    """A call that is proved."""

    id: str
    """The name under which it is remembered; empty if nothing names it."""
    signed: bool


def greet(headers: Mapping[str, str], proof: Proof, now: float) -> None:
    """Raises `Unauthenticated` for all that can be refused before the body is read."""
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
            "The call is not signed. A receiver takes the token alone only if it is told to."
        )


def prove(headers: Mapping[str, str], body: bytes, proof: Proof, now: float) -> Proved:
    """Raises `Unauthenticated` unless all that `proof` requires is there. Names of headers are in
    lower case."""
    _check_shown(headers, proof)
    said: Proved | None = None
    if proof.issuer is not None:
        from .jwt import claimed  # joserfc is loaded only where someone needs it

        said = claimed(headers, body, proof.issuer, now, proof.tolerance)
    keys = _keys(proof)
    if said is not None and not (keys and _has_signature(headers)):
        return said  # nobody vouches for what the other headers say
    if not _has_signature(headers):
        return Proved("", False)
    id, at = _check_form(headers, proof, now)
    if keys and not _is_signed(headers.get(SIGNATURE, ""), keys, id, at, body):
        raise Unauthenticated("The signature is wrong.")
    return Proved(id, bool(keys))


def _check_form(headers: Mapping[str, str], proof: Proof, now: float) -> tuple[str, str]:
    """The name and the time of a signed call; `Unauthenticated` if no body could fit them."""
    id = headers.get(ID, "")
    if not 0 < len(id) <= LONGEST_ID or not id.isprintable():
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
    """Returns the key of a secret: in Standard Webhooks, what follows `whsec_` is base64; other
    texts are keys as they are."""
    if secret.startswith("whsec_"):
        try:
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def _has_signature(headers: Mapping[str, str]) -> bool:
    """Returns whether the call claims to be signed; then it must be, whatever else would do."""
    return SIGNATURE in headers or ID in headers


def _is_signed(said: str, keys: list[bytes], id: str, at: str, body: bytes) -> bool:
    # All of them are compared, so that the time tells nothing about which one fits.
    fits = [_same(each, signed(key, id, at, body)) for each in _given(said) for key in keys]
    return any(fits)


def _given(said: str) -> list[str]:
    """The first signatures in a header, as far as they can be those of a body: base64 of 32
    bytes."""
    found = [each.removeprefix("v1,") for each in said.split() if each.startswith("v1,")]
    return [each for each in found[:MOST_SIGNATURES] if len(each) == 44]


def _among(given: str, known: tuple[str, ...]) -> bool:
    fits = [_same(given, each) for each in known]
    return any(fits)


def _same(left: str, right: str) -> bool:
    """Compares in constant time. Digests are compared, since `compare_digest` shows lengths."""
    return hmac.compare_digest(
        *(
            hashlib.sha256(each.encode("utf-8", "surrogateescape")).digest()
            for each in (left, right)
        )
    )
