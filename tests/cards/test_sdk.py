"""Signatures to and from a2a-sdk 1.3.0 and 0.3.26, by their own signers and verifiers, in
environments of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cards.forge import CARD, NOW, ORIGIN, key, public
from cards.test_both_versions import RICH
from dragoman.core.card import Card
from dragoman.core.errors import CardUntrusted
from dragoman.dialects.a2a.cards import documents, signatures
from dragoman.dialects.a2a.cards.canonical import document_in
from dragoman.security.card_trust import Trust
from interop.peers import A2A_SDK, A2A_SDK_0_3, Peer, PeerUnavailable

ALGORITHMS = ("ES256", "EdDSA", "RS256")

pytestmark = pytest.mark.slow


def keyed(alg: str) -> dict[str, Any]:
    return key(f"sdk-{alg}", alg)


def asked(folder: Path, peer: Peer = A2A_SDK, **question: Any) -> Any:
    path = folder / "question.json"
    path.write_text(json.dumps(question), "utf-8")
    script = "sdk_signer.py" if peer is A2A_SDK else "sdk_signer_0_3.py"
    try:
        done = peer.run(Path(__file__).with_name(script), str(path), timeout=300)
    except PeerUnavailable as exc:
        pytest.skip(str(exc))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def jwk(said: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if name != "iat"}


def plain() -> dict[str, Any]:
    """A card without what the two canonical forms write differently: nothing in it is empty."""
    document = document_in(documents.pure_1_0(CARD))
    document["capabilities"]["extensions"][0]["params"] = {
        "n": 1,
        "x": 0.5,
        "é": [1e21, -0.0, True],
    }
    del document["securityRequirements"]  # without scopes it strips to nothing
    return document


def test_the_sdk_takes_what_we_sign(tmp_path: Path) -> None:
    made = []
    for said in map(keyed, ALGORITHMS):
        signature = signatures.sign(plain(), signatures.key_in(said), f"{ORIGIN}/jwks.json")
        entry = {"protected": signature.protected, "signature": signature.signature}
        made.append({**plain(), "signatures": [entry]})
    altered = {**made[0], "name": "Another"}
    told = asked(
        tmp_path,
        do="verify",
        keys=[jwk(public(keyed(alg))) for alg in ALGORITHMS],
        cards=[*made, altered, plain()],
    )
    assert told == ["ok", "ok", "ok", "InvalidSignaturesError", "NoSignatureError"]


@pytest.mark.parametrize("alg", ALGORITHMS)
async def test_we_take_what_the_sdk_signs(tmp_path: Path, alg: str) -> None:
    said = keyed(alg)
    header = {"alg": alg, "kid": said["kid"], "typ": "JOSE", "jku": f"{ORIGIN}/jwks.json"}
    trust = Trust("require", keys=[public(said)], clock=lambda: NOW)
    for card, form in ((plain(), "strict"), (document_in(documents.pure_1_0(CARD)), "stripped")):
        got = asked(tmp_path, do="sign", card=card, key=jwk(said), header=header)
        verdict = await trust.check(got, ORIGIN)
        assert (verdict.proved, verdict.kid, verdict.form) == (True, said["kid"], form)


@pytest.mark.parametrize("card", [CARD, RICH], ids=["plain", "rich"])
def test_the_verifiers_of_both_sdks_take_the_card_as_it_is_served(
    tmp_path: Path, card: Card
) -> None:
    made = signatures.signed(card, signatures.key_in(key("good")))
    shown = [document_in(out(made)) for out in (documents.merged, documents.legacy)]
    changed = [
        {**document, **change}
        for document in shown
        for change in ({"name": "Another"}, {"url": "https://evil.example/"})
    ]
    keys = [jwk(public(key("good")))]
    for peer in (A2A_SDK, A2A_SDK_0_3):
        told = asked(tmp_path, peer, do="verify", keys=keys, cards=[*shown, *changed])
        # Readers of 1.0 do not look at `url`.
        url = "ok" if peer is A2A_SDK else REFUSED
        assert told == ["ok", "ok", *2 * [REFUSED, url]], peer.name


REFUSED = "InvalidSignaturesError"


@pytest.mark.parametrize("alg", ALGORITHMS)
async def test_we_take_what_the_sdk_of_0_3_signs(tmp_path: Path, alg: str) -> None:
    said = keyed(alg)
    header = {"alg": alg, "kid": said["kid"], "typ": "JOSE", "jku": f"{ORIGIN}/jwks.json"}
    trust = Trust("require", keys=[public(said)], clock=lambda: NOW)
    for card in (CARD, RICH):
        document = document_in(documents.merged(card))
        got = asked(tmp_path, A2A_SDK_0_3, do="sign", card=document, key=jwk(said), header=header)
        verdict = await trust.check(got, ORIGIN)
        assert (verdict.proved, verdict.form, verdict.versions) == (True, "0.3-sdk", ("0.3",))
        old = tuple(each for each in card.interfaces if each.version == "0.3")
        assert verdict.card.interfaces == old
        assert set(verdict.card.schemes) == set(card.schemes) - {"certs"}
        # A scheme without members and a requirement without scopes are in nobody's signature.
        assert "security" in verdict.uncovered
        with pytest.raises(CardUntrusted):
            await trust.check({**got, "url": "https://evil.example/"}, ORIGIN)


def test_without_the_forms_of_the_sdks_they_refuse_us(tmp_path: Path) -> None:
    """What docs/guide/cards.md says of it; should the SDKs mend it, the page must change."""
    made = signatures.signed(CARD, signatures.key_in(key("good")), compatible=False)
    for peer in (A2A_SDK, A2A_SDK_0_3):
        told = asked(
            tmp_path,
            peer,
            do="verify",
            keys=[jwk(public(key("good")))],
            cards=[document_in(documents.merged(made))],
        )
        assert told == [REFUSED]
