"""The messages of A2A over gRPC, in a pool of our own.

A process may hold another A2A library with the same names in protobuf's default pool; here they
cannot clash. `descriptors` is made from `proto/*.proto` by `make proto`. Nothing else in the
package imports protobuf.

Messages are built from plain dictionaries (`make`) and read by attribute; both are done in C. The
JSON-shaped Struct and Value are read by `object_in` and `value_in`.
"""

from __future__ import annotations

import sys
from base64 import b85decode
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from dragoman.core.model import Json
from dragoman.core.nesting import MAX_CONTAINERS

from ..scalars import MAX_INT32, Wrong, count_in
from .descriptors import FILES

Proto = Any
"""A protobuf message. Its classes are created at run time, so a type checker does not know its
fields."""
Fields = dict[str, Any]
"""The fields of a message that is to be created, by name."""

POOL = DescriptorPool()
for _file in FileDescriptorSet.FromString(b85decode(FILES)).file:
    POOL.AddSerializedFile(_file.SerializeToString())


ANY = sys.maxsize


def reader(name: str, most: int = MAX_CONTAINERS) -> Callable[[bytes], Proto]:
    """Returns a function that reads the message of this name, and raises `Wrong` if it is not
    valid. An answer may be a long list, of `ANY` size; the messages of callers are limited
    (`spend`)."""
    parse = _message(name).FromString

    def read(body: bytes) -> Proto:
        _LEFT.set([most])
        try:
            return parse(body)
        except DecodeError:
            raise Wrong(f"This is not a {name}") from None

    return read


_LEFT: ContextVar[list[int]] = ContextVar("containers left in the message that is read")


def spend(containers: int) -> None:
    """Counts the objects in a message, as the brackets of JSON are counted (`nesting`), because
    each costs more to convert than to send. Raises `Wrong` if there are too many. The depth is
    limited by protobuf itself, more strictly than by us."""
    left = _LEFT.get([MAX_CONTAINERS])
    left[0] -= containers
    if left[0] < 0:
        raise Wrong(f"Expected at most {MAX_CONTAINERS} parts, lists and objects")


def writer(name: str) -> Callable[[Fields], bytes]:
    """Returns a function that writes the message of this name."""
    message = _message(name)

    def write(fields: Fields) -> bytes:
        written: bytes = message(**fields).SerializeToString()
        return written

    return write


def json_of(message: Proto) -> bytes:
    """Returns the message as ProtoJSON. This is too slow for anything but cards."""
    written: str = MessageToJson(message, indent=None)
    return written.encode()


def _message(name: str) -> Any:
    return GetMessageClass(POOL.FindMessageTypeByName(name))


_EXACT = 2**53
"""The limit beyond which a double cannot represent every integer."""


def number_in(number: float) -> int | float:
    """Returns a number as JSON would have it: protobuf sends every number as a double, so 3.0
    becomes 3."""
    return int(number) if number.is_integer() and -_EXACT <= number <= _EXACT else number


def value_in(value: Proto) -> Json:
    """Returns the content of a google.protobuf.Value; one without content is null."""
    kind = value.WhichOneof("kind")
    return _VALUES_IN[kind](getattr(value, kind)) if kind is not None else None


def object_in(struct: Proto) -> dict[str, Json]:
    """Returns a google.protobuf.Struct as a JSON object."""
    spend(1)
    return {key: value_in(value) for key, value in struct.fields.items()}


def list_in(items: Proto) -> list[Json]:
    """Returns a google.protobuf.ListValue as a JSON array."""
    spend(1)
    return [value_in(item) for item in items.values]


_VALUES_IN: dict[str, Callable[[Any], Json]] = {
    "null_value": lambda null: None,
    "bool_value": bool,
    "string_value": str,
    "number_value": number_in,
    "struct_value": object_in,
    "list_value": list_in,
}


def value_out(value: Json) -> Fields:
    """Returns a JSON value as the fields of a google.protobuf.Value."""
    match value:
        case None:
            return {"null_value": 0}
        case bool():
            return {"bool_value": value}
        case str():
            return {"string_value": value}
        case int() | float():
            return {"number_value": value}
        case dict():
            return {"struct_value": value}
        case list() | tuple():
            return {"list_value": list(value)}
    raise TypeError(f"{type(value).__name__} is not JSON")


def bag_in(message: Proto, field: str = "metadata") -> dict[str, Json] | None:
    """Returns a Struct that may be missing."""
    return object_in(getattr(message, field)) if message.HasField(field) else None


def stamp_in(message: Proto, field: str) -> int | None:
    """Returns a Timestamp that may be missing, in milliseconds."""
    if not message.HasField(field):
        return None
    stamp = getattr(message, field)
    return int(stamp.seconds) * 1000 + int(stamp.nanos) // 1_000_000


def stamp_out(at: int) -> Fields | None:
    """Returns milliseconds as a Timestamp, or None if the time is not known."""
    if not at:
        return None
    seconds, millis = divmod(at, 1000)
    return {"seconds": seconds, "nanos": millis * 1_000_000}


def counted(
    message: Proto, field: str, path: str = ".historyLength", low: int = 0, high: int = MAX_INT32
) -> int | None:
    """Returns a number that may be missing."""
    return count_in(getattr(message, field), path, low, high) if message.HasField(field) else None


def needed(value: str, what: str, path: str) -> str:
    """Returns a string that must not be empty."""
    if not value:
        raise Wrong(f"Expected {what}", path)
    return value
