"""The part of a card that a signature for readers of 0.3 covers: the members of its JSON model.

0.3 has signatures, but does not define canonical bytes. Two forms are signed and verified. `0.3` is
RFC 8785 over every member of 0.3's model; it covers everything that a reader of 0.3 uses. `0.3-sdk`
is the form of a2a-sdk (0.3.26): it leaves out defaults, among them the types of security schemes,
and everything that is empty, so it does not cover requirements without scopes.
"""

from __future__ import annotations

import json
from typing import Any

from dragoman.core.model import Json

from .canonical import (
    FLAG,
    TEXT,
    MemberKind,
    Uncanonical,
    free_object,
    many,
    message,
    named,
    stripped,
)

_TEXTS = many(TEXT)
_REQUIREMENTS = many(named(_TEXTS))
_PARAMS = MemberKind(free_object)


def _given(**fields: MemberKind) -> MemberKind:
    """Returns the kind of a message whose members are written if they are present, even if they are
    empty."""
    return message({f"{name.rstrip('_')}?": kind for name, kind in fields.items()})


_LAST = {"refreshUrl": TEXT, "scopes": named(TEXT)}
_FLOWS = _given(
    authorizationCode=_given(authorizationUrl=TEXT, tokenUrl=TEXT, **_LAST),
    clientCredentials=_given(tokenUrl=TEXT, **_LAST),
    implicit=_given(authorizationUrl=TEXT, **_LAST),
    password=_given(tokenUrl=TEXT, **_LAST),
)
_ABOUT = {"type": TEXT, "description": TEXT}
_SCHEMES = {
    "apiKey": _given(**_ABOUT, in_=TEXT, name=TEXT),
    "http": _given(**_ABOUT, scheme=TEXT, bearerFormat=TEXT),
    "oauth2": _given(**_ABOUT, flows=_FLOWS, oauth2MetadataUrl=TEXT),
    "openIdConnect": _given(**_ABOUT, openIdConnectUrl=TEXT),
    "mutualTLS": _given(**_ABOUT),
}
_TELLING = {
    "in": "apiKey",
    "scheme": "http",
    "flows": "oauth2",
    "openIdConnectUrl": "openIdConnect",
}
"""The members that only one type of scheme has. They identify the type if it is left out."""


def _type_of(scheme: dict[str, Json]) -> str:
    type_name = scheme.get("type")
    if isinstance(type_name, str):
        return type_name
    return next((type for name, type in _TELLING.items() if name in scheme), "mutualTLS")


def _scheme(value: Json, where: str) -> Json:
    if not isinstance(value, dict):
        raise Uncanonical(f"{where} must be an object")
    kind = _SCHEMES.get(_type_of(value))
    if kind is None:
        raise Uncanonical(f"{where}.type is none of {', '.join(_SCHEMES)}")
    return kind.read(value, where)


_EXTENSION = _given(uri=TEXT, description=TEXT, required=FLAG, params=_PARAMS)
_SKILL = _given(
    **dict.fromkeys(("id", "name", "description"), TEXT),
    **dict.fromkeys(("tags", "examples", "inputModes", "outputModes"), _TEXTS),
    security=_REQUIREMENTS,
)
_CAPABILITIES = _given(
    **dict.fromkeys(("streaming", "pushNotifications", "stateTransitionHistory"), FLAG),
    extensions=many(_EXTENSION),
)
CARD = _given(
    **dict.fromkeys(("protocolVersion", "name", "description", "version"), TEXT),
    **dict.fromkeys(("url", "preferredTransport", "iconUrl", "documentationUrl"), TEXT),
    **dict.fromkeys(("defaultInputModes", "defaultOutputModes"), _TEXTS),
    additionalInterfaces=many(_given(url=TEXT, transport=TEXT)),
    provider=_given(organization=TEXT, url=TEXT),
    capabilities=_CAPABILITIES,
    securitySchemes=named(MemberKind(_scheme)),
    security=_REQUIREMENTS,
    skills=many(_SKILL),
    supportsAuthenticatedExtendedCard=FLAG,
)
"""The AgentCard of 0.3's JSON without its signatures."""

_DEFAULTS = {"protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"}


def sdk(card: Json) -> bytes:
    """Returns the bytes that a2a-sdk 0.3.26 signs."""
    tree: Any = card
    kept = {name: value for name, value in tree.items() if value != _DEFAULTS.get(name)}
    if "securitySchemes" in kept:
        kept["securitySchemes"] = {
            name: {member: each for member, each in scheme.items() if member != "type"}
            for name, scheme in kept["securitySchemes"].items()
        }
    plain = stripped(kept) or {}
    return json.dumps(plain, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()


def restored(card: dict[str, Json]) -> dict[str, Json]:
    """Returns the card in these bytes, with the defaults that were left out."""
    schemes = card.get("securitySchemes")
    if isinstance(schemes, dict):
        typed = {
            name: {**each, "type": _type_of(each)}
            for name, each in schemes.items()
            if isinstance(each, dict)
        }
        card = {**card, "securitySchemes": typed}
    return {**_DEFAULTS, **card}
