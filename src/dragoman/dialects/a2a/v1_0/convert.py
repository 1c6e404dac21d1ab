"""A2A 1.0's messages and tasks to the canonical words and back.

Wrong values raise `Wrong`. What only a request must have is checked in `calls`: what peers tell us
is read more kindly than what callers ask of us.
"""

from __future__ import annotations

from msgspec import UNSET

from dragoman.core.model import (
    AnyPart,
    Artifact,
    Blob,
    Data,
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

STATES_OUT = {
    State.UNKNOWN: "TASK_STATE_UNSPECIFIED",
    State.SUBMITTED: "TASK_STATE_SUBMITTED",
    State.WORKING: "TASK_STATE_WORKING",
    State.COMPLETED: "TASK_STATE_COMPLETED",
    State.FAILED: "TASK_STATE_FAILED",
    State.CANCELED: "TASK_STATE_CANCELED",
    State.INPUT_REQUIRED: "TASK_STATE_INPUT_REQUIRED",
    State.REJECTED: "TASK_STATE_REJECTED",
    State.AUTH_REQUIRED: "TASK_STATE_AUTH_REQUIRED",
}
STATES_IN: dict[str | int | None, State] = {
    **{name: state for state, name in STATES_OUT.items()},
    # ProtoJSON takes the numbers too; the table above stands in their order.
    **dict(enumerate(STATES_OUT)),
}
ROLES_OUT = {Role.USER: "ROLE_USER", Role.AGENT: "ROLE_AGENT"}
ROLES_IN: dict[str | int | None, Role] = {
    "ROLE_USER": Role.USER,
    "ROLE_AGENT": Role.AGENT,
    1: Role.USER,
    2: Role.AGENT,
}
# In Python 3.11 naming a member costs as much as looking one up ten times.
_AGENT, _UNKNOWN = Role.AGENT, State.UNKNOWN


# Parts


def part_in(part: wire.Part) -> AnyPart:
    text, raw, url, data = part.text, part.raw, part.url, part.data
    if (text is not None) + (raw is not None) + (url is not None) + (data is not UNSET) != 1:
        if part.file is not UNSET:
            raise Wrong("Expected `url` or `raw`, got `file`, which is a file of 0.3")
        raise Wrong("Expected exactly one of `text`, `raw`, `url`, `data`")
    filename, metadata = part.filename or "", part.metadata
    media_type = part.media_type or part.media_type_
    if text is not None:
        return Text(text, filename=filename, media_type=media_type, metadata=metadata)
    if raw is not None:
        content = base64_in(raw, ".raw")
        return Blob(content, filename=filename, media_type=media_type, metadata=metadata)
    if url is not None:
        return Link(url, filename=filename, media_type=media_type, metadata=metadata)
    return Data(data, filename=filename, media_type=media_type, metadata=metadata)


def part_out(part: AnyPart) -> wire.Part:
    filename, media_type = part.filename, part.media_type
    if isinstance(part, Text):
        return wire.Part(part.text, None, None, UNSET, filename, media_type, part.metadata)
    if isinstance(part, Blob):
        raw = base64_out(part.content)
        return wire.Part(None, raw, None, UNSET, filename, media_type, part.metadata)
    if isinstance(part, Link):
        return wire.Part(None, None, part.url, UNSET, filename, media_type, part.metadata)
    return wire.Part(None, None, None, part.value, filename, media_type, part.metadata)


def parts_in(parts: tuple[wire.Part, ...] | None) -> tuple[AnyPart, ...]:
    parts = parts or ()
    try:
        return each(part_in, parts)
    except Wrong:
        return tuple(numbered(part_in, parts, ".parts"))


# Messages, artifacts, tasks


def message_in(message: wire.Message) -> Message:
    return Message(
        message_id=message.message_id or message.message_id_,
        role=ROLES_IN.get(message.role, _AGENT),
        parts=parts_in(message.parts),
        context_id=message.context_id or message.context_id_,
        task_id=message.task_id or message.task_id_,
        metadata=message.metadata,
        extensions=message.extensions or (),
        references=message.reference_task_ids or message.reference_task_ids_,
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
