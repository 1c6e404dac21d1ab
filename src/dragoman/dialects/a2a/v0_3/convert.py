"""A2A 0.3's messages and tasks to the canonical words and back.

0.3 has no place for some of what we know (a2a-wire §15.5). It is kept in the part's metadata on the
way out and taken back from there on the way in:

- the filename and media type of text and data parts, under their 1.0 names;
- data that is not an object, as `{"value": x}` marked `data_part_compat` (as the SDKs do).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import UNSET

from dragoman.core.model import (
    AnyPart,
    Artifact,
    Blob,
    Data,
    Json,
    Link,
    Message,
    Role,
    State,
    Status,
    Task,
    Text,
)

from ..scalars import Wrong, base64_in, base64_out, each, numbered, stamp_in, stamp_out
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
# In Python 3.11 naming a member costs as much as looking one up ten times.
_AGENT, _UNKNOWN = Role.AGENT, State.UNKNOWN
WRAPPED = "data_part_compat"
FILENAME, MEDIA_TYPE = "filename", "mediaType"


# Parts


def part_in(part: wire.Part) -> AnyPart:
    text, file, data, metadata = part.text, part.file, part.data, part.metadata
    if (text is not None) + (file is not None) + (data is not UNSET) != 1:
        raise Wrong(_MISSING.get(part.kind, "Expected exactly one of `text`, `file`, `data`"))
    kind_in(part, "text" if text is not None else "file" if file is not None else "data")
    if file is not None:
        return file_in(file, metadata)
    filename, media_type, metadata = undressed(metadata)
    if text is not None:
        return Text(text, filename=filename, media_type=media_type, metadata=metadata)
    data, metadata = unwrapped(data, metadata)
    return Data(data, filename=filename, media_type=media_type, metadata=metadata)


_MISSING: dict[str | None, str] = {
    "text": "Expected `text` and nothing else in a part of kind `text`",
    "file": 'Expected `file` and nothing else in a part of kind `file`: {"uri": "https://..."} '
    'or {"bytes": "..."}',
    "data": "Expected `data` and nothing else in a part of kind `data`",
}


def kind_in(part: Kinded, found: str) -> None:
    """Raises `Wrong` if a part says that it is something else than what it holds."""
    if part.kind is not None:
        if part.kind != found:
            raise Wrong(f"Expected `{found}`, got `{part.kind[:20]}`", ".kind")
    elif part.type is not None and part.type != found:
        raise Wrong(f"Expected `{found}`, got `{str(part.type)[:20]}`", ".type")


class Kinded(Protocol):
    """A part that may say what it is."""

    @property
    def kind(self) -> str | None:
        """In the word of 0.3,"""

    @property
    def type(self) -> Json:
        """or of 0.1."""


def data_in(parts: Iterable[wire.Part], path: str) -> None:
    """Raises `Wrong` for data that is no object, which callers may not say in 0.3."""
    for index, part in enumerate(parts):
        if part.data is not UNSET and not isinstance(part.data, dict):
            raise Wrong("Expected an object: in 0.3 data is nothing else", f"{path}[{index}].data")


def file_in(file: wire.File, metadata: wire.Bag) -> AnyPart:
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


def part_out(part: AnyPart) -> wire.Part:
    if isinstance(part, Text):
        return wire.Part("text", part.text, None, UNSET, dressed(part))
    if isinstance(part, Data):
        value, metadata = wrapped(part.value, dressed(part))
        return wire.Part("data", None, None, value, metadata)
    name, mime_type = part.filename, part.media_type
    if isinstance(part, Blob):
        file = wire.File(name, mime_type, base64_out(part.content))
    else:
        file = wire.File(name, mime_type, None, part.url)
    return wire.Part("file", None, file, UNSET, part.metadata)


def dressed(part: Text | Data) -> wire.Bag:
    """The part's metadata with its filename and media type."""
    if not (part.filename or part.media_type):
        return part.metadata
    metadata = dict(part.metadata or {})
    if part.filename:
        metadata[FILENAME] = part.filename
    if part.media_type:
        metadata[MEDIA_TYPE] = part.media_type
    return metadata


