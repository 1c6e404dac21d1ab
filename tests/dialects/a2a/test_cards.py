"""Agent cards: the documents for readers of each version, and reading theirs."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from dialects import strategies
from dragoman.card import Card, Extension, Interface, Provider, Skill
from dragoman.dialects.a2a import cards
from dragoman.errors import PeerMisbehaved

URL = "https://agent.example.com/"


def at(binding: str, version: str, url: str = URL) -> Interface:
    return Interface(url=url, binding=binding, version=version)


CARD = Card(
    name="Echo",
    description="Says it back",
    version="1.2.0",
    interfaces=(at("JSONRPC", "1.0"), at("GRPC", "0.3", "https://grpc"), at("JSONRPC", "0.3")),
    provider=Provider("Example", "https://example.com"),
    documentation_url="https://example.com/docs",
    icon_url="https://example.com/icon.png",
    extended=True,
    extensions=(Extension(uri="urn:dragoman:cursor:1", description="Resume", params={"a": 1}),),
    skills=(
        Skill(
            id="echo",
            name="Echo",
            description="Says it back",
            tags=("demo",),
            examples=("hi",),
            input_modes=("text/plain",),
            output_modes=("text/plain",),
        ),
    ),
)


def test_the_pure_card_has_what_1_0_names_and_nothing_else() -> None:
    assert msgspec.json.decode(cards.pure_1_0(CARD)) == {
        "name": "Echo",
        "description": "Says it back",
        "version": "1.2.0",
        "supportedInterfaces": [
            {"url": URL, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": "https://grpc", "protocolBinding": "GRPC", "protocolVersion": "0.3"},
            {"url": URL, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        ],
        "provider": {"organization": "Example", "url": "https://example.com"},
        "documentationUrl": "https://example.com/docs",
        "iconUrl": "https://example.com/icon.png",
        "capabilities": {
            "streaming": True,
            "pushNotifications": False,
            "extendedAgentCard": True,
            "extensions": [
                {"uri": "urn:dragoman:cursor:1", "description": "Resume", "params": {"a": 1}}
            ],
        },
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [
            {
                "id": "echo",
                "name": "Echo",
                "description": "Says it back",
                "tags": ["demo"],
                "examples": ["hi"],
                "inputModes": ["text/plain"],
                "outputModes": ["text/plain"],
            }
        ],
    }


def test_required_members_are_there_even_if_empty() -> None:
    found = msgspec.json.decode(
        cards.pure_1_0(
            Card(
                name="",
                description="",
                version="",
                provider=Provider(""),
                skills=(Skill(id="", name="", description=""),),
            )
        )
    )
    # A2A 1.0 §5.7 and a2a-wire §3.4: what is REQUIRED in the proto.
    assert {*found} >= {"name", "description", "version", "supportedInterfaces", "capabilities"}
    assert {*found} >= {"defaultInputModes", "defaultOutputModes", "skills"}
    assert found["provider"] == {"organization": "", "url": ""}
    assert found["skills"] == [{"id": "", "name": "", "description": "", "tags": []}]


def test_the_merged_card_adds_what_0_3_reads() -> None:
    found = msgspec.json.decode(cards.merged(CARD))
    added = {key: found[key] for key in found.keys() - msgspec.json.decode(cards.pure_1_0(CARD))}
    assert added == {
        "protocolVersion": "0.3.0",
        "url": "https://grpc",
        "preferredTransport": "GRPC",
        "additionalInterfaces": [
            {"url": "https://grpc", "transport": "GRPC"},
            {"url": URL, "transport": "JSONRPC"},
        ],
        "supportsAuthenticatedExtendedCard": True,
    }


def test_the_legacy_card_leads_to_json_rpc() -> None:
    found = msgspec.json.decode(cards.legacy(CARD))
    assert (found["url"], found["preferredTransport"]) == (URL, "JSONRPC")
    assert found["additionalInterfaces"][0] == {"url": URL, "transport": "JSONRPC"}


def test_without_0_3_the_merged_card_is_the_pure_one() -> None:
    card = Card(name="n", description="d", version="1", interfaces=(at("JSONRPC", "1.0"),))
    assert cards.merged(card) == cards.legacy(card) == cards.pure_1_0(card)


@given(card=strategies.cards)
@settings(max_examples=50, deadline=None)
def test_every_form_reads_back_as_the_same_card(card: Card) -> None:
    for form in (cards.pure_1_0, cards.merged, cards.legacy):
        assert cards.card_in(form(card)) == card


def test_a_card_of_0_3() -> None:
    found = cards.card_in(
        b"""{"protocolVersion":"0.3.0","name":"E","description":"d","url":"https://a","version":"1",
        "preferredTransport":"HTTP+JSON","capabilities":{"streaming":true,"stateTransitionHistory":
        true},"additionalInterfaces":[{"url":"https://a","transport":"HTTP+JSON"},{"url":
        "https://b","transport":"GRPC"}],"defaultInputModes":["text/plain"],"defaultOutputModes":[],
        "skills":[{"id":"s","name":"S","description":"d","tags":["t"],"security":[{"o":["r"]}]}],
        "supportsAuthenticatedExtendedCard":true,"securitySchemes":{"o":{"type":"http"}}}"""
    )
    assert found.interfaces == (
        at("HTTP+JSON", "0.3", "https://a"),
        at("GRPC", "0.3", "https://b"),
    )
    assert (found.streaming, found.push, found.extended) == (True, False, True)
    assert found.skills == (Skill(id="s", name="S", description="d", tags=("t",)),)


def test_a_card_of_0_2_says_neither_version_nor_transport() -> None:
    found = cards.card_in(b'{"name":"E","url":"https://a","capabilities":{},"skills":null}')
    assert found.interfaces == (at("JSONRPC", "0.3", "https://a"),)
    assert found.description == ""


def test_patches_are_cut_off_versions() -> None:
    found = cards.card_in(
        b'{"name":"E","supportedInterfaces":[{"url":"u","protocolBinding":"JSONRPC",'
        b'"protocolVersion":"1.0.1","tenant":"t"},{"url":"u","protocolBinding":"GRPC"}]}'
    )
    assert found.interfaces == (at("JSONRPC", "1.0", "u"), at("GRPC", "1.0", "u"))


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"name":5}', b"\xff", b'{"name":"\xff"}', b"[" * 100_000]
)
def test_what_is_no_card_is_the_peers_fault(body: bytes) -> None:
    with pytest.raises(PeerMisbehaved, match="agent card"):
        cards.card_in(body)
