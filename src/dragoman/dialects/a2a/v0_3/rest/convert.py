"""A2A 0.3's ProtoJSON to the canonical words and back. What its JSON-RPC shares is next door."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

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

from ...scalars import Wrong, base64_in, base64_out, each, numbered, stamp_in, stamp_out
from ...v1_0 import convert as v1_0
from ...v1_0.wire import Bag
from .. import files
from ..convert import dressed, kind_in, undressed, unwrapped, wrapped
from . import wire

STATES_OUT = v1_0.STATES_OUT | {State.CANCELED: "TASK_STATE_CANCELLED"}
STATES_IN: dict[str | int | None, State] = {
    **v1_0.STATES_IN,
    **{state.value: state for state in State},
    "TASK_STATE_CANCELLED": State.CANCELED,
}
ROLES_OUT = v1_0.ROLES_OUT
ROLES_IN: dict[str | int | None, Role] = {
    **v1_0.ROLES_IN,
    **{role.value: role for role in Role},
}
# In Python 3.11 naming a member costs as much as looking one up ten times.
_AGENT, _UNKNOWN = Role.AGENT, State.UNKNOWN


# Parts


def part_in(part: wire.Part) -> AnyPart:
    text, file, data, metadata = part.text, part.file, part.data, part.metadata
    if (text is not None) + (file is not None) + (data is not UNSET) != 1:
        raise Wrong("Expected exactly one of `text`, `file`, `data`")
    kind_in(part, "text" if text is not None else "file" if file is not None else "data")
    if file is not None:
        return file_in(file, metadata)
    filename, media_type, metadata = undressed(metadata)
    if text is not None:
        return Text(text, filename=filename, media_type=media_type, metadata=metadata)
    value, metadata = unwrapped(_bare(data, part.kind), metadata)
    return Data(value, filename=filename, media_type=media_type, metadata=metadata)


def _bare(data: Json, kind: str | None) -> Json:
    """A DataPart has its value in `data`; types.ts, told by `kind`, has it right here."""
    if kind is None and isinstance(data, dict) and data.keys() == {"data"}:
        return data["data"]
    return data


def data_in(parts: Iterable[wire.Part], path: str) -> None:
    """Raises `Wrong` for data that is no object, which callers may not say in 0.3."""
    for index, part in enumerate(parts):
        if part.data is not UNSET and not isinstance(_bare(part.data, part.kind), dict):
            raise Wrong("Expected an object: in 0.3 data is nothing else", f"{path}[{index}].data")


def file_in(file: wire.File, metadata: Bag) -> AnyPart:
    filename, media_type = file.name or "", file.mime_type or file.mime_type_
    twice = file.file_with_bytes if file.file_with_bytes is not None else file.file_with_bytes_
    uri = next(
        (u for u in (file.file_with_uri, file.file_with_uri_, file.uri) if u is not None), None
    )
    found = (twice is not None) + (file.bytes is not None) + (uri is not None)
    if not found:
        raise Wrong("Expected `fileWithBytes` or `fileWithUri`", ".file")
    if found > 1:
        raise Wrong("Expected one of `fileWithBytes` and `fileWithUri`, not both", ".file")
    if uri is not None:
        return Link(uri, filename=filename, media_type=media_type, metadata=metadata)
    if twice is not None:
        raw = files.bytes_in(base64_in(twice, ".file.fileWithBytes"), media_type)
    else:
        raw = base64_in(file.bytes or "", ".file.bytes")
    return Blob(raw, filename=filename, media_type=media_type, metadata=metadata)


def file_notes(params: wire.SendParams) -> Iterator[Mapping[str, Json]]:
    """For the log: how the bytes of each file were taken."""
    message = params.message or params.request or params.msg or wire.Message()
    return files.notes(
        (index, base64_in(twice), part.file.mime_type or part.file.mime_type_)
        for index, part in enumerate(message.content or message.parts or ())
        if part.file is not None
        and (twice := part.file.file_with_bytes or part.file.file_with_bytes_)
    )


def part_out(part: AnyPart) -> wire.Part:
    if isinstance(part, Text):
        return wire.Part(part.text, None, UNSET, dressed(part))
    if isinstance(part, Data):
        value, metadata = wrapped(part.value, dressed(part))
        return wire.Part(None, None, wire.DataPart(value), metadata)
    media_type, filename = part.media_type, part.filename
    if isinstance(part, Blob):
        twice = base64_out(base64_out(part.content).encode())
        file = wire.File(None, twice, media_type, filename)
    else:
        file = wire.File(part.url, None, media_type, filename)
    return wire.Part(None, file, UNSET, part.metadata)


def parts_in(parts: tuple[wire.Part, ...] | None, path: str = ".parts") -> tuple[AnyPart, ...]:
    parts = parts or ()
    try:
        return each(part_in, parts)
    except Wrong:
        return tuple(numbered(part_in, parts, path))


# Messages, artifacts, tasks


def message_in(message: wire.Message) -> Message:
    return Message(
        message_id=message.message_id or message.message_id_,
        role=ROLES_IN.get(message.role, _AGENT),
        parts=parts_in(message.content or message.parts, ".content"),
        context_id=message.context_id or message.context_id_,
        task_id=message.task_id or message.task_id_,
        metadata=message.metadata,
        extensions=message.extensions or (),
        references=message.reference_task_ids or message.reference_task_ids_ or (),
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
        artifact_id=artifact.artifact_id or artifact.artifact_id_,
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
    message = status.message or status.update
    return Status(
        STATES_IN.get(status.state, _UNKNOWN),
        stamp_in(status.timestamp, ".status.timestamp") if status.timestamp else 0,
        message_in(message) if message is not None else None,
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
        context_id=task.context_id or task.context_id_,
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
