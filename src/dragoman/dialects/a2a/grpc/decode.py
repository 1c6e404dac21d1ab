"""Decodes tasks and events from protobuf, in both packages, for the caller's side.

This is the counterpart of `encode`. Peers often leave out required members, so reading is lenient
where writing is strict.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dragoman.core.events import AnyEvent, ArtifactChunk, Snapshot, Stamped, StateChanged
from dragoman.core.extensions import CURSOR
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import Artifact, Json, Message, State, Status, Task

from .. import extensions
from ..cards import documents
from ..proto import Proto, bag_in, json_of, needed, stamp_in
from ..scalars import Wrong, convert_each
from .encode import STATES, GrpcEncoder

# Tasks


def artifact_in(words: GrpcEncoder, artifact: Proto) -> Artifact:
    """Returns an artifact, or a piece of one."""
    return Artifact(
        artifact_id=artifact.artifact_id,
        parts=tuple(convert_each(words.part_in, artifact.parts, ".parts")),
        name=artifact.name,
        description=artifact.description,
        metadata=bag_in(artifact),
        extensions=tuple(artifact.extensions),
    )


def status_in(words: GrpcEncoder, status: Proto) -> Status:
    """Returns a status. A state of a later version becomes `unknown`."""
    number = status.state
    return Status(
        STATES[number] if number < len(STATES) else State.UNKNOWN,
        stamp_in(status, "timestamp") or 0,
        words.message_in(getattr(status, words.status_message))
        if status.HasField(words.status_message)
        else None,
    )


def task_in(words: GrpcEncoder, task: Proto) -> Task:
    """Returns a task."""
    return Task(
        id=needed(task.id, "a task id", ".id"),
        context_id=task.context_id,
        status=status_in(words, task.status),
        artifacts=tuple(artifact_in(words, each) for each in task.artifacts),
        history=tuple(map(words.message_in, task.history)),
        metadata=bag_in(task),
    )


def sent_in(words: GrpcEncoder, response: Proto) -> Task | Message:
    """Returns the answer to a send."""
    member = response.WhichOneof("payload")
    if member == "task":
        return task_in(words, response.task)
    if member == words.message:
        return words.message_in(getattr(response, member))
    raise Wrong("Expected a task or a message")


def card_in(card: Proto) -> Any:
    """Returns the card. ProtoJSON is one of the spellings that its reader accepts."""
    return documents.card_in(json_of(card))


def nothing_in(empty: Proto) -> None:
    """Reads an answer without content."""


# What happens


def event_in(words: GrpcEncoder, step: Proto) -> tuple[Stamped | Message, bool]:
    """Returns an event, and whether no other can follow."""
    member = step.WhichOneof("payload")
    if member is None:
        raise Wrong("Expected a task, a message or an update")
    found = getattr(step, member)
    if member == words.message:
        return words.message_in(found), True
    seq, bag = _take_cursor(bag_in(found))
    if member == "task":
        task = replace(task_in(words, found), metadata=bag)
        return Stamped(task.id, task.context_id, seq, task.status.at, Snapshot(task=task)), False
    if member == "artifact_update":
        chunk = ArtifactChunk(
            artifact=artifact_in(words, found.artifact),
            append=found.append,
            last=found.last_chunk,
            metadata=bag,
        )
        return Stamped(found.task_id, found.context_id, seq, 0, chunk), False
    status = status_in(words, found.status)
    event: AnyEvent = extensions.note_in(bag, status.state) or StateChanged(
        state=status.state, message=status.message, metadata=bag
    )
    last = status.state in FINAL or (words.final and found.final)
    return Stamped(found.task_id, found.context_id, seq, status.at, event), last


def _take_cursor(bag: dict[str, Json] | None) -> tuple[int, dict[str, Json] | None]:
    """Returns the seq of an event from its metadata, and the rest of the metadata."""
    if not bag or CURSOR not in bag:
        return 0, bag
    seq = bag.pop(CURSOR)
    return seq if isinstance(seq, int) else 0, bag or None
