"""The agent card as protobuf, in both versions, for the extended card over gRPC."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from dragoman.core import card as core
from dragoman.core.card import Card, CardSkill, OAuth2, OAuthFlow, Requirement, Scheme

from ..proto import Fields


class CardSpelling(Struct, frozen=True):
    """The differences between the versions."""

    security: str
    flows: dict[str, tuple[str, ...]]
    """The member of the oneof and the fields of each kind of flow."""


_LAST = ("refresh_url", "scopes")
_FLOWS = {
    "authorizationCode": ("authorization_code", "authorization_url", "token_url", *_LAST),
    "clientCredentials": ("client_credentials", "token_url", *_LAST),
    "implicit": ("implicit", "authorization_url", *_LAST),
    "password": ("password", "token_url", *_LAST),
}
OLD = CardSpelling("security", _FLOWS)
NEW = CardSpelling(
    "security_requirements",
    _FLOWS
    | {
        "authorizationCode": (*_FLOWS["authorizationCode"], "pkce_required"),
        "deviceCode": ("device_code", "device_authorization_url", "token_url", *_LAST),
    },
)


def card_1_0(card: Card) -> Fields:
    """lf.a2a.v1.AgentCard."""
    fields = _card(card, NEW)
    fields["supported_interfaces"] = [
        {
            "url": interface.url,
            "protocol_binding": interface.binding,
            "protocol_version": interface.version,
            "tenant": interface.tenant,
        }
        for interface in card.interfaces
    ]
    fields["capabilities"]["extended_agent_card"] = card.extended
    return fields


def card_0_3(card: Card) -> Fields:
    """a2a.v1.AgentCard."""
    old = [interface for interface in card.interfaces if interface.version == "0.3"]
    fields = _card(card, OLD)
    fields["supports_authenticated_extended_card"] = card.extended
    fields["protocol_version"] = "0.3.0"
    if old:
        fields["url"], fields["preferred_transport"] = old[0].url, old[0].binding
        # 0.3 §5.6.2: the main interface is listed here once more.
        fields["additional_interfaces"] = [{"url": i.url, "transport": i.binding} for i in old]
    return fields


def _card(card: Card, version: CardSpelling) -> Fields:
    """Returns the members that both versions have."""
    provider = card.provider
    return {
        "name": card.name,
        "description": card.description,
        "version": card.version,
        "provider": provider and {"organization": provider.organization, "url": provider.url},
        "documentation_url": card.documentation_url or None,
        "icon_url": card.icon_url or None,
        "capabilities": {
            "streaming": card.streaming,
            "push_notifications": card.push,
            "extensions": [
                {
                    "uri": extension.uri,
                    "description": extension.description,
                    "required": extension.required,
                    "params": extension.params,
                }
                for extension in card.extensions
            ],
        },
        "security_schemes": {name: _scheme(found, version) for name, found in card.schemes.items()},
        version.security: _requirements(card.security),
        "default_input_modes": card.input_modes,
        "default_output_modes": card.output_modes,
        "skills": [_skill(skill, version) for skill in card.skills],
        "signatures": [
            {"protected": each.protected, "signature": each.signature, "header": each.header}
            for each in card.signatures
        ],
    }


def _skill(skill: CardSkill, version: CardSpelling) -> Fields:
    return {
        "id": skill.id,
        "name": skill.name,
        "description": skill.description,
        "tags": skill.tags,
        "examples": skill.examples,
        "input_modes": skill.input_modes,
        "output_modes": skill.output_modes,
        version.security: _requirements(skill.security),
    }


def _requirements(requirements: Iterable[Requirement]) -> list[Fields]:
    return [
        {"schemes": {name: {"list": scopes} for name, scopes in requirement.items()}}
        for requirement in requirements
    ]


def _scheme(scheme: Scheme, version: CardSpelling) -> Fields:
    member, fields = _SCHEMES[type(scheme)]
    found = {field: getattr(scheme, ours) for field, ours in fields.items()}
    if isinstance(scheme, OAuth2):
        found["flows"] = _flows(scheme.flows, version)
    return {member: {"description": scheme.description, **found}}


_SCHEMES: dict[type[Scheme], tuple[str, dict[str, str]]] = {
    core.ApiKey: ("api_key_security_scheme", {"location": "location", "name": "name"}),
    core.HttpAuth: (
        "http_auth_security_scheme",
        {"scheme": "scheme", "bearer_format": "bearer_format"},
    ),
    OAuth2: ("oauth2_security_scheme", {"oauth2_metadata_url": "metadata_url"}),
    core.OpenId: ("open_id_connect_security_scheme", {"open_id_connect_url": "url"}),
    core.MutualTls: ("mtls_security_scheme", {}),
}
"""The member of the oneof for each scheme, and its fields with our names for them."""


def _flows(flows: Iterable[OAuthFlow], version: CardSpelling) -> Fields:
    """Returns the flows, which are a oneof in both protos: the first flow that the version knows is
    used."""
    for flow in flows:
        if flow.kind in version.flows:
            member, *fields = version.flows[flow.kind]
            return {member: {field: getattr(flow, field) for field in fields}}
    return {}
