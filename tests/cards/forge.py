"""A signed card, and a smith who writes signatures as no honest signer would."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from joserfc import jwk
from joserfc.jws import JWSRegistry

from dragoman.core.card import ApiKey, Card, CardSkill, Extension, Interface, Provider
from dragoman.dialects.a2a.cards import documents, signatures
from dragoman.dialects.a2a.cards.canonical import document_in
from dragoman.dialects.a2a.cards.signatures import payload
from dragoman.security.card_signing import new_key

ORIGIN = "https://desk.example"
NOW = 1_800_000_000.0

CARD = Card(
    name="Travel desk",
    description="Plans trips, auch nach Köln 🚆",
    version="1.0.0",
    interfaces=(
        Interface(url=f"{ORIGIN}/", binding="JSONRPC", version="1.0"),
        Interface(url=f"{ORIGIN}/", binding="JSONRPC", version="0.3"),
    ),
    provider=Provider("Example", "https://example.com"),
    extensions=(Extension(uri="urn:x:1", params={"n": 1, "x": 0.5, "empty": "", "no": None}),),
    skills=(CardSkill(id="plan", name="Plan", description="Plans a trip", tags=("travel",)),),
    schemes={"keys": ApiKey(name="X-API-Key")},
    security=({"keys": ()},),
)


@cache
def key(name: str, alg: str = "ES256") -> dict[str, Any]:
    """A private key, the same for the same name."""
    return {**new_key(alg, NOW), "kid": name}


def public(said: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Its public half, as it stands in a trust store."""
    return {**signatures.key_in(said).public(), **more}


def signed(card: Card = CARD, by: Mapping[str, Any] | None = None, jku: str = "") -> dict[str, Any]:
    """The card as a merged document with one honest signature: that of 1.0, for its readers. What
    readers of 0.3 use says the same, and is signed by itself in `test_both_versions`."""
    document = document_in(documents.merged(card))
    made = signatures.sign(document, signatures.key_in(by or key("good")), jku)
    document["signatures"] = [{"protected": made.protected, "signature": made.signature}]
    return document


def text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


Signs = Callable[[bytes], bytes]


def by(said: Mapping[str, Any], alg: str = "") -> Signs:
    """Signs with this key, whatever the header says."""
    imported: Any = jwk.import_key({k: v for k, v in said.items() if k not in ("alg", "use")})
    algorithm = JWSRegistry.algorithms[alg or said["alg"]]
    return lambda signing: algorithm.sign(signing, imported)


def hmac_with(secret: bytes) -> Signs:
    """HS256 with this text as the shared secret."""
    return lambda signing: hmac.digest(secret, signing, hashlib.sha256)


def entry(
    said: Mapping[str, Any] | str,
    signs: Signs,
    document: Mapping[str, Any] | None = None,
    /,
    form: str = "strict",
    **more: Any,
) -> dict[str, Any]:
    """An entry of `signatures` over the document, its header exactly as given."""
    raw = said if isinstance(said, str) else json.dumps(said)
    protected = text(raw.encode())
    over = payload(dict(document or signed()), form)
    signature = signs(f"{protected}.{text(over)}".encode())
    return {"protected": protected, "signature": text(signature) if signature else "", **more}


def header(alg: str = "ES256", kid: Any = "good", **more: Any) -> dict[str, Any]:
    """What an honest header has, and more."""
    return {"alg": alg, "kid": kid, "typ": "JOSE", **more}
