"""A merged card speaks to readers of 1.0 and of 0.3: what either of them uses is signed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from msgspec.structs import replace

from cards.forge import CARD, NOW, ORIGIN, by, entry, header, key, public
from counts import QUICK
from dragoman.core.card import HttpAuth, Interface, MutualTls, OAuth2, OAuthFlow, OpenId
from dragoman.core.errors import CardUntrusted
from dragoman.dialects.a2a.cards import documents, signatures
from dragoman.dialects.a2a.cards.canonical import document_in
from dragoman.dialects.a2a.cards.signatures import FORMS
from dragoman.security.card_trust import Trust, TrustVerdict

GOOD = signatures.key_in(key("good"))
EVIL = "https://evil.example/"
RICH = replace(
    CARD,
    interfaces=(
        Interface(url=ORIGIN, binding="HTTP+JSON", version="0.3"),
        *CARD.interfaces,
    ),
    extended=True,
    schemes={
        **CARD.schemes,
        "tokens": HttpAuth(scheme="bearer", bearer_format="JWT"),
        "certs": MutualTls(),
        "sso": OpenId(url="https://id.example/.well-known/openid-configuration"),
        "oauth": OAuth2(
            flows=(
                OAuthFlow(kind="clientCredentials", token_url="https://id.example/token"),
                OAuthFlow(kind="password", token_url="https://id.example/token"),
            )
        ),
    },
    security=({"keys": (), "certs": ()}, {"oauth": ("book",)}),
    skills=(replace(CARD.skills[0], security=({"keys": ()},)),),
)


def trusting(**options: Any) -> Trust:
    return Trust("require", keys=[public(key("good"))], clock=lambda: NOW, **options)


def merged(**options: Any) -> dict[str, Any]:
    return document_in(documents.merged(signatures.signed(RICH, GOOD, **options)))


def only_0_3() -> dict[str, Any]:
    """As an agent of 0.3 alone would publish it."""
    document = document_in(documents.merged(RICH))
    kept = signatures.FORMS["0.3"].model.read(document, "")
    assert isinstance(kept, dict)
    return kept


def test_each_version_has_a_signature_and_sdks_have_theirs() -> None:
    def forms(document: dict[str, Any]) -> list[str | None]:
        found = signatures.SignedDocument(document)
        return [found.proved(claim, GOOD) for claim in found.claims]

    assert forms(merged(compatible=False))[:2] == ["strict", "0.3"]
    assert [form for form in forms(merged()) if form] == ["strict", "0.3", "stripped", "0.3-sdk"]
    new = replace(RICH, interfaces=RICH.interfaces[1:2])
    assert forms(document_in(documents.merged(signatures.signed(new, GOOD)))) == [
        "strict",
        "stripped",
    ]


async def test_every_document_that_is_served_is_proved_whole() -> None:
    card = signatures.signed(RICH, GOOD)
    for out, versions in (
        (documents.pure_1_0, ("1.0",)),
        (documents.merged, ("1.0", "0.3")),
        (documents.legacy, ("1.0", "0.3")),
    ):
        for strict in (True, False):
            verdict = await trusting(strict=strict).check(out(card), ORIGIN)
            assert (verdict.proved, sorted(verdict.versions)) == (True, sorted(versions))
            assert verdict.uncovered == ()
            assert verdict.card == replace(documents.card_in(out(card)), signatures=())


async def test_a_card_of_0_3_alone_keeps_its_addresses() -> None:
    for form in ("0.3", "0.3-sdk"):
        document = only_0_3()
        made = signatures.sign(document, GOOD, form=form)
        document["signatures"] = [{"protected": made.protected, "signature": made.signature}]
        verdict = await trusting().check(document, ORIGIN)
        assert (verdict.form, verdict.versions) == (form, ("0.3",))
        whole = documents.card_in(documents.merged(RICH))
        old = tuple(each for each in whole.interfaces if each.version == "0.3")
        assert verdict.card.interfaces == old
        if form == "0.3":
            assert verdict.uncovered == ()
            assert verdict.card.schemes == whole.schemes
            assert verdict.card.security == whole.security


async def test_a_signature_that_covers_no_address_is_none() -> None:
    """As `card sign` made them: over the members of 1.0, of which a card of 0.3 has few."""
    document = only_0_3()
    document["signatures"] = [entry(header(), by(key("good")), document)]
    with pytest.raises(CardUntrusted, match=r"readers of 0\.3 use: interfaces"):
        await trusting().check(document, ORIGIN)


Change = Callable[[dict[str, Any]], object]
CHANGES: dict[str, Change] = {
    "url": lambda d: d.update(url=EVIL),
    "preferredTransport": lambda d: d.update(preferredTransport="GRPC"),
    "additionalInterfaces": lambda d: d["additionalInterfaces"].append(
        {"url": EVIL, "transport": "JSONRPC"}
    ),
    "an interface altered": lambda d: d["additionalInterfaces"][0].update(url=EVIL),
    "security gone": lambda d: d.pop("security"),
    "security opened": lambda d: d.update(security=[{}]),
    "security altered": lambda d: d.update(security=[{"tokens": []}]),
    "a skill's security": lambda d: d["skills"][0].update(security=[{}]),
    "where a key goes": lambda d: d["securitySchemes"]["keys"].update({"in": "query"}),
    "a scheme's type": lambda d: d["securitySchemes"]["certs"].update(type="http", scheme="basic"),
    "a scheme gone": lambda d: d["securitySchemes"].pop("certs"),
    "a scheme more": lambda d: d["securitySchemes"].update(other={"type": "mutualTLS"}),
    "where tokens come from": lambda d: d["securitySchemes"]["oauth"]["flows"]["password"].update(
        tokenUrl=EVIL
    ),
    "the extended card": lambda d: d.update(supportsAuthenticatedExtendedCard=False),
    "supportedInterfaces": lambda d: d["supportedInterfaces"][0].update(url=EVIL),
    "securityRequirements": lambda d: d.update(securityRequirements=[{}]),
    "the name": lambda d: d.update(name="Another"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
async def test_nothing_that_readers_of_either_version_use_can_be_changed(change: Change) -> None:
    """Whatever signatures an attacker takes away with it."""
    honest = merged()
    lenient, strict = trusting(), trusting(strict=True)
    entries = honest["signatures"]
    counts = (1, len(entries)) if QUICK else range(1, len(entries) + 1)
    for some in [list(some) for n in counts for some in combinations(entries, n)]:
        document = {**copy.deepcopy(honest), "signatures": some}
        change(document)
        verdict = await _verdict(lenient, document)
        assert verdict is None or verdict.uncovered, some
        assert await _verdict(strict, document) is None
        if verdict is not None:
            # Only the forms of a2a-sdk leave something out, and then nobody is handed it.
            assert FORMS[verdict.form].version == verdict.versions[0]
            assert "evil" not in repr(verdict.card)


async def _verdict(trust: Trust, document: dict[str, Any]) -> TrustVerdict | None:
    try:
        return await trust.check(document, ORIGIN)
    except CardUntrusted:
        return None


async def test_a_version_without_a_signature_must_say_what_the_other_says() -> None:
    """Others sign merged cards as 1.0 has it alone; that suffices if nothing contradicts it."""
    plain = replace(RICH, schemes=CARD.schemes, security=CARD.security)
    made = signatures.signed(plain, GOOD, compatible=False)
    made = replace(made, signatures=made.signatures[:1])
    document = document_in(documents.merged(made))
    verdict = await trusting().check(document, ORIGIN)
    assert (verdict.versions, verdict.uncovered) == (("1.0",), ())
    with pytest.raises(CardUntrusted, match=r"readers of 0\.3 use: interfaces"):
        await trusting().check({**document, "url": EVIL}, ORIGIN)
