"""The part of a card that a signature covers: the members of A2A 1.0, with the presence rules of
protobuf. The members of 0.3 are in `canonical_0_3`.

A signature covers bytes, but a card is an object, so both sides must write the same bytes for the
same card (a2a-wire §10.5). The table below is the 1.0 model in the notation of the fact sheet:
`name*` is required and always written, `name?` is written if it was given, all others are written
only if they differ from their default. Messages are written if they are present. A member that is
not in the table is not covered, so a verifier does not pass it on either.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import rfc8785

from dragoman.core.model import Json

SAFE = 2**53 - 1
"""The largest integer that other implementations can represent exactly: beyond it, it is a double
to them (RFC 8785 §3.2.2.3)."""


class Uncanonical(ValueError):
    """The document has no canonical form; the text says what is wrong and where."""


class MemberKind(NamedTuple):
    """Reads a value, and knows the default that protobuf treats as absent; None for a message."""

    read: Callable[[Json, str], Json]
    default: Json = None
    fields: Mapping[str, Any] = {}
    """The members of a message, or of each of many."""


def _of(type_: type, default: Json) -> MemberKind:
    def read(value: Json, where: str) -> Json:
        if type(value) is not type_:
            raise Uncanonical(f"{where} must be {_NAMES[type_]}")
        return value

    return MemberKind(read, default)


_NAMES: dict[type, str] = {str: "a text", bool: "true or false", list: "a list", dict: "an object"}
TEXT, FLAG = _of(str, ""), _of(bool, False)
_LIST, _OBJECT = _of(list, []).read, _of(dict, {}).read


def many(kind: MemberKind) -> MemberKind:
    """Returns the kind of a list of these."""

    def read(value: Json, where: str) -> Json:
        listed: Any = _LIST(value, where)
        return [kind.read(each, f"{where}[{n}]") for n, each in enumerate(listed)]

    return MemberKind(read, [], kind.fields)


def named(kind: MemberKind) -> MemberKind:
    """Returns the kind of a map of these by name. A named entry is present even if it is empty."""

    def read(value: Json, where: str) -> Json:
        found: Any = _OBJECT(value, where)
        return {name: kind.read(each, f"{where}.{name}") for name, each in found.items()}

    return MemberKind(read, {}, kind.fields)


def message(fields: Mapping[str, MemberKind]) -> MemberKind:
    """Returns the kind of an object with these members."""
    table = [
        (name.rstrip("*?"), name[-1] in "*?", name[-1] == "*", fields[name]) for name in fields
    ]

    def read(value: Json, where: str) -> Json:
        given: Any = _OBJECT(value, where)
        found: dict[str, Json] = {}
        for name, kept, required, kind in table:
            member = given.get(name)
            if member is None:  # in ProtoJSON, null means absent
                if required and kind.default is not None:
                    found[name] = kind.default
                continue
            member = kind.read(member, f"{where}.{name}" if where else name)
            if kept or kind.default is None or member != kind.default:
                found[name] = member
        return found

    return MemberKind(read, fields=fields)


def free_object(value: Json, where: str) -> Json:
    """Returns the kind of an object with any members."""
    return _OBJECT(value, where)


def _struct(value: Json, where: str) -> Json:
    return _free(_OBJECT(value, where), where)


def _free(value: Json, where: str) -> Json:
    """Returns any value unchanged, except for numbers, which become doubles."""
    match value:
        case dict():
            return {name: _free(each, where) for name, each in value.items()}
        case list():
            return [_free(each, where) for each in value]
        case int() if not isinstance(value, bool) and abs(value) > SAFE:
            try:
                return float(value)
            except OverflowError:
                raise Uncanonical(f"{where} holds a number beyond any range") from None
        case _:
            return value


STRUCT = MemberKind(_struct)

_TEXTS = many(TEXT)
_SCOPES = named(TEXT)
_REQUIREMENTS = many(message({"schemes": named(message({"list": _TEXTS}))}))
_LAST = {"refreshUrl": TEXT, "scopes*": _SCOPES}
_LOOSE = {"refreshUrl": TEXT, "scopes": _SCOPES}
_FLOWS = message(
    {
        "authorizationCode": message(
            {"authorizationUrl*": TEXT, "tokenUrl*": TEXT, **_LAST, "pkceRequired": FLAG}
        ),
        "clientCredentials": message({"tokenUrl*": TEXT, **_LAST}),
        "implicit": message({"authorizationUrl": TEXT, **_LOOSE}),
        "password": message({"tokenUrl": TEXT, **_LOOSE}),
        "deviceCode": message({"deviceAuthorizationUrl*": TEXT, "tokenUrl*": TEXT, **_LAST}),
    }
)
_ABOUT = {"description": TEXT}
_SCHEME = message(
    {
        "apiKeySecurityScheme": message({**_ABOUT, "location*": TEXT, "name*": TEXT}),
        "httpAuthSecurityScheme": message({**_ABOUT, "scheme*": TEXT, "bearerFormat": TEXT}),
        "oauth2SecurityScheme": message({**_ABOUT, "flows*": _FLOWS, "oauth2MetadataUrl": TEXT}),
        "openIdConnectSecurityScheme": message({**_ABOUT, "openIdConnectUrl*": TEXT}),
        "mtlsSecurityScheme": message(_ABOUT),
    }
)
_EXTENSION = message({"uri": TEXT, "description": TEXT, "required": FLAG, "params": STRUCT})
_SKILL = message(
    {
        "id*": TEXT,
        "name*": TEXT,
        "description*": TEXT,
        "tags*": _TEXTS,
        "examples": _TEXTS,
        "inputModes": _TEXTS,
        "outputModes": _TEXTS,
        "securityRequirements": _REQUIREMENTS,
    }
)
CARD = message(
    {
        "name*": TEXT,
        "description*": TEXT,
        "supportedInterfaces*": many(
            message(
                {"url*": TEXT, "protocolBinding*": TEXT, "tenant": TEXT, "protocolVersion*": TEXT}
            )
        ),
        "provider": message({"url*": TEXT, "organization*": TEXT}),
        "version*": TEXT,
        "documentationUrl?": TEXT,
        "capabilities*": message(
            {
                "streaming?": FLAG,
                "pushNotifications?": FLAG,
                "extensions": many(_EXTENSION),
                "extendedAgentCard?": FLAG,
            }
        ),
        "securitySchemes": named(_SCHEME),
        "securityRequirements": _REQUIREMENTS,
        "defaultInputModes*": _TEXTS,
        "defaultOutputModes*": _TEXTS,
        "skills*": many(_SKILL),
        "iconUrl?": TEXT,
    }
)
"""The AgentCard of lf.a2a.v1 without its signatures."""


def canonical(card: Json) -> bytes:
    """Returns the canonical bytes of RFC 8785."""
    return rfc8785.dumps(card)


def canonical_stripped(card: Json) -> bytes:
    """Returns the bytes that a2a-sdk (1.3.0) signs: it drops everything that is empty, required or
    not."""
    return canonical(stripped(card))


def ascii_stripped(card: Json) -> bytes:
    """Returns the bytes that earlier 1.0 versions of a2a-sdk signed: ASCII, with numbers as
    doubles."""
    tree = _doubles(stripped(card))
    return json.dumps(tree, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()


def stripped(value: Json) -> Json:
    """Returns the value without all empty members, or None if nothing is left."""
    match value:
        case dict():
            kept = {name: stripped(each) for name, each in value.items()}
            return {name: each for name, each in kept.items() if each is not None} or None
        case list():
            return [e for each in value if (e := stripped(each)) is not None] or None
        case "":
            return None
        case _:
            return value


def _doubles(value: Json) -> Json:
    match value:
        case dict():
            return {name: _doubles(each) for name, each in value.items()}
        case list():
            return [_doubles(each) for each in value]
        case int() if not isinstance(value, bool):
            return float(value)
        case _:
            return value


def document_in(body: bytes) -> dict[str, Json]:
    """Returns a JSON object in which no name occurs twice (RFC 8785 §3.1). Raises `Uncanonical` for
    any other body."""
    try:
        found = json.loads(body.decode(), object_pairs_hook=_once, parse_constant=_no_number)
    except Uncanonical:
        raise
    except (ValueError, RecursionError) as exc:
        raise Uncanonical(f"This is not JSON: {exc}") from None
    if not isinstance(found, dict):
        raise Uncanonical("This is not an object")
    return found


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Uncanonical("A name stands twice in one object")
    return found


def _no_number(word: str) -> Json:
    raise Uncanonical(f"{word} is not JSON")
