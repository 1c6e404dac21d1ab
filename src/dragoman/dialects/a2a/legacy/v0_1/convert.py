"""Converts the messages and tasks of A2A 0.1 to the canonical model and back (a2a-wire §15.5).

Values for which 0.1 has no place go into the metadata of the part, as in 0.3. 0.1 identifies
artifacts by number, so the ids of received artifacts are `artifact-<number>`. The id of a task is
the name that its caller gave it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

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
from dragoman.core.task_names import called

from ...members import Bag
from ...objects import File
from ...scalars import Wrong, base64_out, convert_each, each, stamp_in, stamp_out
from ...v0_3 import wire as wire_0_3
from ...v0_3.convert import (
    ROLES_IN,
    ROLES_OUT,
    file_in,
    pack_names,
    unpack_names,
    unwrap_value,
    wrap_value,
)
from . import wire

STATES_IN: dict[str | None, State] = {
    **{state.value: state for state in State},
    # The names of the community a2a-go, and one of python-a2a (dialects §4.5).
    "pending": State.SUBMITTED,
    "processing": State.WORKING,
    "waiting": State.INPUT_REQUIRED,
}
STATES_OUT: dict[State, str] = {
    **{state: state.value for state in State},
    State.REJECTED: "failed",
    State.AUTH_REQUIRED: "input-required",
}
ID = "artifact-"


class Flavour(Struct, frozen=True, gc=False):
    """The form that one kind of reader expects."""

    states: Mapping[State, str] = field(default_factory=lambda: STATES_OUT)
    both: bool = False
    """Whether the members of 0.3 are written in addition to those of 0.1."""
    beside: bool = False
    """Whether media types are beside `file` and `data`."""
    history: bool = True
    hint: str = ""
    """The metadata key for a state that has no name in `states`."""


PLAIN = Flavour()
BOTH = Flavour(both=True)


# Parts


def part_in(part: wire.Part) -> AnyPart:
    text, file, data, metadata = part.text, part.file, part.data, part.metadata
    if (text is not None) + (file is not None) + (data is not UNSET) != 1:
        raise Wrong("Expected exactly one of `text`, `file`, `data`")
    found = "text" if text is not None else "file" if file is not None else "data"
    kind = part.type or part.kind
    if kind and kind != found:
        raise Wrong(f"Expected `{found}`, got `{kind[:20]}`", ".type")
    if file is not None:
        mime_type = file.mime_type or part.mime_type
        return file_in(wire_0_3.File(file.name, mime_type, file.bytes, file.uri), metadata)
    filename, media_type, metadata = unpack_names(metadata)
    media_type = part.mime_type or media_type
    if text is not None:
        return Text(text, filename=filename, media_type=media_type, metadata=metadata)
    data, metadata = unwrap_value(data, metadata)
    return Data(data, filename=filename, media_type=media_type, metadata=metadata)


def part_out(part: AnyPart, flavour: Flavour) -> wire.Part:
    kind = _KINDS[type(part)]
    beside = part.media_type if flavour.beside and kind != "text" else ""
    named = kind if flavour.both else ""
    if isinstance(part, Text):
        return wire.Part(kind, part.text, None, UNSET, beside, pack_names(part), named)
    if isinstance(part, Data):
        bare = Data(part.value, filename=part.filename, metadata=part.metadata) if beside else part
        value, metadata = wrap_value(part.value, pack_names(bare))
        return wire.Part(kind, None, None, value, beside, metadata, named)
    content = base64_out(part.content) if isinstance(part, Blob) else None
    uri = None if isinstance(part, Blob) else part.url
    file = File(part.filename, "" if beside else part.media_type, content, uri)
    return wire.Part(kind, None, file, UNSET, beside, part.metadata, named)


_KINDS: dict[type, str] = {Text: "text", Blob: "file", Link: "file", Data: "data"}


def parts_in(parts: tuple[wire.Part, ...] | None) -> tuple[AnyPart, ...]:
    return tuple(convert_each(part_in, parts or (), ".parts"))


def content_in(content: Json) -> tuple[AnyPart, ...]:
    """Reads the only part of a message of python-a2a: text, or a call, a response or an error,
    which become data."""
    match content:
        case {"type": "text", "text": str(text)}:
            return (Text(text),)
        case dict():
            return (Data(content),)
        case _:
            raise Wrong("Expected an object", ".content")


# Messages, artifacts, tasks


def message_in(message: wire.Message) -> Message:
    parts = parts_in(message.parts)
    if message.parts is None and message.content is not None:
        parts = content_in(message.content)
    return Message(
        message_id=message.message_id or "",
        role=ROLES_IN.get(message.role, Role.AGENT),
        parts=parts,
        metadata=message.metadata,
    )


def message_out(message: Message, flavour: Flavour) -> wire.Message:
    parts = tuple(part_out(part, flavour) for part in message.parts)
    role = ROLES_OUT[message.role]
    if not flavour.both:
        return wire.Message(role, parts, message.metadata)
    return wire.Message(role, parts, message.metadata, "message", message.message_id)


def artifact_in(artifact: wire.Artifact) -> Artifact:
    return Artifact(
        artifact_id=artifact.artifact_id or f"{ID}{artifact.index or 0}",
        parts=parts_in(artifact.parts),
        name=artifact.name or "",
        description=artifact.description or "",
        metadata=artifact.metadata,
    )


def artifact_out(artifact: Artifact, index: int, flavour: Flavour) -> wire.Artifact:
    return wire.Artifact(
        artifact.name,
        artifact.description,
        tuple(part_out(part, flavour) for part in artifact.parts),
        index,
        metadata=artifact.metadata,
        artifact_id=artifact.artifact_id if flavour.both else "",
    )


def status_in(status: wire.Status) -> Status:
    return Status(
        STATES_IN.get(status.state, State.UNKNOWN),
        stamp_in(status.timestamp, ".status.timestamp") if status.timestamp else 0,
        message_in(status.message) if status.message is not None else None,
    )


def status_out(state: State, at: int, message: Message | None, flavour: Flavour) -> wire.Status:
    return wire.Status(
        flavour.states[state],
        message_out(message, flavour) if message is not None else None,
        stamp_out(at) if at else "",
    )


def add_hint(metadata: Bag, state: State, flavour: Flavour) -> Bag:
    """Returns the metadata, with the state if the variant has no name for it."""
    if not flavour.hint or STATES_IN.get(flavour.states[state]) is state:
        return metadata
    return {**(metadata or {}), flavour.hint: state.value}


def task_in(task: wire.Task) -> Task:
    return Task(
        id=task.id or "",
        context_id=task.session_id or task.context_id or "",
        status=status_in(task.status),
        artifacts=each(artifact_in, number_artifacts(task.artifacts or ())),
        history=each(message_in, task.history or ()),
        metadata=task.metadata,
    )


def number_artifacts(artifacts: tuple[wire.Artifact, ...]) -> tuple[wire.Artifact, ...]:
    """Yields artifacts with their positions, for peers that number only the first one."""
    if any(artifact.index for artifact in artifacts):
        return artifacts
    return tuple(replace(artifact, index=place) for place, artifact in enumerate(artifacts))


def task_out(task: Task, flavour: Flavour) -> wire.Task:
    status = task.status
    return wire.Task(
        called(task.id),
        task.context_id,
        status_out(status.state, status.at, status.message, flavour),
        tuple(artifact_out(made, i, flavour) for i, made in enumerate(task.artifacts)) or None,
        tuple(message_out(message, flavour) for message in task.history) or None
        if flavour.history
        else None,
        add_hint(task.metadata, status.state, flavour),
        "task" if flavour.both else "",
        task.context_id if flavour.both else "",
    )
