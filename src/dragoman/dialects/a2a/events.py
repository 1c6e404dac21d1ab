"""Converts the events of a stream between the canonical model and the JSON of one version.

1.0 and 0.3 over REST put an event into a wrapper (StreamResponse) with a member for each of its
four kinds; SendMessageResponse is the same without updates. In 0.3 over JSON-RPC, each of the four
stands alone and names its kind (`v0_3.calls`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from dragoman.core import events as ev
from dragoman.core.events import Stamped
from dragoman.core.lifecycle import ENDS_STREAM, FINAL
from dragoman.core.model import Message, State, Task

from . import extensions
from .codec import TaskCodec, Wire
from .members import Bag
from .scalars import Wrong, stamp_in

_SUBMITTED, _UNKNOWN = State.SUBMITTED, State.UNKNOWN


class EventCodec(NamedTuple):
    """The converters of one version. Those that read also return whether no event can follow."""

    event_out: Callable[[Stamped | Message, bool], Wire]
    """Writes an event, or the direct reply that is the whole stream. The flag says whether the
    caller has activated our extension for notes."""
    snapshot_in: Callable[[Wire, int], tuple[Stamped, bool]]
    chunk_in: Callable[[Wire, int], tuple[Stamped, bool]]
    update_in: Callable[[Wire, int], tuple[Stamped, bool]]


def event_codec(codec: TaskCodec[Any, Any, Any], wire: Any, *, final: bool) -> EventCodec:
    """Returns the converters for the structs of this `wire` module, with its `Step` as the wrapper,
    if that is a struct. With `final`, a status update says whether it is the last one."""
    task, status_update, artifact_update = wire.Task, wire.StatusUpdate, wire.ArtifactUpdate
    step = wire.Step if isinstance(wire.Step, type) else None
    message_out, artifact_out = codec.message_out, codec.artifact_out
    status_out, task_out = codec.status_out, codec.task_out
    states_in, message_in = codec.states_in, codec.message_in
    artifact_in, task_in = codec.artifact_in, codec.task_in

    def event_out(entry: Stamped | Message, notes: bool) -> Wire:
        if isinstance(entry, Stamped):
            return out[type(entry.event)](entry, entry.event, notes)
        reply = message_out(entry)
        return reply if step is None else step(None, reply)

    def opened_out(entry: Stamped, event: ev.Opened, notes: bool) -> Wire:
        status = status_out(_SUBMITTED, entry.at, None)
        history = (message_out(event.message),)
        found = task(entry.task_id, entry.context_id, status, None, history, event.metadata)
        return found if step is None else step(found)

    def snapshot_out(entry: Stamped, event: ev.Snapshot, notes: bool) -> Wire:
        found = task_out(event.task)
        return found if step is None else step(found)

    def state_out(entry: Stamped, event: ev.StateChanged, notes: bool) -> Wire:
        return update_out(entry, event.state, event.message, event.metadata)

    def asked_out(entry: Stamped, event: ev.Asked, notes: bool) -> Wire:
        return update_out(entry, event.state, event.message, None)

    def noted_out(entry: Stamped, event: ev.Noted, notes: bool) -> Wire:
        # Execution is opaque: without the extension a caller sees only the state (DESIGN §3).
        note = extensions.note_out(event) if notes else None
        return update_out(entry, event.state, None, note)

    def update_out(entry: Stamped, state: State, message: Message | None, metadata: Bag) -> Wire:
        status = status_out(state, entry.at, message)
        if final:
            last = state in ENDS_STREAM
            update = status_update(entry.task_id, entry.context_id, status, last, metadata)
        else:
            update = status_update(entry.task_id, entry.context_id, status, metadata)
        return update if step is None else step(None, None, update)

    def chunk_out(entry: Stamped, event: ev.ArtifactChunk, notes: bool) -> Wire:
        update = artifact_update(
            artifact_out(event.artifact),
            entry.task_id,
            entry.context_id,
            event.append,
            event.last,
            event.metadata,
        )
        return update if step is None else step(None, None, None, update)

    out: dict[type[ev.AnyEvent], Callable[..., Wire]] = {
        ev.Opened: opened_out,
        ev.Snapshot: snapshot_out,
        ev.StateChanged: state_out,
        ev.Asked: asked_out,
        ev.Noted: noted_out,
        ev.ArtifactChunk: chunk_out,
    }

    def snapshot_in(task: Wire, seq: int) -> tuple[Stamped, bool]:
        found = task_in(task)
        event = ev.Snapshot(found)
        return Stamped(found.id, found.context_id, seq, found.status.at, event), False

    def chunk_in(update: Wire, seq: int) -> tuple[Stamped, bool]:
        event = ev.ArtifactChunk(
            artifact_in(update.artifact),
            update.append or False,
            update.last_chunk or update.last_chunk_ or False,
            update.metadata,
        )
        task_id, context_id = update.task_id or update.task_id_, update.context_id
        return Stamped(task_id, context_id or update.context_id_, seq, 0, event), False

    def update_in(update: Wire, seq: int) -> tuple[Stamped, bool]:
        # Like `status_in`, without a status that would be taken apart again.
        status, metadata = update.status, update.metadata
        state = states_in.get(status.state, _UNKNOWN)
        at = stamp_in(status.timestamp, ".status.timestamp") if status.timestamp else 0
        said = status.message or status.message_
        message = message_in(said) if said is not None else None
        event: ev.AnyEvent | None = extensions.note_in(metadata, state) if metadata else None
        if event is None:
            event = ev.StateChanged(state, message, None, metadata)
        task_id, context_id = update.task_id or update.task_id_, update.context_id
        stamped = Stamped(task_id, context_id or update.context_id_, seq, at, event)
        return stamped, update.final or state in FINAL

    return EventCodec(event_out, snapshot_in, chunk_in, update_in)


class StepCodec(NamedTuple):
    """The converters of one version for the content of a wrapper."""

    sent_out: Callable[[Task | Message, object], Wire]
    sent_in: Callable[[Raw], Task | Message]
    task_in: Callable[[Raw], Task]
    event_in: Callable[[Raw, int], tuple[Stamped | Message, bool]]


def step_codec(codec: TaskCodec[Any, Any, Any], events: EventCodec, wire: Any) -> StepCodec:
    """Returns the converters for the structs of this `wire` module.

    Some peers leave out the wrapper. Its content is then recognised by its members.
    """
    step = wire.Step
    task_out, message_out = codec.task_out, codec.message_out
    whole_in, message_in = codec.task_in, codec.message_in
    snapshot_in, chunk_in, update_in = events.snapshot_in, events.chunk_in, events.update_in
    read = msgspec.json.Decoder(wire.StepIn).decode

    def step_in(raw: Raw) -> Wire:
        found = read(raw)
        if found.parts is not None or found.parts_ is not None:
            return step(message=msgspec.json.decode(raw, type=wire.Message))
        if found.artifact is not None:
            return step(artifact_update=msgspec.json.decode(raw, type=wire.ArtifactUpdate))
        if found.status is not None and found.id is not None:
            return step(msgspec.json.decode(raw, type=wire.Task))
        if found.status is not None:
            return step(status_update=msgspec.json.decode(raw, type=wire.StatusUpdate))
        return found

    def sent_out(value: Task | Message, op: object) -> Wire:
        if isinstance(value, Task):
            return step(task_out(value))
        return step(None, message_out(value))

    def sent_in(raw: Raw) -> Task | Message:
        found = step_in(raw)
        if found.task is not None:
            return whole_in(found.task)
        message = found.message or found.message_
        if message is None:
            raise Wrong("Expected a task or a message")
        return message_in(message)

    def task_in(raw: Raw) -> Task:
        found = step_in(raw)
        if found.task is None:
            raise Wrong("Expected a task")
        return whole_in(found.task)

    def event_in(raw: Raw, seq: int) -> tuple[Stamped | Message, bool]:
        found = step_in(raw)
        message = found.message or found.message_
        if message is not None:
            return message_in(message), True
        if found.task is not None:
            return snapshot_in(found.task, seq)
        if (chunk := found.artifact_update or found.artifact_update_) is not None:
            return chunk_in(chunk, seq)
        if (update := found.status_update or found.status_update_) is not None:
            return update_in(update, seq)
        raise Wrong("Expected a task, a message or an update")

    return StepCodec(sent_out, sent_in, task_in, event_in)
