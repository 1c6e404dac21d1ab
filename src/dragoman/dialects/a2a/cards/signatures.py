"""Signatures of cards: detached JWS over the canonical card (A2A 1.0 §8.4, a2a-wire §10.5).

A merged card is two cards in one document, and readers of 1.0 and of 0.3 use different members of
it. Therefore each version has signatures of its own in the same list, and a valid one proves the
members that the readers of its version use.

What a signer claims about itself is not trusted: `jwk`, `x5c`, `x5u` and the unprotected header are
ignored, a `jku` is only a hint for readers that have already decided to trust it, and the algorithm
is determined by the key. One valid signature is sufficient, so an invalid one beside it is no
reason to refuse the card.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from joserfc import jwk
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry
from msgspec import Struct

from dragoman.core.card import Card, Signature
from dragoman.core.model import Json

from . import canonical, canonical_0_3
from . import documents as cards
from .canonical import MemberKind, Uncanonical, document_in

MOST_SIGNATURES = 16
"""The maximum number of signatures of one card that are examined."""
MOST_CHARS = 8192
"""The maximum number of characters of a protected header, and of a signature."""
LEAST_RSA_BITS = 2048
KINDS = {"ES256": ("EC", "P-256"), "EdDSA": ("OKP", "Ed25519"), "RS256": ("RSA", "")}
"""The accepted algorithms, each with the only kind of key that it takes. No other algorithm is ever
tried, so no header can choose `none`, or have a public key used as a shared secret."""

_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")
_FORBIDDEN = ("crit", "b64")
"""Extensions that change what is signed; we support none (RFC 7515 §4.1.11)."""


class SignedForm(Struct, frozen=True):
    """One way to write a card before it is signed."""

    version: str
    """The version of A2A whose members the form covers."""
    model: MemberKind
    write: Callable[[Json], bytes]
    restored: Callable[[dict[str, Json]], dict[str, Json]] = dict
    """Restores the members that the form leaves out because they are known."""


FORMS = {
    "strict": SignedForm("1.0", canonical.CARD, canonical.canonical),
    "stripped": SignedForm("1.0", canonical.CARD, canonical.canonical_stripped),
    "ascii": SignedForm("1.0", canonical.CARD, canonical.ascii_stripped),
    "0.3": SignedForm("0.3", canonical_0_3.CARD, canonical.canonical),
    "0.3-sdk": SignedForm("0.3", canonical_0_3.CARD, canonical_0_3.sdk, canonical_0_3.restored),
}
"""The forms that signers use. For each version, the first one covers all members. `strict` is the
form that the specification of 1.0 requires; that of 0.3 requires no particular form."""
STRICT = ("strict", "0.3")
"""The forms that cover every member of their version."""
_SDK = ("stripped", "0.3-sdk")
"""The forms that the verifiers of a2a-sdk 1.3.0 and 0.3.26 accept."""


def payload(document: Json, form: str = "strict") -> bytes:
    """Returns the bytes that are signed. Raises `Uncanonical` if there are none for this
    document."""
    how = FORMS[form]
    try:
        return how.write(how.model.read(document, ""))
    except Uncanonical:
        raise
    except (ValueError, RecursionError) as exc:
        raise Uncanonical(f"The card has no canonical form: {exc}") from None


class Refused(ValueError):
    """The signature is not valid; the text says why."""


class Key(Struct, frozen=True):
    """A key with its id, for one algorithm."""

    kid: str
    alg: str
    key: Any
    private: bool = False

    def public(self) -> dict[str, Json]:
        """Returns the public key as an entry of a key set."""
        members: dict[str, Json] = {**self.key.as_dict(private=False)}
        members.pop("key_ops", None)
        return {**members, "kid": self.kid, "alg": self.alg, "use": "sig"}


def key_in(members: Mapping[str, Any]) -> Key:
    """Returns the key in a JWK. Its id is `kid`, or else its thumbprint (RFC 7638). Raises
    `Refused` if it is not valid."""
    held = {name: value for name, value in members.items() if name not in ("key_ops", "x5c", "x5u")}
    if held.get("use", "sig") != "sig":
        raise Refused("the key is not for signatures")
    kind = (held.get("kty"), held.get("crv") or "")
    alg = next((name for name, each in KINDS.items() if each == kind), None)
    if alg is None or held.get("alg", alg) != alg:
        raise Refused(f"no key for {', '.join(KINDS)}")
    if not isinstance(held.get("kid", ""), str):
        raise Refused("the kid is no text")
    if alg == "RS256" and int.from_bytes(_bytes(held.get("n"))).bit_length() < LEAST_RSA_BITS:
        raise Refused(f"an RSA key needs {LEAST_RSA_BITS} bits")
    try:
        key: Any = jwk.import_key(held)
        JWSRegistry.algorithms[alg].check_key(key)
        kid = held.get("kid") or key.thumbprint()
    except (JoseError, ValueError, TypeError, KeyError) as exc:
        raise Refused(f"not a key: {exc}") from None
    return Key(kid, alg, key, bool(key.is_private))


def sign(document: Json, key: Key, jku: str = "", form: str = "strict") -> Signature:
    """Returns a signature over a card's document. Raises `Uncanonical` if it has no canonical
    form."""
    header: dict[str, Json] = {"alg": key.alg, "kid": key.kid, "typ": "JOSE"}
    if jku:
        header["jku"] = jku
    protected = _text(msgspec.json.encode(header))
    signing = f"{protected}.{_text(payload(document, form))}".encode()
    return Signature(protected, _text(JWSRegistry.algorithms[key.alg].sign(signing, key.key)))


def signed(card: Card, key: Key, jku: str = "", *, compatible: bool = True) -> Card:
    """Returns the card with our signatures, and without any others: they were made for a different
    card.

    `compatible` adds signatures over the forms of a2a-sdk, where these differ.
    """
    # Both documents are served, and the addresses of 0.3 may be in a different order in them.
    documents = [document_in(out(card)) for out in (cards.merged, cards.legacy)]
    made = sign_all(documents, key, jku, compatible=compatible)
    return msgspec.structs.replace(card, signatures=made)


def sign_all(
    documents: Iterable[dict[str, Json]], key: Key, jku: str = "", *, compatible: bool = True
) -> tuple[Signature, ...]:
    """Returns signatures for the readers of each version for which these documents have members."""
    names = (*STRICT, *_SDK) if compatible else STRICT
    wanted: dict[bytes, tuple[dict[str, Json], str]] = {}
    for document in documents:
        versions = versions_in(document) or ("1.0",)
        for name in names:
            if FORMS[name].version in versions:
                wanted.setdefault(payload(document, name), (document, name))
    return tuple(sign(document, key, jku, name) for document, name in wanted.values())


def versions_in(document: Mapping[str, Json]) -> tuple[str, ...]:
    """Returns the versions whose readers find an address in this document."""
    found = {"1.0": document.get("supportedInterfaces"), "0.3": document.get("url")}
    return tuple(version for version, where in found.items() if where)


class SignatureClaim(Struct, frozen=True):
    """A signature that claims to be made with this key. Nothing is verified yet."""

    protected: str
    signature: bytes
    alg: str
    kid: str
    jku: str


def claim_in(entry: Json) -> SignatureClaim:
    """Reads one entry of `signatures`. Raises `Refused` if it is not valid."""
    if not isinstance(entry, dict):
        raise Refused("it is no object")
    protected, signature = entry.get("protected"), entry.get("signature")
    try:
        header = document_in(_bytes(protected))
    except Uncanonical as exc:
        raise Refused(f"the protected header cannot be read: {exc}") from None
    alg, kid, typ, jku = (header.get(name) for name in ("alg", "kid", "typ", "jku"))
    for name in _FORBIDDEN:
        if name in header:
            raise Refused(f"`{name}` is not understood here")
    if not isinstance(alg, str) or alg not in KINDS:
        raise Refused(f"the algorithm {alg!r} is not one of {', '.join(KINDS)}")
    if not isinstance(kid, str) or not kid:
        raise Refused("it names no key")
    if typ is not None and typ != "JOSE":
        raise Refused(f"it is a {typ!r}, not a signature of a card")
    if jku is not None and not isinstance(jku, str):
        raise Refused("its jku is no text")
    assert isinstance(protected, str)  # noqa: S101  _bytes takes nothing else
    return SignatureClaim(protected, _bytes(signature), alg, kid, jku or "")


class SignedDocument:
    """A received card, with the signatures that it claims to have."""

    def __init__(self, body: bytes | Mapping[str, Json]) -> None:
        """Raises `Uncanonical` if the document cannot be signed."""
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
        self.members = document_in(raw)
        self.claims: list[SignatureClaim] = []
        self.refused: list[str] = []
        """The reasons why the other entries are not valid."""
        listed = self.members.get("signatures")
        if listed is not None and not isinstance(listed, list):
            raise Uncanonical("signatures must be a list")
        self.signed = bool(listed)
        """Whether the document claims to be signed at all."""
        for place, entry in enumerate((listed or [])[:MOST_SIGNATURES]):
            try:
                self.claims.append(claim_in(entry))
            except Refused as exc:
                self.refused.append(f"signature {place + 1}: {exc}")
        self._payloads: dict[str, bytes] = {}

    def payload(self, form: str) -> bytes:
        """Returns the bytes that a signer of this form would have signed."""
        if form not in self._payloads:
            self._payloads[form] = payload(self.members, form)
        return self._payloads[form]

    def proved(
        self, claim: SignatureClaim, key: Key, forms: tuple[str, ...] = tuple(FORMS)
    ) -> str | None:
        """Returns the form in which this key signed the document, or None if it did not."""
        if key.alg != claim.alg or key.kid != claim.kid:
            return None
        algorithm = JWSRegistry.algorithms[key.alg]
        for form in forms:
            signing = f"{claim.protected}.{_text(self.payload(form))}".encode()
            try:
                if algorithm.verify(signing, claim.signature, key.key):
                    return form
            except (JoseError, ValueError):
                return None
        return None

    def card(self, forms: Iterable[str]) -> Card:
        """Returns the card as it was signed in these forms, without members that no signature
        covers."""
        whole: dict[str, Any] = {}
        for form in forms:
            whole = _joined(whole, FORMS[form].restored(document_in(self.payload(form))))
        return cards.card_in(msgspec.json.encode(whole))

    def uncovered(self, forms: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the members of our `Card` that readers use although no signature in these forms
        covers them. Some forms leave out empty members."""
        found: dict[str, None] = {}
        for version in versions_in(self.members):
            own = [form for form in forms if FORMS[form].version == version]
            found |= dict.fromkeys(_differences(self._seen(version), self.card(own or forms)))
        return tuple(found)

    def contradicted(self, forms: tuple[str, ...]) -> tuple[str, list[str]] | None:
        """Returns a version without a signature of its own, and the members in which it contradicts
        the version that was signed in these forms."""
        signed = {FORMS[form].version for form in forms}
        for version in versions_in(self.members):
            for other in signed if version not in signed else ():
                if names := _differences(self._seen(version), self._seen(other)):
                    return version, names
        return None

    def _seen(self, version: str) -> Card:
        """Returns the card as readers of this version see it."""
        model = next(form.model for form in FORMS.values() if form.version == version)
        return cards.card_in(msgspec.json.encode(model.read(self.members, "")))


