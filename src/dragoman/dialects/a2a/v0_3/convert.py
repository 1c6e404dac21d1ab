"""The parts of A2A 0.3, and its names for states and roles.

0.3 has no place for some of what we know (a2a-wire §15.5). It is kept in the part's metadata on the
way out and taken back from there on the way in:

- the filename and media type of text and data parts, under their 1.0 names;
- data that is not an object, as `{"value": x}` marked `data_part_compat` (as the SDKs do).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from msgspec import UNSET

from dragoman.core.model import AnyPart, Blob, Data, Json, Link, Role, State, Text

from ..codec import task_codec
from ..events import event_codec
from ..members import Bag
from ..scalars import Wrong, base64_in, base64_out
from . import wire

ROLES_IN: dict[str | None, Role] = {
    "user": Role.USER,
    "agent": Role.AGENT,
    # Clients that mix the versions (a2a-wire §15.4).
    "ROLE_USER": Role.USER,
    "ROLE_AGENT": Role.AGENT,
}
ROLES_OUT = {role: role.value for role in Role}
STATES_IN: dict[str | None, State] = {state.value: state for state in State}
STATES_OUT = {state: state.value for state in State}
DATA_PART_COMPAT = "data_part_compat"
FILENAME, MEDIA_TYPE = "filename", "mediaType"


# Parts


def part_reader(
    file_in: Callable[[Any, Bag], AnyPart],
    *,
    missing: Mapping[str | None, str] = {},
    data_in: Callable[[Json, str | None], Json] | None = None,
) -> Callable[[Any], AnyPart]:
    """Returns the function that reads parts, over JSON-RPC and over REST. `missing` names what a
    part of a kind lacks; `data_in` finds the value in `data`, which is not always the value
    itself."""

    def part_in(part: Any) -> AnyPart:
        text, file, data, metadata = part.text, part.file, part.data, part.metadata
        if (text is not None) + (file is not None) + (data is not UNSET) != 1:
            raise Wrong(missing.get(part.kind, "Expected exactly one of `text`, `file`, `data`"))
        check_kind(part, "text" if text is not None else "file" if file is not None else "data")
        if file is not None:
            return file_in(file, metadata)
        filename, media_type, metadata = unpack_names(metadata)
        if text is not None:
            return Text(text, filename=filename, media_type=media_type, metadata=metadata)
        value = data if data_in is None else data_in(data, part.kind)
        value, metadata = unwrap_value(value, metadata)
        return Data(value, filename=filename, media_type=media_type, metadata=metadata)

    return part_in


_MISSING: dict[str | None, str] = {
    "text": "Expected `text` and nothing else in a part of kind `text`",
    "file": 'Expected `file` and nothing else in a part of kind `file`: {"uri": "https://..."} '
    'or {"bytes": "..."}',
    "data": "Expected `data` and nothing else in a part of kind `data`",
}


def check_kind(part: HasKind, found: str) -> None:
    """Raises `Wrong` if the `kind` of a part does not match its content."""
    if part.kind is not None:
        if part.kind != found:
            raise Wrong(f"Expected `{found}`, got `{part.kind[:20]}`", ".kind")
    elif part.type is not None and part.type != found:
        raise Wrong(f"Expected `{found}`, got `{str(part.type)[:20]}`", ".type")


class HasKind(Protocol):
    """A part that may name its kind."""

    @property
    def kind(self) -> str | None:
        """The name of the kind in 0.3."""

    @property
    def type(self) -> Json:
        """The name of the kind in 0.1."""


def check_data(parts: Iterable[wire.Part], path: str) -> None:
    """Raises `Wrong` for data that is not an object, which callers may not send in 0.3."""
    for index, part in enumerate(parts):
        if part.data is not UNSET and not isinstance(part.data, dict):
            raise Wrong("Expected an object: in 0.3 data is nothing else", f"{path}[{index}].data")


def file_in(file: wire.File, metadata: Bag) -> AnyPart:
    filename, media_type = file.name or "", file.mime_type or ""
    content, uri = file.bytes, file.uri
    if content is not None and uri is None:
        raw = base64_in(content, ".file.bytes")
        return Blob(raw, filename=filename, media_type=media_type, metadata=metadata)
    if uri is not None and content is None:
        return Link(uri, filename=filename, media_type=media_type, metadata=metadata)
    for here, there in (("uri", "file_with_uri"), ("bytes", "file_with_bytes")):
        if getattr(file, there) is not None:
            name = "fileWith" + here.title()
            what = f"Expected `{here}`, got `{name}`, which is its name over REST and gRPC"
            raise Wrong(what, ".file")
    if content is None:
        raise Wrong("Expected `bytes` or `uri`", ".file")
    raise Wrong("Expected one of `bytes` and `uri`, not both", ".file")


part_in = part_reader(file_in, missing=_MISSING)


def part_out(part: AnyPart) -> wire.Part:
    if isinstance(part, Text):
        return wire.Part("text", part.text, None, UNSET, pack_names(part))
    if isinstance(part, Data):
        value, metadata = wrap_value(part.value, pack_names(part))
        return wire.Part("data", None, None, value, metadata)
    name, mime_type = part.filename, part.media_type
    if isinstance(part, Blob):
        file = wire.File(name, mime_type, base64_out(part.content))
    else:
        file = wire.File(name, mime_type, None, part.url)
    return wire.Part("file", None, file, UNSET, part.metadata)


def pack_names(part: Text | Data) -> Bag:
    """Returns the part's metadata with its filename and media type."""
    if not (part.filename or part.media_type):
        return part.metadata
    metadata = dict(part.metadata or {})
    if part.filename:
        metadata[FILENAME] = part.filename
    if part.media_type:
        metadata[MEDIA_TYPE] = part.media_type
    return metadata


def unpack_names(metadata: Bag) -> tuple[str, str, Bag]:
    """Returns the filename, the media type, and the rest of the metadata."""
    if not metadata or not (FILENAME in metadata or MEDIA_TYPE in metadata):
        return "", "", metadata
    rest = dict(metadata)
    found = {key: rest.pop(key) for key in (FILENAME, MEDIA_TYPE) if type(rest.get(key)) is str}
    if not found:
        return "", "", metadata
    return found.get(FILENAME, ""), found.get(MEDIA_TYPE, ""), rest or None


def wrap_value(value: Json, metadata: Bag) -> tuple[Json, Bag]:
    """Wraps a value in an object, because data must be an object in 0.3."""
    if isinstance(value, dict):
        return value, metadata
    return {"value": value}, {**(metadata or {}), DATA_PART_COMPAT: True}


def unwrap_value(data: Json, metadata: Bag) -> tuple[Json, Bag]:
    """Returns the value that is marked with `data_part_compat`, and the rest of the metadata."""
    if not metadata or metadata.get(DATA_PART_COMPAT) is not True:
        return data, metadata
    if not isinstance(data, dict) or data.keys() != {"value"}:
        return data, metadata
    rest = {key: value for key, value in metadata.items() if key != DATA_PART_COMPAT}
    return data["value"], rest or None


CODEC = task_codec(
    (wire.Message, wire.Artifact, wire.Status, wire.Task),
    *((part_in, part_out), (ROLES_IN, ROLES_OUT), (STATES_IN, STATES_OUT)),
    role_names="`user` or `agent`",
    link=".file.uri",
    check_parts=check_data,
)
EVENTS = event_codec(CODEC, wire, final=True)
task_out = CODEC.task_out