def undressed(metadata: wire.Bag) -> tuple[str, str, wire.Bag]:
    """Filename, media type, and what metadata is left."""
    if not metadata or not (FILENAME in metadata or MEDIA_TYPE in metadata):
        return "", "", metadata
    rest = dict(metadata)
    found = {key: rest.pop(key) for key in (FILENAME, MEDIA_TYPE) if type(rest.get(key)) is str}
    if not found:
        return "", "", metadata
    return found.get(FILENAME, ""), found.get(MEDIA_TYPE, ""), rest or None


def wrapped(value: Json, metadata: wire.Bag) -> tuple[Json, wire.Bag]:
    """0.3 takes only objects as data."""
    if isinstance(value, dict):
        return value, metadata
    return {"value": value}, {**(metadata or {}), WRAPPED: True}


def unwrapped(data: Json, metadata: wire.Bag) -> tuple[Json, wire.Bag]:
    """The value behind `data_part_compat`, and what metadata is left."""
    if not metadata or metadata.get(WRAPPED) is not True:
        return data, metadata
    if not isinstance(data, dict) or data.keys() != {"value"}:
        return data, metadata
    rest = {key: value for key, value in metadata.items() if key != WRAPPED}
    return data["value"], rest or None


def parts_in(parts: tuple[wire.Part, ...] | None) -> tuple[AnyPart, ...]:
    parts = parts or ()
    try:
        return each(part_in, parts)
    except Wrong:
        return tuple(numbered(part_in, parts, ".parts"))


# Messages, artifacts, tasks


def message_in(message: wire.Message) -> Message:
    return Message(
        message_id=message.message_id or "",
        role=ROLES_IN.get(message.role, _AGENT),
        parts=parts_in(message.parts),
        context_id=message.context_id or "",
        task_id=message.task_id or "",
        metadata=message.metadata,
        extensions=message.extensions or (),
        references=message.reference_task_ids or (),
    )


def message_out(message: Message) -> wire.Message:
    return wire.Message(
        message.message_id,
        ROLES_OUT[message.role],
        each(part_out, message.parts),
        message.context_id,
        message.task_id,
        message.metadata,
        message.extensions,
        message.references,
    )


def artifact_in(artifact: wire.Artifact) -> Artifact:
    return Artifact(
        artifact_id=artifact.artifact_id or "",
        parts=parts_in(artifact.parts),
        name=artifact.name or "",
        description=artifact.description or "",
        metadata=artifact.metadata,
        extensions=artifact.extensions or (),
    )


def artifact_out(artifact: Artifact) -> wire.Artifact:
    return wire.Artifact(
        artifact.artifact_id,
        each(part_out, artifact.parts),
        artifact.name,
        artifact.description,
        artifact.metadata,
        artifact.extensions,
    )


def status_in(status: wire.Status) -> Status:
    return Status(
        STATES_IN.get(status.state, _UNKNOWN),
        stamp_in(status.timestamp, ".status.timestamp") if status.timestamp else 0,
        message_in(status.message) if status.message is not None else None,
    )


def status_out(state: State, at: int, message: Message | None) -> wire.Status:
    return wire.Status(
        STATES_OUT[state],
        stamp_out(at) if at else "",
        message_out(message) if message is not None else None,
    )


def task_in(task: wire.Task) -> Task:
    return Task(
        id=task.id,
        context_id=task.context_id or "",
        status=status_in(task.status),
        artifacts=each(artifact_in, task.artifacts or ()),
        history=each(message_in, task.history or ()),
        metadata=task.metadata,
    )


def task_out(task: Task) -> wire.Task:
    status = task.status
    return wire.Task(
        task.id,
        task.context_id,
        status_out(status.state, status.at, status.message),
        each(artifact_out, task.artifacts) or None,
        each(message_out, task.history) or None,
        task.metadata,
    )