def _differences(read: Card, known: Card) -> list[str]:
    """Returns the members in which a card differs from another one, or has more."""
    return [
        name
        for name in Card.__struct_fields__
        if name != "signatures"
        and (
            # Interfaces for readers of other versions are not compared.
            not set(read.interfaces) <= set(known.interfaces)
            if name == "interfaces"
            else getattr(read, name) != getattr(known, name)
        )
    ]


def _joined(one: Any, other: Any) -> Any:
    """Joins two views of one document, without the members that only one of them has."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            name: _joined(one[name], other[name])
            if name in one and name in other
            else one.get(name, other.get(name))
            for name in (*one, *(name for name in other if name not in one))
        }
    if isinstance(one, list) and isinstance(other, list) and _names(one) == _names(other):
        return [_joined(*pair) for pair in zip(one, other, strict=True)]
    return one


def _names(listed: list[Any]) -> list[Any]:
    """Returns what identifies the members of a list, so that different ones are not joined."""
    return [(e.get("id"), e.get("uri")) if isinstance(e, dict) else e for e in listed]


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: Json) -> bytes:
    """Decodes base64 strictly: there is one text for each value (RFC 7515 §2)."""
    if not isinstance(text, str) or len(text) > MOST_CHARS or not _BASE64URL.fullmatch(text):
        raise Refused("it is not base64url")
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise Refused("it is not base64url") from None
    if _text(raw) != text:
        raise Refused("it is not base64url")
    return raw
