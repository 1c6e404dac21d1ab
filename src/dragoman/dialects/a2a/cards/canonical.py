"""What of a card a signature covers: the members of A2A 1.0, present as protobuf says. The members
of 0.3 are in `presence_0_3`.

A signature is over bytes, a card is an object, so both sides must write the same bytes for the
same card (a2a-wire §10.5). The table below is the 1.0 model in the notation of the fact sheet:
`name*` is required and always written, `name?` is written when it was given, all others only when
they differ from their default. Messages are written when they are there. What the table does not
name is not covered, so it is not in what a verifier hands on either.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import rfc8785

from dragoman.core.model import Json

SAFE = 2**53 - 1
"""Beyond it an integer is a double to everyone else (RFC 8785 §3.2.2.3)."""


class Uncanonical(ValueError):
    """This has no canonical form; the text says what and where."""


class MemberKind(NamedTuple):
    """How a value is read, and what protobuf takes for not said; None: a message."""

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
    """A list of these."""

    def read(value: Json, where: str) -> Json:
        listed: Any = _LIST(value, where)
        return [kind.read(each, f"{where}[{n}]") for n, each in enumerate(listed)]

    return MemberKind(read, [], kind.fields)


def named(kind: MemberKind) -> MemberKind:
    """These by name; what is named is there, be it empty."""

    def read(value: Json, where: str) -> Json:
        found: Any = _OBJECT(value, where)
        return {name: kind.read(each, f"{where}.{name}") for name, each in found.items()}

    return MemberKind(read, {}, kind.fields)


def message(fields: Mapping[str, MemberKind]) -> MemberKind:
    """An object with these members."""
    table = [
        (name.rstrip("*?"), name[-1] in "*?", name[-1] == "*", fields[name]) for name in fields
    ]

    def read(value: Json, where: str) -> Json:
        given: Any = _OBJECT(value, where)
        found: dict[str, Json] = {}
        for name, kept, required, kind in table:
            member = given.get(name)
            if member is None:  # ProtoJSON: null is not said
                if required and kind.default is not None:
                    found[name] = kind.default
                continue
            member = kind.read(member, f"{where}.{name}" if where else name)
            if kept or kind.default is None or member != kind.default:
                found[name] = member
        return found

    return MemberKind(read, fields=fields)


def free_object(value: Json, where: str) -> Json:
    """An object of anything."""
    return _OBJECT(value, where)


def _struct(value: Json, where: str) -> Json:
    return _free(_OBJECT(value, where), where)


def _free(value: Json, where: str) -> Json:
    """Anything at all, kept as it is but for numbers, which are doubles."""
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
"""AgentCard of lf.a2a.v1 without its signatures."""


def canonical(card: Json) -> bytes:
    """RFC 8785."""
    return rfc8785.dumps(card)


def canonical_stripped(card: Json) -> bytes:
    """What a2a-sdk (1.3.0) signs: it drops everything empty, required or not."""
    return canonical(stripped(card))


def ascii_stripped(card: Json) -> bytes:
    """What it signed in the versions of 1.0 before: ASCII, and numbers as doubles."""
    tree = _doubles(stripped(card))
    return json.dumps(tree, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()


def stripped(value: Json) -> Json:
    """Without all that is empty; None when nothing is left."""
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
    """A JSON object in which no name stands twice (RFC 8785 §3.1), or `Uncanonical`."""
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
