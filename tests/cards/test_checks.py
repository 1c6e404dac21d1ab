"""The rules of cards, and values that look like secrets: both stop the start, and are named."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import random
import string
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from cards.forge import signed
from cards.served import app_for, desk
from counts import count
from dialects import strategies
from dragoman import Provider
from dragoman.core.errors import ConfigError
from dragoman.dialects.a2a.cards import documents
from dragoman.dialects.a2a.cards.canonical import document_in
from dragoman.dialects.a2a.cards.secret_scan import leaks, looks_like
from dragoman.dialects.a2a.cards.validate import problems

GOOD = signed()


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    document = copy.deepcopy(GOOD)
    change(document)
    return document


def test_a_good_card_has_no_problems() -> None:
    assert problems(GOOD) == []


BAD: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "streaming that is a word": (
        lambda d: d["capabilities"].update(streaming="yes"),
        "capabilities.streaming",
    ),
    "an extended card that is a number": (
        lambda d: d.update(supportsAuthenticatedExtendedCard=1),
        "supportsAuthenticatedExtendedCard",
    ),
    "an extension that is required by a word": (
        lambda d: d["capabilities"].update(extensions=[{"uri": "urn:x", "required": "no"}]),
        "capabilities.extensions[0].required",
    ),
    "a version that is none": (lambda d: d.update(protocolVersion="latest"), "protocolVersion"),
    "an interface of no version": (
        lambda d: d["supportedInterfaces"][0].update(protocolVersion="v1"),
        "supportedInterfaces[0].protocolVersion",
    ),
    "a scheme of no known type": (
        lambda d: d["securitySchemes"].update(x={"type": "magic"}),
        "securitySchemes.x.type",
    ),
    "a scheme of no type": (lambda d: d["securitySchemes"].update(x={}), "securitySchemes.x"),
    "a scheme that is a word": (
        lambda d: d["securitySchemes"].update(x="apiKey"),
        "securitySchemes.x",
    ),
    "a key without a name": (
        lambda d: d["securitySchemes"].update(x={"type": "apiKey", "in": "header"}),
        "securitySchemes.x.name",
    ),
    "a key without a place": (
        lambda d: d["securitySchemes"].update(x={"type": "apiKey", "name": "k"}),
        "securitySchemes.x.in",
    ),
    "a key in no place": (
        lambda d: d["securitySchemes"].update(x={"type": "apiKey", "name": "k", "in": "body"}),
        "securitySchemes.x.in",
    ),
    "a key of 1.0 without a place": (
        lambda d: d["securitySchemes"].update(x={"apiKeySecurityScheme": {"name": "k"}}),
        "securitySchemes.x.apiKeySecurityScheme.location",
    ),
    "scopes of a key": (
        lambda d: (
            d["securitySchemes"].update(x={"type": "apiKey", "name": "k", "in": "header"}),
            d.update(security=[{"x": ["book"]}]),
        ),
        "security[0].x",
    ),
    "scopes of a token": (
        lambda d: (
            d["securitySchemes"].update(x={"httpAuthSecurityScheme": {"scheme": "bearer"}}),
            d.update(securityRequirements=[{"schemes": {"x": {"list": ["book"]}}}]),
        ),
        "securityRequirements[0].x",
    ),
    "scopes of a skill's certificate": (
        lambda d: (
            d["securitySchemes"].update(x={"type": "mutualTLS"}),
            d["skills"][0].update(security=[{"x": ["book"]}]),
        ),
        "skills[0].security[0].x",
    ),
    "no name": (lambda d: d.pop("name"), "name"),
    "an empty name": (lambda d: d.update(name=" "), "name"),
    "a name that is a number": (lambda d: d.update(name=5), "name"),
    "no description": (lambda d: d.pop("description"), "description"),
    "no version": (lambda d: d.pop("version"), "version"),
    "no capabilities": (lambda d: d.pop("capabilities"), "capabilities"),
    "no modes": (lambda d: d.update(defaultInputModes=[]), "defaultInputModes"),
    "modes that are no list": (
        lambda d: d.update(defaultOutputModes="text/plain"),
        "defaultOutputModes",
    ),
    "a mode that is no media type": (
        lambda d: d.update(defaultInputModes=["plain text"]),
        "defaultInputModes[0]",
    ),
    "a mode of a skill": (
        lambda d: d["skills"][0].update(outputModes=["image/png", "png"]),
        "skills[0].outputModes[1]",
    ),
    "no skills": (lambda d: d.pop("skills"), "skills"),
    "a skill without an id": (lambda d: d["skills"][0].pop("id"), "skills[0].id"),
    "a skill without tags": (lambda d: d["skills"][0].pop("tags"), "skills[0].tags"),
    "two skills of one id": (lambda d: d["skills"].append(d["skills"][0]), "skills[1].id"),
    "a skill that is a text": (lambda d: d["skills"].append("plan"), "skills[1].id"),
    "a provider without a name": (
        lambda d: d["provider"].pop("organization"),
        "provider.organization",
    ),
    "a provider at no address": (lambda d: d["provider"].update(url="example"), "provider.url"),
    "docs at no address": (
        lambda d: d.update(documentationUrl="javascript:alert(1)"),
        "documentationUrl",
    ),
    "an icon at no address": (lambda d: d.update(iconUrl="icon.png"), "iconUrl"),
    "no address at all": (
        lambda d: (d.pop("url"), d.pop("supportedInterfaces"), d.pop("additionalInterfaces")),
        "supportedInterfaces",
    ),
    "an interface without a binding": (
        lambda d: d["supportedInterfaces"][0].pop("protocolBinding"),
        "supportedInterfaces[0].protocolBinding",
    ),
    "an interface without a version": (
        lambda d: d["supportedInterfaces"][0].pop("protocolVersion"),
        "supportedInterfaces[0].protocolVersion",
    ),
    "an interface at a path": (
        lambda d: d["supportedInterfaces"][0].update(url="/a2a"),
        "supportedInterfaces[0].url",
    ),
    "an interface with a host:port": (
        lambda d: d["supportedInterfaces"][0].update(url="desk.example:80"),
        "supportedInterfaces[0].url",
    ),
    "an interface twice": (
        lambda d: d["supportedInterfaces"].append(d["supportedInterfaces"][0]),
        "supportedInterfaces[2]",
    ),
    "interfaces that are no list": (
        lambda d: d.update(supportedInterfaces={"url": "https://a"}),
        "supportedInterfaces",
    ),
    "an interface at no port": (
        lambda d: d["supportedInterfaces"][0].update(url="https://desk.example:99999/"),
        "supportedInterfaces[0].url",
    ),
    "interfaces of 0.3 without a main one": (
        lambda d: (d.pop("url"), d.pop("supportedInterfaces")),
        "url",
    ),
    "no preferred transport": (lambda d: d.pop("preferredTransport"), "preferredTransport"),
    "a main address with another transport": (
        lambda d: d.update(preferredTransport="HTTP+JSON"),
        "additionalInterfaces",
    ),
    "no protocol version": (lambda d: d.pop("protocolVersion"), "protocolVersion"),
    "a requirement that no scheme meets": (
        lambda d: d["skills"][0].update(security=[{"oauth": []}]),
        "skills[0].security[0]",
    ),
    "a requirement of 1.0 that no scheme meets": (
        lambda d: d.update(securityRequirements=[{"schemes": {"oauth": {}}}]),
        "securityRequirements[0]",
    ),
    "an extension twice": (
        lambda d: d["capabilities"]["extensions"].append(d["capabilities"]["extensions"][0]),
        "capabilities.extensions[1]",
    ),
    "an extension without a name": (
        lambda d: d["capabilities"]["extensions"].append({}),
        "capabilities.extensions[1].uri",
    ),
    "a signature that is none": (
        lambda d: d["signatures"].append({"protected": "x", "signature": "y"}),
        "signatures[1]",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_broken_rule_names_its_field(case: str) -> None:
    change, field = BAD[case]
    found = problems(changed(change))
    assert field in [problem.field for problem in found if not problem.warning], found


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda d: d.update(description=""), "description"),
        (lambda d: d.update(defaultInputModes=["text"]), "defaultInputModes[0]"),
        (lambda d: d["skills"][0].update(tags=[]), "skills[0].tags"),
        (
            lambda d: d.update(
                additionalInterfaces=[{"url": "https://a.example", "transport": "HTTP+JSON"}]
            ),
            "additionalInterfaces",
        ),
        (
            lambda d: d["additionalInterfaces"].append(
                {**d["additionalInterfaces"][0], "transport": "GRPC"}
            ),
            "additionalInterfaces[1].url",
        ),
    ],
)
def test_what_only_should_be_is_a_warning(change: Any, field: str) -> None:
    (found,) = problems(changed(change))
    assert (found.field, found.warning) == (field, True)


@pytest.mark.parametrize("body", [b"[]", b"5", b"null", b'"card"', b"{}"])
def test_what_is_no_card_has_problems(body: bytes) -> None:
    assert problems(json.loads(body))


@pytest.mark.parametrize("url", ["desk.example:443", "[::1]:8421", "grpc://a:1", "https://a"])
def test_every_form_of_an_address_of_grpc(url: str) -> None:
    interface = {"url": url, "protocolBinding": "GRPC", "protocolVersion": "1.0"}
    assert problems(changed(lambda d: d["supportedInterfaces"].append(interface))) == []


HOSTILE = [None, True, 5, "x", [], {}, [[]], [{}], {"a": {}}, ["x", 5], {"url": []}, "\x00", [None]]


@pytest.mark.parametrize("name", sorted(GOOD))
def test_no_value_in_any_member_breaks_the_checks(name: str) -> None:
    for value in HOSTILE:
        problems({**GOOD, name: value})
        for inner in ("skills", "supportedInterfaces", "additionalInterfaces", "signatures"):
            problems({**GOOD, inner: [{**GOOD[inner][0], key: value} for key in GOOD[inner][0]]})


@given(strategies.cards)
@settings(max_examples=count(15, 50))
def test_any_card_can_be_judged(card: Any) -> None:
    problems(document_in(documents.merged(card)))


# Secrets.

SECRETS = {
    "PEM": "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----",
    "AWS": "Use AKIA" + "IOSFODNN7EXAMPLE" + " to log in",
    "GitHub": "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "GitHub, fine": "github_pat_" + "11ABCDEFG0abcdefghijkl_xyz",
    "GitLab": "glpat-" + "abcDEF123456ghiJKL78",
    "OpenAI": "sk-" + "abcdefghijklmnopqrstuvwx1234567890",
    "OpenAI, project": "sk-proj-" + "Ab12Cd34Ef56Gh78Ij90Kl12",
    "Anthropic": "sk-ant-api03-" + "Ab12Cd34Ef56Gh78Ij90Kl12",
    "Stripe": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "Google": "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "Slack": "xoxb-" + "123456789012-abcdefGHIJKL",
    "Hugging Face": "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "JWT": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "abcDEF123",
    "password in a URL": "postgres://desk:hunter2@db.example/x",
    "bearer": "Authorization: Bearer 0123456789abcdefghij",
    "token in a query": "https://desk.example/x?access_token=abc123def456",
    "a password in words": "the password is Tr0ub4dor3xyz",
    "an assignment": "api_key = 'q8w7e6r5t4'",
    "random base64": "x7Kp2mQ9vT4zR8wN1cB6yH3sL5dF0gJaE/uXiO+kVb0=",
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_seen(name: str) -> None:
    assert looks_like(SECRETS[name])


def test_a_secret_is_seen_wherever_it_stands() -> None:
    for before in range(600, 1100, 7):
        assert looks_like("x" * before + f" {SECRETS['GitHub']} " + "y" * 900)


@pytest.mark.parametrize(
    "part", ["eyJaaaaaaaa-", "a.", "sk-", "password is ", "a://b:", "?sig=", "A1b"]
)
def test_a_large_hostile_text_costs_little(part: str) -> None:
    looks_like(
        part * (count(60_000, 300_000) // len(part))
    )  # the time limit of every test is the check


def test_random_keys_are_seen() -> None:
    dice = random.Random(4711)  # the same ones in every run
    base62 = string.ascii_letters + string.digits
    seen = sum(bool(looks_like("".join(dice.choices(base62, k=40)))) for _ in range(500))
    assert seen >= 490


HARMLESS = [
    "Plans trips. Ask for your password reset here; the token is sent by mail.",
    "Needs an API key: get one from your administrator.",
    "Set api_key=<YOUR_KEY> or password={secret} or token=$TOKEN.",
    "Bearer authentication is required",
    "https://docs.example.com/commit/da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "https://docs.example.com/p/x7Kp2mQ9vT4zR8wN1cB6yH3sL5dF0gJaEuXiO",
    "https://user@example.com/",
    "https://example.com:8443/a:b@c",
    str(uuid.UUID(int=2**127 + 12345)),
    hashlib.sha256(b"x").hexdigest(),
    hashlib.sha512(b"x").hexdigest().upper(),
    "data:image/png;base64," + base64.b64encode(bytes(range(200))).decode(),
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "ThisIsAVeryLongIdentifierName123ForSkillHandlers",
    "risk-assessment-of-very-large-portfolios-2026-Q3",
    "task-list-with-many-words-and-a-version-v2-0-1",
    "urn:dragoman:idempotency:1",
    "旅行计划，三天两夜，请告诉我城市和日期",
    "Versions 1.0.0, 2.0.0-rc.1+build.20260101 and their changes",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_harmless_passes(text: str) -> None:
    assert looks_like(text) == ""


def test_uuids_and_digests_always_pass() -> None:
    dice = random.Random(4711)
    for _ in range(300):
        raw = dice.randbytes(16)
        assert not looks_like(f"id {uuid.UUID(bytes=raw)} of {hashlib.sha256(raw).hexdigest()}")


def test_where_it_is() -> None:
    card = changed(lambda d: d["skills"][0].update(examples=["hi", SECRETS["GitHub"]]))
    card["capabilities"]["extensions"][0]["params"] = {"deep": [{"clientSecret": "correcthorse"}]}
    assert dict(leaks(card)) == {
        "skills[0].examples[1]": "a GitHub token",
        "capabilities.extensions[0].params.deep[0].clientSecret": "a secret, by its name",
    }


def test_names_of_secrets_in_schemas_are_none() -> None:
    schema = {"properties": {"password": {"type": "string"}}, "required": ["password"]}
    assert (
        list(leaks({"schemas": schema, "apiKey": "<yours>", "tokenUrl": "https://a/token"})) == []
    )


# At the start.


def start(**about: Any) -> None:
    server = about.pop("server", {})
    app_for(desk(**about), server=server)


@pytest.mark.parametrize(
    ("about", "named"),
    [
        ({"description": SECRETS["OpenAI"]}, "description"),
        ({"documentation_url": SECRETS["token in a query"]}, "documentationUrl"),
        ({"provider": Provider("Example", "https://a:b1@example.com")}, r"provider\.url"),
        ({"input_modes": ["plain text"]}, r"defaultInputModes\[0\]"),
        ({"icon_url": "icon.png"}, "iconUrl"),
        ({"version": ""}, "version"),
    ],
)
def test_a_bad_card_stops_the_start(about: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        start(**about)


def test_the_operator_may_insist() -> None:
    start(description=SECRETS["random base64"], server={"card_secrets": True})
    with pytest.raises(ConfigError, match="iconUrl"):
        start(icon_url="icon.png", server={"card_secrets": True})


def test_skills_of_extended_cards_are_looked_at_too() -> None:
    agent = desk()

    @agent.skill("deep", extended=True, description=SECRETS["AWS"])
    async def deep(turn: Any) -> str:
        return ""

    with pytest.raises(
        ConfigError, match=r"skills\[1\]\.description looks|skills\[1\]\.description"
    ):
        app_for(agent)
