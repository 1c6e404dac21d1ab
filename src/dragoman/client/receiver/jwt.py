"""Verifies calls with a JSON Web Token, as the samples of A2A send it and 0.3 §9.5 describes."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from dragoman.core.errors import Unauthenticated
from dragoman.security.jws import Claims, audience_of, import_keys, seconds_of, verify_token

from .verify import Issuer, Proved

ALGORITHMS = ("RS256", "PS256", "ES256", "ES384", "EdDSA")
LONGEST = 8192
BODY = "request_body_sha256"


def check_token(
    headers: Mapping[str, str], issuer: Issuer, now: float, tolerance: float
) -> tuple[str, Claims]:
    """Returns the token and its claims. Raises `Unauthenticated` if it is not valid here, whatever
    the body is."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not 0 < len(token) <= LONGEST:
        raise Unauthenticated("The sender's signed token is missing.")
    claims = _claims(token.strip(), issuer)
    made = _seconds(claims.get("iat"))
    until = _seconds(claims.get("exp", now + tolerance))
    if abs(now - made) > tolerance or until + tolerance < now:
        raise Unauthenticated("The sender's signed token is too old, or a clock is wrong.")
    if issuer.issuer and claims.get("iss") != issuer.issuer:
        raise Unauthenticated("The signed token comes from another sender.")
    if issuer.audience and issuer.audience not in audience_of(claims):
        raise Unauthenticated("The signed token is meant for someone else.")
    if claims.get(BODY) is None and issuer.body:
        raise Unauthenticated("The signed token does not cover this body.")
    return token, claims


def claimed(
    headers: Mapping[str, str], body: bytes, issuer: Issuer, now: float, tolerance: float
) -> Proved:
    """Returns the verified call. Raises `Unauthenticated` if the token does not cover its body."""
    token, claims = check_token(headers, issuer, now, tolerance)
    digest = claims.get(BODY)
    if digest is not None and not (
        isinstance(digest, str)
        and hmac.compare_digest(digest.encode(), hashlib.sha256(body).hexdigest().encode())
    ):
        raise Unauthenticated("The signed token is for another body.")
    name = claims.get("jti")
    # A sender makes a new token for every call, so the token identifies the call.
    mark = name if isinstance(name, str) and name else hashlib.sha256(token.encode()).hexdigest()
    return Proved(f"jwt:{mark[:256]}", digest is not None)


def _claims(token: str, issuer: Issuer) -> Claims:
    keys = import_keys(issuer.keys)
    try:
        return verify_token(
            token,
            lambda kid: [key for name, key in keys if not kid or name in ("", kid)],
            ALGORITHMS,
        )
    except Unauthenticated:
        raise Unauthenticated("The sender's signed token is invalid.") from None


def _seconds(value: object) -> float:
    try:
        return seconds_of(value, required=True)
    except Unauthenticated:
        raise Unauthenticated("The sender's signed token does not say when it was made.") from None
