"""Signatures to and from a2a-sdk 1.3.0, by its own signer and verifier, in its own environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cards.forge import CARD, NOW, ORIGIN, key, public, signed
from dragoman.dialects.a2a import cards, signatures
from dragoman.dialects.a2a.presence import document_in
from dragoman.net.trust import Trust
from interop.peers import A2A_SDK, PeerUnavailable

ALGORITHMS = ("ES256", "EdDSA", "RS256")
KEYS = {alg: key(f"sdk-{alg}", alg) for alg in ALGORITHMS}

pytestmark = pytest.mark.slow


def asked(folder: Path, **question: Any) -> Any:
    path = folder / "question.json"
    path.write_text(json.dumps(question), "utf-8")
    try:
        done = A2A_SDK.run(Path(__file__).with_name("sdk_signer.py"), str(path), timeout=60)
    except PeerUnavailable as exc:
        pytest.skip(str(exc))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def jwk(said: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if name != "iat"}


def plain() -> dict[str, Any]:
    """A card without what the two canonical forms write differently: nothing in it is empty."""
    document = document_in(cards.pure_1_0(CARD))
    document["capabilities"]["extensions"][0]["params"] = {
        "n": 1,
        "x": 0.5,
        "é": [1e21, -0.0, True],
    }
    del document["securityRequirements"]  # without scopes it strips to nothing
    return document


def test_the_sdk_takes_what_we_sign(tmp_path: Path) -> None:
    made = []
    for said in KEYS.values():
        signature = signatures.sign(plain(), signatures.key_in(said), f"{ORIGIN}/jwks.json")
        entry = {"protected": signature.protected, "signature": signature.signature}
        made.append({**plain(), "signatures": [entry]})
    altered = {**made[0], "name": "Another"}
    told = asked(
        tmp_path,
        do="verify",
        keys=[jwk(public(said)) for said in KEYS.values()],
        cards=[*made, altered, plain()],
    )
    assert told == ["ok", "ok", "ok", "InvalidSignaturesError", "NoSignatureError"]


@pytest.mark.parametrize("alg", ALGORITHMS)
async def test_we_take_what_the_sdk_signs(tmp_path: Path, alg: str) -> None:
    said = KEYS[alg]
    header = {"alg": alg, "kid": said["kid"], "typ": "JOSE", "jku": f"{ORIGIN}/jwks.json"}
    trust = Trust("require", keys=[public(said)], clock=lambda: NOW)
    for card, form in ((plain(), "strict"), (document_in(cards.pure_1_0(CARD)), "stripped")):
        got = asked(tmp_path, do="sign", card=card, key=jwk(said), header=header)
        verdict = await trust.check(got, ORIGIN)
        assert (verdict.proved, verdict.kid, verdict.form) == (True, said["kid"], form)


def test_where_the_forms_differ_the_sdk_refuses_us(tmp_path: Path) -> None:
    """What docs/guide/cards.md says of it; should the SDK mend it, the page must change."""
    keys = [jwk(public(key("good")))]
    both = signatures.signed(CARD, signatures.key_in(key("good")), compatible=True)
    shown = [signed(), document_in(cards.merged(both))]
    told = asked(tmp_path, do="verify", keys=keys, cards=shown)
    assert told == ["InvalidSignaturesError", "ok"]
