"""Agent cards: the documents for readers of each version, and reading theirs."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings

from dialects import strategies
from dragoman.core.card import (
    ApiKey,
    Card,
    CardSkill,
    Extension,
    HttpAuth,
    Interface,
    MutualTls,
    OAuth2,
    OAuthFlow,
    OpenId,
    Provider,
    Signature,
)
from dragoman.core.errors import PeerMisbehaved
from dragoman.dialects.a2a.cards import documents

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
        CardSkill(
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
    assert msgspec.json.decode(documents.pure_1_0(CARD)) == {
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
        documents.pure_1_0(
            Card(
                name="",
                description="",
                version="",
                provider=Provider(""),
                skills=(CardSkill(id="", name="", description=""),),
            )
        )
    )
    # A2A 1.0 §5.7 and a2a-wire §3.4: what is REQUIRED in the proto.
    assert {*found} >= {"name", "description", "version", "supportedInterfaces", "capabilities"}
    assert {*found} >= {"defaultInputModes", "defaultOutputModes", "skills"}
    assert found["provider"] == {"organization": "", "url": ""}
    assert found["skills"] == [{"id": "", "name": "", "description": "", "tags": []}]


def test_the_merged_card_adds_what_0_3_reads() -> None:
    found = msgspec.json.decode(documents.merged(CARD))
    added = {
        key: found[key] for key in found.keys() - msgspec.json.decode(documents.pure_1_0(CARD))
    }
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
    found = msgspec.json.decode(documents.legacy(CARD))
    assert (found["url"], found["preferredTransport"]) == (URL, "JSONRPC")
    assert found["additionalInterfaces"][0] == {"url": URL, "transport": "JSONRPC"}


def test_without_0_3_the_merged_card_is_the_pure_one() -> None:
    card = Card(name="n", description="d", version="1", interfaces=(at("JSONRPC", "1.0"),))
    assert documents.merged(card) == documents.legacy(card) == documents.pure_1_0(card)


@given(card=strategies.cards)
@settings(max_examples=50, deadline=None)
def test_every_form_reads_back_as_the_same_card(card: Card) -> None:
    for form in (documents.pure_1_0, documents.merged, documents.legacy):
        assert documents.card_in(form(card)) == card


def test_a_card_of_0_3() -> None:
    found = documents.card_in(
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
    assert found.skills == (
        CardSkill(id="s", name="S", description="d", tags=("t",), security=({"o": ("r",)},)),
    )
    assert found.schemes == {"o": HttpAuth(scheme="")}


def test_a_card_of_0_2_says_neither_version_nor_transport() -> None:
    found = documents.card_in(b'{"name":"E","url":"https://a","capabilities":{},"skills":null}')
    assert found.interfaces == (at("JSONRPC", "0.3", "https://a"),)
    assert found.description == ""


def test_patches_are_cut_off_versions() -> None:
    found = documents.card_in(
        b'{"name":"E","supportedInterfaces":[{"url":"u","protocolBinding":"JSONRPC",'
        b'"protocolVersion":"1.0.1","tenant":"t"},{"url":"u","protocolBinding":"GRPC"}]}'
    )
    tenant = Interface(url="u", binding="JSONRPC", version="1.0", tenant="t")
    assert found.interfaces == (tenant, at("GRPC", "1.0", "u"))


# Security

FLOW = OAuthFlow(
    kind="authorizationCode",
    authorization_url="https://a",
    token_url="https://t",
    scopes={"read": "Reads"},
    pkce_required=True,
)
SECURED = Card(
    name="Vault",
    description="",
    version="1",
    interfaces=(
        Interface(url=URL, binding="JSONRPC", version="1.0", tenant="acme"),
        Interface(url=URL, binding="JSONRPC", version="0.3", tenant="acme"),
    ),
    schemes={
        "key": ApiKey(name="X-Key", location="cookie", description="Ask us"),
        "basic": HttpAuth(scheme="basic"),
        "jwt": HttpAuth(scheme="bearer", bearer_format="JWT"),
        "oauth": OAuth2(flows=(FLOW,), metadata_url="https://m"),
        "oidc": OpenId(url="https://o"),
        "mtls": MutualTls(),
    },
    security=({"oauth": ("read", "write")}, {"key": (), "mtls": ()}, {}),
    signatures=(Signature("p", "s", {"kid": "1"}), Signature("p2", "s2")),
    skills=(CardSkill(id="s", name="S", description="", security=({"jwt": ()},)),),
)
MEMBERS = {
    "key": {
        "apiKeySecurityScheme": {"name": "X-Key", "location": "cookie", "description": "Ask us"}
    },
    "basic": {"httpAuthSecurityScheme": {"scheme": "basic"}},
    "jwt": {"httpAuthSecurityScheme": {"scheme": "bearer", "bearerFormat": "JWT"}},
    "oauth": {
        "oauth2SecurityScheme": {
            "flows": {
                "authorizationCode": {
                    "authorizationUrl": "https://a",
                    "tokenUrl": "https://t",
                    "scopes": {"read": "Reads"},
                    "pkceRequired": True,
                }
            },
            "oauth2MetadataUrl": "https://m",
        }
    },
    "oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://o"}},
    "mtls": {"mtlsSecurityScheme": {}},
}


def test_the_pure_card_says_security_in_1_0_alone() -> None:
    found = msgspec.json.decode(documents.pure_1_0(SECURED))
    assert found["securitySchemes"] == MEMBERS
    assert found["securityRequirements"] == [
        {"schemes": {"oauth": {"list": ["read", "write"]}}},
        {"schemes": {"key": {}, "mtls": {}}},
        {},
    ]
    assert found["skills"][0]["securityRequirements"] == [{"schemes": {"jwt": {}}}]
    assert found["signatures"] == [
        {"protected": "p", "signature": "s", "header": {"kid": "1"}},
        {"protected": "p2", "signature": "s2"},
    ]
    assert found["supportedInterfaces"][0]["tenant"] == "acme"
    assert not {"security", "authentication"} & {*found, *found["skills"][0]}


def test_the_merged_card_says_security_twice() -> None:
    found = msgspec.json.decode(documents.merged(SECURED))
    old = {name: {**scheme} for name, scheme in found["securitySchemes"].items()}
    new = {
        name: {key: scheme.pop(key) for key in [*scheme] if key.endswith("SecurityScheme")}
        for name, scheme in old.items()
    }
    assert new == MEMBERS
    assert old == {
        "key": {"type": "apiKey", "name": "X-Key", "in": "cookie", "description": "Ask us"},
        "basic": {"type": "http", "scheme": "basic"},
        "jwt": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
        "oauth": {"type": "oauth2", **MEMBERS["oauth"]["oauth2SecurityScheme"]},
        "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://o"},
        "mtls": {"type": "mutualTLS"},
    }
    assert found["security"] == [{"oauth": ["read", "write"]}, {"key": [], "mtls": []}, {}]
    assert found["skills"][0]["security"] == [{"jwt": []}]
    assert "authentication" not in found


def test_the_legacy_card_has_0_1_s_authentication_too() -> None:
    found = msgspec.json.decode(documents.legacy(SECURED))
    assert found["authentication"] == {"schemes": ["ApiKey", "Basic", "Bearer", "MutualTLS"]}
    assert found["security"]


@pytest.mark.parametrize("form", [documents.pure_1_0, documents.merged, documents.legacy])
def test_security_reads_back_from_every_form(form: Callable[[Card], bytes]) -> None:
    assert documents.card_in(form(SECURED)) == SECURED


def test_1_0_has_room_for_one_flow_and_0_3_for_all_but_device_codes() -> None:
    flows = (
        FLOW,
        OAuthFlow(kind="password", token_url="https://p"),
        OAuthFlow(kind="deviceCode", device_authorization_url="https://d"),
    )
    card = Card(
        name="n",
        description="",
        version="1",
        interfaces=(at("JSONRPC", "0.3"),),
        schemes={"o": OAuth2(flows=flows)},
    )
    assert documents.card_in(documents.pure_1_0(card)).schemes == {"o": OAuth2(flows=flows[:1])}
    assert documents.card_in(documents.merged(card)).schemes == {"o": OAuth2(flows=flows[:2])}


@pytest.mark.parametrize(
    "said",
    [
        b'"securityRequirements":[{"schemes":{"o":{"list":["r"]}}}]',
        b'"securityRequirements":[{"schemes":{"o":["r"]}}]',
        b'"securityRequirements":[{"o":["r"]}]',
        b'"security":[{"o":["r"]}]',
        b'"security":[{"schemes":{"o":{"list":["r",5]}}}]',
    ],
)
def test_requirements_in_all_three_spellings(said: bytes) -> None:
    assert documents.card_in(b'{"name":"E",%b}' % said).security == ({"o": ("r",)},)


def test_a_requirement_that_names_a_scheme_called_schemes() -> None:
    assert documents.card_in(b'{"name":"E","security":[{"schemes":["r"]}]}').security == (
        {"schemes": ("r",)},
    )


def test_a_card_of_0_1_says_only_what_to_put_into_the_header() -> None:
    found = documents.card_in(b'{"name":"E","url":"u","authentication":{"schemes":["Bearer"]}}')
    assert found.schemes == {"Bearer": HttpAuth(scheme="bearer")}
    assert found.security == ({"Bearer": ()},)


def test_a_scheme_of_a_kind_we_do_not_know_is_left_out() -> None:
    found = documents.card_in(b'{"name":"E","securitySchemes":{"x":{"type":"dance"},"y":{}}}')
    assert found.schemes == {}


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"name":5}', b"\xff", b'{"name":"\xff"}', b"[" * 100_000]
)
def test_what_is_no_card_is_the_peers_fault(body: bytes) -> None:
    with pytest.raises(PeerMisbehaved, match="agent card"):
        documents.card_in(body)
