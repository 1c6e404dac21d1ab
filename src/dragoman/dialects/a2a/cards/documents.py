"""The agent card as a document: for readers of 1.0, for readers of 1.0 and 0.3 at once, and for
older ones.

One merged document suits every reader that ignores unknown members, as every version requires of
its readers. The pure 1.0 form is for readers that request it, and for signing (a2a-wire §10.5).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from dragoman.core.card import (
    Card,
    CardSkill,
    Extension,
    Interface,
    Provider,
    Requirement,
    Scheme,
    Signature,
)
from dragoman.core.errors import PeerMisbehaved
from dragoman.core.extensions import TRANSITIONS
from dragoman.core.model import Json

from .security import (
    SecurityStruct,
    WireAuthentication,
    WireScheme,
    WireSignature,
    authentication_in,
    authentication_out,
    required_0_3,
    required_1_0,
    required_in,
    scheme_1_0,
    scheme_both,
    scheme_in,
)

MOST_BYTES = 1024 * 1024
"""The size of a card that is read, in bytes."""
Words = list[str] | None
Required = list[dict[str, Json]] | None
"""Requirements in any spelling, which differ too much for a Struct."""


class WireProvider(SecurityStruct, frozen=True):
    organization: str | None
    url: str | None = None


class WireExtension(SecurityStruct, frozen=True):
    uri: str
    description: str | None = None
    required: bool | None = None
    params: dict[str, Json] | None = None


class Capabilities(SecurityStruct, frozen=True):
    streaming: bool | None = None
    push_notifications: bool | None = None
    extended_agent_card: bool | None = None
    extensions: list[WireExtension] | None = None
    # 0.3 and older
    state_transition_history: bool | None = None


class WireSkill(SecurityStruct, frozen=True):
    id: str
    name: str | None = None
    description: str | None = None
    tags: Words = None
    examples: Words = None
    input_modes: Words = None
    output_modes: Words = None
    security_requirements: Required = None
    security: Required = None


class WireInterface(SecurityStruct, frozen=True):
    """An entry of supportedInterfaces in 1.0."""

    url: str
    protocol_binding: str
    protocol_version: str | None = None
    tenant: str | None = None


class OldInterface(SecurityStruct, frozen=True):
    """An entry of additionalInterfaces in 0.3."""

    url: str
    transport: str


class Document(SecurityStruct, frozen=True, kw_only=True):
    """A card document with the members of all versions."""

    name: str
    description: str | None = None
    version: str | None = None
    supported_interfaces: list[WireInterface] | None = None
    provider: WireProvider | None = None
    documentation_url: str | None = None
    icon_url: str | None = None
    capabilities: Capabilities | None = None
    default_input_modes: Words = None
    default_output_modes: Words = None
    skills: list[WireSkill] | None = None
    security_schemes: dict[str, WireScheme] | None = None
    security_requirements: Required = None
    signatures: list[WireSignature] | None = None
    # 0.3 and older
    protocol_version: str | None = None
    url: str | None = None
    preferred_transport: str | None = None
    additional_interfaces: list[OldInterface] | None = None
    supports_authenticated_extended_card: bool | None = None
    security: Required = None
    authentication: WireAuthentication | None = None


def pure_1_0(card: Card) -> bytes:
    """Returns the document for readers that request 1.0."""
    return msgspec.json.encode(_document(card))


def merged(card: Card) -> bytes:
    """Returns the document that readers of 1.0 and of 0.3 both understand (a2a-wire §15.3)."""
    old = [interface for interface in card.interfaces if interface.version == "0.3"]
    return msgspec.json.encode(_with_old(card, old))


def legacy(card: Card) -> bytes:
    """Returns the document for readers of 0.1 and 0.2, which know one `url` and speak JSON-RPC
    there."""
    old = [interface for interface in card.interfaces if interface.version == "0.3"]
    old.sort(key=lambda interface: interface.binding != "JSONRPC")
    document = _with_old(card, old)
    if old:
        # The form of 0.1, in which `securitySchemes` has no meaning.
        authentication = authentication_out(card.schemes.values())
        document = replace(document, authentication=authentication)
    return msgspec.json.encode(document)


def alone(card: Card, url: str) -> bytes:
    """Returns the document of a dialect that has an address of its own, for readers of 0.1. They
    know one `url` and must not find the address of another dialect."""
    authentication = authentication_out(card.schemes.values())
    document = replace(_document(card), url=url, authentication=authentication)
    return msgspec.json.encode(replace(document, supported_interfaces=None, signatures=None))


def _document(card: Card) -> Document:
    provider = card.provider
    return Document(
        name=card.name,
        description=card.description,
        version=card.version,
        supported_interfaces=[
            WireInterface(i.url, i.binding, i.version, i.tenant or None) for i in card.interfaces
        ],
        # 0.3 and 1.0 both require the url of a provider, even if it is empty.
        provider=WireProvider(provider.organization, provider.url) if provider else None,
        documentation_url=card.documentation_url or None,
        icon_url=card.icon_url or None,
        capabilities=Capabilities(
            card.streaming,
            card.push,
            card.extended,
            [_extension_out(extension) for extension in card.extensions] or None,
        ),
        default_input_modes=list(card.input_modes),
        default_output_modes=list(card.output_modes),
        skills=[_skill_out(skill) for skill in card.skills],
        security_schemes={name: scheme_1_0(scheme) for name, scheme in card.schemes.items()}
        or None,
        security_requirements=required_1_0(card.security),
        signatures=[WireSignature(s.protected, s.signature, s.header) for s in card.signatures]
        or None,
    )


def _with_old(card: Card, old: list[Interface]) -> Document:
    document = _document(card)
    if not old:
        return document
    main = old[0]
    return replace(
        document,
        protocol_version="0.3.0",
        url=main.url,
        preferred_transport=main.binding,
        # 0.3 §5.6.2: the main interface is listed here once more.
        additional_interfaces=[OldInterface(i.url, i.binding) for i in old],
        supports_authenticated_extended_card=card.extended,
        capabilities=_with_transitions(document.capabilities, card),
        security_schemes={name: scheme_both(scheme) for name, scheme in card.schemes.items()}
        or None,
        security=required_0_3(card.security),
        skills=[
            replace(_skill_out(skill), security=required_0_3(skill.security))
            for skill in card.skills
        ],
    )


def _with_transitions(can: Capabilities | None, card: Card) -> Capabilities | None:
    """Adds the capability that 0.3 has for our extension of state transitions; 1.0 dropped it."""
    declared = any(extension.uri == TRANSITIONS for extension in card.extensions)
    if can is None or not declared:
        return can
    return replace(can, state_transition_history=True)


def _extension_out(extension: Extension) -> WireExtension:
    return WireExtension(
        extension.uri, extension.description or None, extension.required or None, extension.params
    )


def _skill_out(skill: CardSkill) -> WireSkill:
    return WireSkill(
        skill.id,
        skill.name,
        skill.description,
        list(skill.tags),
        list(skill.examples) or None,
        list(skill.input_modes) or None,
        list(skill.output_modes) or None,
        required_1_0(skill.security),
    )


_read = msgspec.json.Decoder(Document).decode


def card_in(body: bytes) -> Card:
    """Returns the card in a document of any version. Raises `PeerMisbehaved` if it is not a
    card."""
    try:
        found = _read(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise PeerMisbehaved(f"This is not an agent card: {exc}") from None
    can = found.capabilities or Capabilities()
    provider = found.provider
    schemes, security = _security_in(found)
    return Card(
        name=found.name,
        description=found.description or "",
        version=found.version or "",
        interfaces=tuple(_interfaces_in(found)),
        provider=Provider(provider.organization or "", provider.url or "") if provider else None,
        documentation_url=found.documentation_url or "",
        icon_url=found.icon_url or "",
        streaming=bool(can.streaming),
        push=bool(can.push_notifications),
        extended=bool(can.extended_agent_card or found.supports_authenticated_extended_card),
        extensions=tuple(map(_extension_in, can.extensions or ())),
        input_modes=tuple(found.default_input_modes or ()),
        output_modes=tuple(found.default_output_modes or ()),
        skills=tuple(map(_skill_in, found.skills or ())),
        schemes=schemes,
        security=security,
        signatures=tuple(
            Signature(s.protected, s.signature, s.header) for s in found.signatures or ()
        ),
    )


def _security_in(found: Document) -> tuple[dict[str, Scheme], tuple[Requirement, ...]]:
    if found.security_schemes is None and found.authentication is not None:
        old = authentication_in(found.authentication)
        return old, tuple({name: ()} for name in old)
    read = {name: scheme_in(scheme) for name, scheme in (found.security_schemes or {}).items()}
    schemes = {name: scheme for name, scheme in read.items() if scheme is not None}
    return schemes, required_in(found.security_requirements or found.security or ())


def _interfaces_in(found: Document) -> Iterable[Interface]:
    """Returns the interfaces in the agent's order of preference, without duplicates."""
    listed = [
        Interface(
            url=i.url,
            binding=i.protocol_binding,
            version=version_in(i.protocol_version, listed=True),
            tenant=i.tenant or "",
        )
        for i in found.supported_interfaces or ()
    ]
    version = version_in(found.protocol_version, listed=False)
    old = [(i.url, i.transport) for i in found.additional_interfaces or ()]
    if found.url:
        old.insert(0, (found.url, found.preferred_transport or "JSONRPC"))
    # 0.3 has no tenants, so an address that is listed above with a tenant is not a different one.
    known = {(i.url, i.binding) for i in listed if i.version == version}
    listed += (
        Interface(url=url, binding=binding, version=version)
        for url, binding in old
        if (url, binding) not in known
    )
    return dict.fromkeys(listed)


def version_in(version: str | None, *, listed: bool) -> str:
    """Returns the version that an interface speaks, as Major.Minor.

    An interface without a version speaks 1.0 if it is `listed` in supportedInterfaces, which was
    introduced with 1.0. The main address of an older card speaks 0.3, because cards before 0.2.5
    had no field for the version.
    """
    return ".".join((version or ("1.0" if listed else "0.3")).split(".")[:2])


def _extension_in(extension: WireExtension) -> Extension:
    return Extension(
        uri=extension.uri,
        description=extension.description or "",
        required=bool(extension.required),
        params=extension.params,
    )


def _skill_in(skill: WireSkill) -> CardSkill:
    return CardSkill(
        id=skill.id,
        name=skill.name or "",
        description=skill.description or "",
        tags=tuple(skill.tags or ()),
        examples=tuple(skill.examples or ()),
        input_modes=tuple(skill.input_modes or ()),
        output_modes=tuple(skill.output_modes or ()),
        security=required_in(skill.security_requirements or skill.security or ()),
    )
