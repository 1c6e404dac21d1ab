"""Turns what a skill returns or yields into parts: str, bytes, Path, dict, numbers, Structs and
other classes of data, and lists."""

from __future__ import annotations

import mimetypes
from dataclasses import is_dataclass
from pathlib import Path

import msgspec

from dragoman.core.errors import AgentMisbehaved
from dragoman.core.model import AnyPart, Blob, Data, Json, Part, Text
from dragoman.core.nesting import too_deep

from .models import encode_model, is_model

OCTETS = "application/octet-stream"


def parts_of(value: object) -> tuple[AnyPart, ...]:
    """Returns the parts that a value stands for; None stands for no parts (DESIGN §4.1, Values)."""
    if type(value) is str:
        return (Text(value),)
    if value is None:
        return ()
    if isinstance(value, list | tuple):
        return tuple(part for item in value for part in parts_of(item))
    return (_part(value),)


def _part(value: object) -> AnyPart:
    match value:
        case Data(value=dict() | list() as inner):
            json_of(inner, "The value of a data part")
            return value
        case Part():
            return value  # type: ignore[return-value]  # Part has no instances but the four kinds
        case str():
            return Text(str(value))
        case bytes() | bytearray() | memoryview():
            return Blob(bytes(value), media_type=OCTETS)
        case Path():
            return file(value)
        case dict() | bool() | int() | float() | msgspec.Struct():
            return Data(builtins_of(value))
        case _ if is_dataclass(value) or is_model(value) or hasattr(value, "__attrs_attrs__"):
            return Data(builtins_of(value))
    raise AgentMisbehaved(
        f"A skill gave a {type(value).__name__}; give str, bytes, Path, dict, a number, "
        "a Struct, a dataclass, a model, a Part or a list of these"
    )


def builtins_of(value: object) -> Json:
    """Returns the value as plain JSON data."""
    return None if value is None else msgspec.json.decode(json_of(value))


def json_of(value: object, what: str = "A value") -> bytes:
    """Returns the value written as JSON. Raises `AgentMisbehaved` if that is not possible, or if it
    is too deep to be read."""
    try:
        written = msgspec.json.encode(value, enc_hook=_plain)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as exc:
        raise AgentMisbehaved(f"{what} cannot be written as JSON: {exc}") from exc
    if why := too_deep(written):
        raise AgentMisbehaved(f"{what} {why}")
    return written


def _plain(value: object) -> object:
    if isinstance(value, str):  # an `Answer`, or any other str of the author's
        return str(value)
    if is_model(value):
        return encode_model(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def file(source: Path | bytes, *, filename: str = "", media_type: str = "") -> Blob:
    """Returns a part that carries a file, from a path or from bytes."""
    if isinstance(source, Path):
        filename = filename or source.name
        source = source.read_bytes()
    media_type = media_type or mimetypes.guess_type(filename)[0] or OCTETS
    return Blob(source, filename=filename, media_type=media_type)
