"""Forged signatures: each a case of its own, and not one of them gets through."""

from __future__ import annotations

import copy
import json
from base64 import urlsafe_b64decode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc import jwk

from cards import forge
from cards.forge import NOW, ORIGIN, by, entry, header, hmac_with, key, public, signed
from counts import count
from dialects import strategies
from dragoman.core.errors import CardUntrusted
from dragoman.dialects.a2a.cards import documents, signatures
from dragoman.dialects.a2a.cards.canonical import Uncanonical
from dragoman.security.card_trust import Trust

Case = Callable[[], dict[str, Any] | bytes]
EVIL = key("evil")
"""A key that nobody trusts."""
RSA = key("rsa", "RS256")
ED = key("ed", "EdDSA")
TRUSTED = [public(key("good")), public(RSA), public(ED)]


def with_entry(*entries: dict[str, Any]) -> dict[str, Any]:
    return {**signed(), "signatures": list(entries)}


def altered(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    document = copy.deepcopy(signed())
    change(document)
    return document


def resigned(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """With something changed about its good signature."""
    document = copy.deepcopy(signed())
    change(document["signatures"][0])
    return document


def raw_signature(document: dict[str, Any]) -> bytes:
    said = document["signatures"][0]["signature"]
    return urlsafe_b64decode(said + "=" * (-len(said) % 4))


def der(entry_: dict[str, Any]) -> None:
    raw = urlsafe_b64decode(entry_["signature"] + "==")
    r, s = int.from_bytes(raw[:32]), int.from_bytes(raw[32:])
    entry_["signature"] = forge.text(encode_dss_signature(r, s))


def trailing_bits(entry_: dict[str, Any]) -> None:
    """Another text for the same bytes: 64 of them leave four bits that mean nothing."""
    last = entry_["signature"][-1]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    entry_["signature"] = entry_["signature"][:-1] + alphabet[alphabet.index(last) ^ 1]


def pem(said: dict[str, Any]) -> bytes:
    imported: Any = jwk.import_key(said)
    return bytes(imported.as_pem(private=False))


def doubled(name: str) -> bytes:
    """The signed card with a member that stands twice: readers differ in which of them counts."""
    body = json.dumps(signed())
    return body.replace("{", f'{{"{name}": "Another", ', 1).encode()


def by_evil(**more: Any) -> dict[str, Any]:
    return with_entry(entry(header(**more), by(EVIL)))


CASES: dict[str, Case] = {
    # algorithms
    "alg none, no signature": lambda: with_entry(entry(header("none"), lambda _: b"")),
    "alg none, some signature": lambda: with_entry(entry(header("none"), by(EVIL))),
    "alg None": lambda: with_entry(entry(header("None"), lambda _: b"x")),
    "alg missing": lambda: with_entry(entry({"kid": "good"}, by(key("good")))),
    "alg a list": lambda: with_entry(entry({"kid": "good", "alg": ["ES256"]}, by(key("good")))),
    "HS256 with the RSA key as PEM": lambda: with_entry(
        entry(header("HS256", "rsa"), hmac_with(pem(RSA)))
    ),
    "HS256 with the EC key as PEM": lambda: with_entry(
        entry(header("HS256"), hmac_with(pem(key("good"))))
    ),
    "HS256 with the key as JSON": lambda: with_entry(
        entry(header("HS256", "rsa"), hmac_with(json.dumps(public(RSA)).encode()))
    ),
    "HS256 with an empty secret": lambda: with_entry(entry(header("HS256"), hmac_with(b""))),
    "RS256 header for an EC key": lambda: with_entry(entry(header("RS256"), by(key("good")))),
    "ES256 header for an RSA key": lambda: with_entry(entry(header("ES256", "rsa"), by(RSA))),
    "EdDSA header for an RSA key": lambda: with_entry(entry(header("EdDSA", "rsa"), by(RSA))),
    "PS256 with a good RSA key": lambda: with_entry(
        entry(header("PS256", "rsa"), by(RSA, "PS256"))
    ),
    "RS512 with a good RSA key": lambda: with_entry(
        entry(header("RS512", "rsa"), by(RSA, "RS512"))
    ),
    "RS256 header, PSS signature": lambda: with_entry(
        entry(header("RS256", "rsa"), by(RSA, "PS256"))
    ),
    # keys that the signer brings along
    "another key under a good name": by_evil,
    "embedded jwk": lambda: by_evil(jwk=public(EVIL)),
    "embedded jwk with its own name": lambda: by_evil(kid="evil", jwk=public(EVIL)),
    "embedded x5c": lambda: by_evil(x5c=["MIIB"]),
    "x5u": lambda: by_evil(x5u="https://evil.example/cert.pem"),
    "jku of the attacker": lambda: by_evil(kid="evil", jku="https://evil.example/jwks.json"),
    "jku that begins like a good one": lambda: by_evil(
        kid="evil", jku="https://keys.example.evil.example/jwks.json"
    ),
    "jku with a good name as user": lambda: by_evil(
        kid="evil", jku="https://keys.example@evil.example/jwks.json"
    ),
    "jku over http": lambda: by_evil(kid="evil", jku="http://keys.example/jwks.json"),
    "jku at another port": lambda: by_evil(kid="evil", jku="https://keys.example:8443/jwks.json"),
    "jku a list": lambda: by_evil(kid="evil", jku=["https://keys.example/jwks.json"]),
    "key in the unprotected header": lambda: with_entry(
        entry({"typ": "JOSE"}, by(key("good")), header={"alg": "ES256", "kid": "good"})
    ),
    "jwk in the unprotected header": lambda: with_entry(
        entry(header(kid="evil"), by(EVIL), header={"jwk": public(EVIL)})
    ),
    # names
    "kid missing": lambda: with_entry(entry({"alg": "ES256"}, by(key("good")))),
    "kid empty": lambda: with_entry(entry(header(kid=""), by(key("good")))),
    "kid a number": lambda: with_entry(entry(header(kid=7), by(key("good")))),
    "kid a path": lambda: with_entry(entry(header(kid="../../dev/null"), by(EVIL))),
    "kid with SQL": lambda: with_entry(entry(header(kid="x' OR 1=1 --"), by(EVIL))),
    # header extensions
    "crit with an unknown name": lambda: with_entry(
        entry(header(crit=["exp"], exp=1), by(key("good")))
    ),
    "crit empty": lambda: with_entry(entry(header(crit=[]), by(key("good")))),
    "b64 false": lambda: with_entry(entry(header(b64=False, crit=["b64"]), by(key("good")))),
    "b64 false without crit": lambda: with_entry(entry(header(b64=False), by(key("good")))),
    "typ of a token": lambda: with_entry(entry(header() | {"typ": "JWT"}, by(key("good")))),
    "a member of the header twice": lambda: with_entry(
        entry('{"alg":"none","alg":"ES256","kid":"good"}', by(key("good")))
    ),
    "header a list": lambda: with_entry(entry('["ES256"]', by(key("good")))),
    "header no JSON": lambda: with_entry(entry("alg=ES256;kid=good", by(key("good")))),
    # encodings
    "signature as DER": lambda: resigned(der),
    "signature cut short": lambda: resigned(lambda e: e.update(signature=e["signature"][:-4])),
    "signature of zeros": lambda: resigned(lambda e: e.update(signature=forge.text(bytes(64)))),
    "signature empty": lambda: resigned(lambda e: e.update(signature="")),
    "signature missing": lambda: resigned(lambda e: e.pop("signature")),
    "signature with padding": lambda: resigned(lambda e: e.update(signature=e["signature"] + "==")),
    "signature with a line end": lambda: resigned(
        lambda e: e.update(signature=e["signature"] + "\n")
    ),
    "signature in another spelling": lambda: resigned(trailing_bits),
    "protected missing": lambda: resigned(lambda e: e.pop("protected")),
    "protected of another signature": lambda: resigned(
        lambda e: e.update(
            protected=signed(jku="https://keys.example/j")["signatures"][0]["protected"]
        )
    ),
    "an entry that is a text": lambda: {**signed(), "signatures": ["eyJhbGciOiJub25lIn0.."]},
    "signatures an object": lambda: {**signed(), "signatures": signed()["signatures"][0]},
    "signature of another card": lambda: with_entry(
        entry(header(), by(key("good")), {**signed(), "name": "Another"})
    ),
    "the good one behind too many": lambda: {
        **signed(),
        "signatures": [*(entry(header(kid="evil"), by(EVIL)),) * 16, *signed()["signatures"]],
    },
    # the card
    "name altered": lambda: altered(lambda d: d.update(name="Travel Desk")),
    "description altered by one accent": lambda: altered(
        lambda d: d.update(description=d["description"].replace("ö", "o\u0308"))
    ),
    "address altered": lambda: altered(
        lambda d: d["supportedInterfaces"][0].update(url="https://evil.example/")
    ),
    "address added": lambda: altered(
        lambda d: d["supportedInterfaces"].insert(
            0, {**d["supportedInterfaces"][0], "url": "https://evil.example/"}
        )
    ),
    "addresses in another order": lambda: altered(lambda d: d["supportedInterfaces"].reverse()),
    "skill added": lambda: altered(lambda d: d["skills"].append({**d["skills"][0], "id": "x"})),
    "skills removed": lambda: altered(lambda d: d.pop("skills")),
    "security requirement removed": lambda: altered(lambda d: d.pop("securityRequirements")),
    "security scheme altered": lambda: altered(
        lambda d: d["securitySchemes"]["keys"]["apiKeySecurityScheme"].update(location="query")
    ),
    "capability altered": lambda: altered(lambda d: d["capabilities"].update(streaming=False)),
    "number in an extension altered": lambda: altered(
        lambda d: d["capabilities"]["extensions"][0]["params"].update(n=2)
    ),
    "a name twice": lambda: doubled("name"),
    "an unknown name twice": lambda: doubled('x": 1, "x'),
    "NaN in an extension": lambda: json.dumps(
        altered(lambda d: d["capabilities"]["extensions"][0]["params"].update(n=float("nan")))
    ).encode(),
    "a name that is no text": lambda: altered(lambda d: d.update(name=["Travel desk"])),
    "a lone surrogate": lambda: json.dumps(altered(lambda d: d.update(name="\ud800"))).encode(),
    "nested without end": lambda: b'{"signatures":[' + b"[" * 100_000,
    # stripped; this host was seen signed
    "signatures removed": lambda: altered(lambda d: d.pop("signatures")),
    "signatures empty": lambda: {**signed(), "signatures": []},
    "signatures null": lambda: {**signed(), "signatures": None},
}


async def never(url: str) -> bytes:
    raise AssertionError(f"{url} was asked for keys")


@pytest.fixture
async def trust(tmp_path: Path) -> Trust:
    """The most lenient policy that checks at all, at a host whose card was proved before."""
    made = Trust(
        "if-present",
        keys=TRUSTED,
        jku=["https://keys.example/jwks.json"],
        pins=tmp_path / "pins.jsonl",
        fetch=never,
        clock=lambda: NOW,
    )
    assert (await made.check(signed(), ORIGIN)).proved
    return made


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 30


@pytest.mark.parametrize("case", CASES)
async def test_a_forged_signature_is_refused(case: str, trust: Trust) -> None:
    with pytest.raises(CardUntrusted) as refused:
        await trust.check(CASES[case](), ORIGIN)
    assert refused.value.public["why"] in ("invalid", "unknown_key", "stripped", "unreadable")


@pytest.mark.parametrize("name", ["good", "rsa", "ed"])
async def test_honest_signatures_of_every_algorithm_hold(name: str, trust: Trust) -> None:
    maker = {"good": key("good"), "rsa": RSA, "ed": ED}[name]
    verdict = await trust.check(signed(by=maker), ORIGIN)
    assert (verdict.proved, verdict.kid, verdict.alg) == (True, name, maker["alg"])


@given(strategies.cards, st.data())
@settings(max_examples=count(10, 40, 500), deadline=None)
def test_no_single_byte_can_be_changed(card: Any, data: st.DataObject) -> None:
    """Whatever a reader of the altered document would believe, it is what was signed."""
    maker = signatures.key_in(ED)
    try:
        body = bytearray(documents.merged(signatures.signed(card, maker)))
    except Uncanonical:  # it holds a number above 2**53, which nobody can sign
        return
    honest, meant = signatures.SignedDocument(bytes(body)), {}
    for form in signatures.FORMS:
        with suppress(Uncanonical):  # not in every form, and then nobody has signed that one
            meant[form] = honest.payload(form)
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        document = signatures.SignedDocument(bytes(body))
        proved = [document.proved(claim, maker) for claim in document.claims]
    except Uncanonical:
        return
    for form in filter(None, proved):
        assert document.payload(form) == meant.get(form)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@settings(max_examples=count(20, 100))
def test_any_bytes_are_a_document_or_are_refused(body: bytes) -> None:
    for raw in (body, b'{"signatures":[' + body + b"]}", b'{"signatures":' + body + b"}"):
        with suppress(Uncanonical):
            signatures.SignedDocument(raw)


async def test_one_good_signature_among_bad_ones_is_enough(trust: Trust) -> None:
    bad = entry(header("none"), lambda _: b"x"), entry(header(kid="evil"), by(EVIL))
    document = with_entry(*bad, *signed()["signatures"])
    assert (await trust.check(document, ORIGIN)).kid == "good"


async def test_what_no_signature_covers_is_not_handed_on(trust: Trust) -> None:
    """A card that names no address of 0.3 is for readers of 1.0 alone, who ignore all else."""
    document = altered(lambda d: d.pop("url"))
    document["additionalInterfaces"] = [{"url": "https://evil.example/", "transport": "GRPC"}]
    document["skills"][0]["security"] = [{}]
    document["made-up"] = "https://evil.example/"
    verdict = await trust.check(document, ORIGIN)
    assert verdict.proved
    assert "evil" not in repr(verdict.card)
    assert verdict.card.security == ({"keys": ()},)


async def test_the_stripping_form_hands_on_only_what_it_covers(tmp_path: Path) -> None:
    """It does not cover requirements without scopes, so they are not in what is proved by it."""
    document = {**signed(), "signatures": [entry(header(), by(key("good")), form="stripped")]}
    document["securityRequirements"] = document["security"] = [{}]
    lenient = Trust("require", keys=TRUSTED, fetch=never, clock=lambda: NOW)
    verdict = await lenient.check(document, ORIGIN)
    assert (verdict.form, verdict.card.security) == ("stripped", ())
    assert "security" in verdict.uncovered
    strict = Trust("require", keys=TRUSTED, strict=True, fetch=never, clock=lambda: NOW)
    with pytest.raises(CardUntrusted):
        await strict.check(document, ORIGIN)
