"""Whom a card is believed: policies, where keys come from, and who must go on signing."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import RSAKey, import_key

from cards.forge import CARD, NOW, ORIGIN, by, entry, header, key, public, signed
from dragoman.core.errors import CardUntrusted, ConfigError
from dragoman.dialects.a2a.cards import documents, signatures
from dragoman.dialects.a2a.cards.canonical import document_in
from dragoman.security.card_signing import new_key, save
from dragoman.security.card_trust import Trust, origin_of

UNSIGNED = document_in(documents.merged(CARD))
KEYS = "https://keys.example/jwks.json"


class Sets:
    """Key sets at addresses, and who asked for them."""

    def __init__(self, **sets: Any) -> None:
        self.at: dict[str, Any] = dict(sets)
        self.asked: list[str] = []

    async def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        if url not in self.at:
            raise ValueError("nobody is there")
        return json.dumps({"keys": self.at[url]}).encode()


def trusting(policy: Any = "require", **more: Any) -> Trust:
    return Trust(policy, **{"fetch": Sets(), "clock": lambda: NOW, **more})


async def why(trust: Trust, card: Mapping[str, Any], origin: str = ORIGIN) -> str:
    """The word for its refusal; `proved` or `taken` if there is none."""
    try:
        return "proved" if (await trust.check(card, origin)).proved else "taken"
    except CardUntrusted as exc:
        return exc.public["why"]


@pytest.mark.parametrize(
    ("policy", "unsigned", "good", "unknown"),
    [
        ("require", "unsigned", "proved", "unknown_key"),
        ("if-present", "taken", "proved", "unknown_key"),
        ("ignore", "taken", "taken", "taken"),
    ],
)
async def test_policies(policy: str, unsigned: str, good: str, unknown: str) -> None:
    trust = trusting(policy, keys=[public(key("good"))])
    assert await why(trust, UNSIGNED) == unsigned
    assert await why(trust, signed()) == good
    assert await why(trust, signed(by=key("evil"))) == unknown


def test_a_policy_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="require"):
        Trust("always")  # type: ignore[arg-type]


async def test_the_card_may_come_as_bytes_and_is_read_whole() -> None:
    trust = trusting(keys=[public(key("good"))])
    verdict = await trust.check(json.dumps(signed()).encode(), f"{ORIGIN}/any/path")
    assert verdict.card.name == CARD.name
    assert verdict.card.skills == CARD.skills
    assert verdict.card.interfaces == CARD.interfaces
    assert (verdict.kid, verdict.alg, verdict.form) == ("good", "ES256", "strict")


async def test_keys_from_files_of_every_kind(tmp_path: Path) -> None:
    single, many = tmp_path / "one.jwk", tmp_path / "all.jwks"
    single.write_text(json.dumps(public(key("good"))))
    many.write_text(json.dumps({"keys": [public(key("evil")), public(key("good"))]}))
    for source in (single, str(many)):
        assert await why(trusting(keys=[source]), signed()) == "proved"
    made = new_key("ES256", NOW)
    save(tmp_path / "private.jwk", made)  # a private key's public half counts too
    assert await why(trusting(keys=[tmp_path / "private.jwk"]), signed(by=made)) == "proved"
    for text in ("", "[]", '{"keys": 5}', '{"kty": "oct", "k": "AAAA"}', "-----BEGIN X-----"):
        single.write_text(text)
        with pytest.raises(ConfigError):
            trusting(keys=[single])
    with pytest.raises(ConfigError):
        trusting(keys=["nowhere.jwk"])


async def test_keys_from_a_set_at_an_address_we_chose() -> None:
    sets = Sets(**{KEYS: [public(key("good"))]})
    trust = trusting(keys=[KEYS], fetch=sets)
    assert [await why(trust, signed()) for _ in range(3)] == ["proved"] * 3
    assert sets.asked == [KEYS]


async def test_a_key_made_after_the_set_was_fetched_is_found() -> None:
    sets = Sets(**{KEYS: [public(key("good"))]})
    trust = trusting(keys=[KEYS], fetch=sets)
    assert await why(trust, signed()) == "proved"
    sets.at[KEYS].append(public(key("newer")))
    source = trust._source(KEYS)
    source._tried = None  # as if the pause between two looks were over
    assert await why(trust, signed(by=key("newer"))) == "proved"
    assert await why(trust, signed()) == "proved"
    assert len(sets.asked) == 2


@pytest.mark.parametrize(
    ("allowed", "jku", "verdict"),
    [
        ([], KEYS, "unknown_key"),
        ([KEYS], KEYS, "proved"),
        (["https://keys.example"], KEYS, "proved"),
        (["https://keys.example/"], KEYS, "proved"),
        (["https://keys.example/other.json"], KEYS, "unknown_key"),
        (["self"], f"{ORIGIN}/.well-known/jwks.json", "proved"),
        (["self"], KEYS, "unknown_key"),
        (["https://keys.example"], "https://keys.example:444/jwks.json", "unknown_key"),
        (["https://keys.example"], "http://keys.example/jwks.json", "unknown_key"),
        (["https://keys.example"], "keys.example", "unknown_key"),
    ],
)
async def test_only_key_sets_that_were_allowed_are_asked(
    allowed: list[str], jku: str, verdict: str
) -> None:
    sets = Sets(**{jku: [public(key("good"))]})
    trust = trusting(jku=allowed, fetch=sets)
    assert await why(trust, signed(jku=jku)) == verdict
    assert sets.asked == ([jku] if verdict == "proved" else [])


async def test_a_key_set_that_does_not_answer_proves_nothing() -> None:
    trust = trusting(jku=[KEYS])
    with pytest.raises(CardUntrusted, match="gives no keys"):
        await trust.check(signed(jku=KEYS), ORIGIN)


async def test_key_sets_come_over_https_and_from_no_private_network() -> None:
    for url in ("http://keys.example/jwks.json", "https://127.0.0.1/jwks.json"):
        trust = Trust("require", keys=[url])
        assert await why(trust, signed()) == "unknown_key"
        await trust.close()


async def test_one_card_makes_us_fetch_little() -> None:
    sets = Sets()
    entries = [
        signed(by=key(f"k{n}"), jku=f"https://keys.example/{n}")["signatures"][0] for n in range(10)
    ]
    trust = trusting(jku=["https://keys.example"], fetch=sets)
    assert await why(trust, {**signed(), "signatures": entries}) == "unknown_key"
    assert len(sets.asked) == 3


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ({"exp": NOW + 1, "nbf": NOW - 1}, "proved"),
        ({"exp": NOW - 1}, "unknown_key"),
        ({"nbf": NOW + 60}, "unknown_key"),
        ({"revoked": {"reason": "superseded"}}, "unknown_key"),
    ],
)
async def test_keys_have_their_time(more: dict[str, Any], verdict: str) -> None:
    assert await why(trusting(keys=[public(key("good"), **more)]), signed()) == verdict


async def test_keys_of_a_set_that_are_for_something_else_do_not_count() -> None:
    for more in ({"use": "enc"}, {"alg": "ES384"}, {"kid": 5}):
        sets = Sets(**{KEYS: [public(key("good"), **more)]})
        assert await why(trusting(keys=[KEYS], fetch=sets), signed()) == "unknown_key"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"use": "enc"}, "not for signatures"),
        ({"kty": "oct", "k": "c2VjcmV0"}, "no key for"),
        ({"crv": "P-384"}, "no key for"),
        ({"alg": "HS256"}, "no key for"),
        ({"x": "AAAA"}, "not a key"),
        ({"x": 5}, "not a key"),
        ({"kid": 5}, "kid is no text"),
    ],
)
def test_what_is_no_key_for_cards(change: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        trusting(keys=[public(key("good"), **change)])


def test_a_short_rsa_key_is_none() -> None:
    with warnings.catch_warnings(action="ignore"):
        short: Any = RSAKey.generate_key(1024)
    with pytest.raises(ConfigError, match="2048 bits"):
        trusting(keys=[short.as_dict(private=False)])


async def test_keys_in_pem(tmp_path: Path) -> None:
    for alg in ("ES256", "EdDSA", "RS256"):
        made = new_key(alg, NOW)
        imported: Any = import_key(made)
        path = tmp_path / f"{alg}.pem"
        path.write_bytes(imported.as_pem(private=False))
        # PEM has no place for a name: it is the thumbprint, as `keys new` has it too.
        assert await why(trusting(keys=[path]), signed(by=made)) == "proved"


async def test_a_compatible_signature_stands_beside_the_strict_one() -> None:
    maker = signatures.key_in(key("good"))
    both = document_in(documents.pure_1_0(signatures.signed(CARD, maker)))
    trust = trusting(keys=[public(key("good"))])
    assert (await trust.check(both, ORIGIN)).form == "strict"
    both["signatures"] = both["signatures"][1:]
    assert (await trust.check(both, ORIGIN)).form == "stripped"
    bare = signatures.signed(CARD, maker, compatible=False)
    assert len(bare.signatures) == 2  # one for readers of 1.0, one for those of 0.3


async def test_a_proved_document_that_is_no_card_is_refused() -> None:
    odd = {"capabilities": {"extensions": [{"description": "without a name"}]}}
    made = entry(header(), by(key("good")), odd)
    assert await why(trusting(keys=[public(key("good"))]), {**odd, "signatures": [made]}) == (
        "unreadable"
    )


async def test_a_key_may_count_for_one_origin_only() -> None:
    trust = trusting(keys={ORIGIN: [public(key("good"))], "*": [public(key("all"))]})
    assert await why(trust, signed(), f"{ORIGIN}:443/agents/x") == "proved"
    assert await why(trust, signed(), "https://other.example") == "unknown_key"
    assert await why(trust, signed(by=key("all")), "https://other.example") == "proved"


# Rotation.


async def test_rotation() -> None:
    """Both keys are published while old cards are about; then the old one goes."""
    old, new = key("2026"), key("2027")
    during = trusting(keys=[public(new), public(old)])
    assert await why(during, signed(by=old)) == "proved"
    assert await why(during, signed(by=new)) == "proved"
    after = trusting(keys=[public(new)])
    assert await why(after, signed(by=new)) == "proved"
    assert await why(after, signed(by=old)) == "unknown_key"


# Stripping.


async def test_who_was_seen_signed_must_stay_so(tmp_path: Path) -> None:
    pins = tmp_path / "pins.jsonl"
    first = trusting("if-present", keys=[public(key("good"))], pins=pins)
    assert await why(first, UNSIGNED) == "taken"
    assert await why(first, signed()) == "proved"
    assert await why(first, signed()) == "proved"
    assert len(pins.read_text().splitlines()) == 1
    assert pins.stat().st_mode & 0o777 == 0o600

    again = trusting("if-present", keys=[public(key("good"))], pins=pins)
    for trust in (first, again):
        assert await why(trust, UNSIGNED) == "stripped"
        assert await why(trust, UNSIGNED, f"{ORIGIN}:443/other") == "stripped"
        assert await why(trust, UNSIGNED, "https://other.example") == "taken"
        assert await why(trust, signed()) == "proved"


async def test_what_is_refused_pins_nothing(tmp_path: Path) -> None:
    pins = tmp_path / "pins.jsonl"
    trust = trusting("if-present", keys=[public(key("good"))], pins=pins)
    assert await why(trust, signed(by=key("evil"))) == "unknown_key"
    assert not pins.exists()
    assert await why(trust, UNSIGNED) == "taken"


async def test_two_processes_share_the_pins(tmp_path: Path) -> None:
    pins = tmp_path / "pins.jsonl"
    one, two = (trusting("if-present", keys=[public(key("good"))], pins=pins) for _ in range(2))
    assert await why(one, signed(), "https://a.example") == "proved"
    assert await why(two, signed(), "https://b.example") == "proved"
    for trust in (one, two):
        for origin in ("https://a.example", "https://b.example"):
            assert await why(trust, UNSIGNED, origin) == "stripped"


async def test_a_broken_pin_file_forgets_nobody(tmp_path: Path) -> None:
    pins = tmp_path / "pins.jsonl"
    pins.write_text("not json\n")
    trust = trusting("if-present", keys=[public(key("good"))], pins=pins)
    with pytest.raises(ConfigError, match=r"pins\.jsonl"):
        await trust.check(UNSIGNED, ORIGIN)


async def test_a_card_that_is_too_large_is_not_read() -> None:
    trust = trusting(keys=[public(key("good"))])
    assert await why(trust, {**signed(), "x": "y" * 1_100_000}) == "unreadable"


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Desk.Example:443/x", "https://desk.example"),
        ("http://a:80", "http://a"),
        ("https://a:8443/", "https://a:8443"),
        ("https://[::1]:5/", "https://[::1]:5"),
    ],
)
def test_origins(url: str, origin: str) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize("url", ["", "desk", "ftp://a", "https://", "https://a:x", "https://u@a"])
def test_what_is_no_origin(url: str) -> None:
    with pytest.raises(ConfigError):
        origin_of(url)
