"""What of a signal does not survive A2A: the declared losses, for tests and for people.

Both versions: the work behind a task is opaque (what was heard, what a question is about, notes);
a chunk has no time; an opened task is told as the task it is; errors without a code are told by
the nearest that has one; whether a caller wants a webhook is told by the webhook's address, which
an operation does not hold. 0.3 also has no filename or media type on text and data: they live in
metadata there.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from dragoman.errors import DragomanError
from dragoman.events import ArtifactChunk, Asked, Noted, Opened, Snapshot, Stamped, StateChanged
from dragoman.lifecycle import Fold
from dragoman.model import AnyPart, Artifact, Data, Message, Status, Task, Text
from dragoman.ops import SendMessage, TaskPage
from dragoman.session import Answer, Call, Fault, Signal, Update

from . import errors
from .v0_3 import V0_3, convert
from .v1_0 import V1_0
from .version import Version

Parts = Callable[[AnyPart], AnyPart]


def carried_1_0(signal: Signal) -> Signal:
    """What of a signal arrives over 1.0."""
    return _carried(signal, V1_0, lambda part: part)


def carried_0_3(signal: Signal) -> Signal:
    """What of a signal arrives over 0.3."""
    return _carried(signal, V0_3, _part_0_3)


def _carried(signal: Signal, version: Version, part: Parts) -> Signal:
    match signal:
        case Call(op=SendMessage() as op):
            return replace(signal, op=replace(op, message=_message(op.message, part), push=False))
        case Answer(value=Task() as task):
            return replace(signal, value=_task(task, part))
        case Answer(value=Message() as message):
            return replace(signal, value=_message(message, part))
        case Answer(value=TaskPage() as page):
            tasks = tuple(_task(task, part) for task in page.tasks)
            return replace(signal, value=replace(page, tasks=tasks))
        case Update(entry=Message() as message):
            return replace(signal, entry=_message(message, part))
        case Update(entry=Stamped() as entry):
            return replace(signal, entry=_entry(entry, part))
        case Fault(error=error):
            return replace(signal, error=_error(error, version))
        case _:
            return signal


def _entry(entry: Stamped, part: Parts) -> Stamped:
    match entry.event:
        case ArtifactChunk() as event:
            chunk = replace(event, artifact=_artifact(event.artifact, part))
            return replace(entry, at=0, event=chunk)
        case StateChanged() as event:
            message = _maybe(event.message, part)
            return replace(entry, event=replace(event, message=message, heard=None))
        case Asked() as event:
            message = _message(event.message, part)
            return replace(entry, event=StateChanged(state=event.state, message=message))
        case Noted() as event:
            return replace(entry, event=StateChanged(state=event.state))
        case Opened():
            fold = Fold(entry.task_id, entry.context_id)
            fold.add(entry)
            return replace(entry, event=Snapshot(task=_task(fold.task(), part)))
        case Snapshot(task=task):
            told = Snapshot(task=_task(task, part))
            return Stamped(task.id, task.context_id, entry.seq, task.status.at, told)


def _task(task: Task, part: Parts) -> Task:
    status = task.status
    return replace(
        task,
        status=Status(status.state, status.at, _maybe(status.message, part)),
        artifacts=tuple(_artifact(artifact, part) for artifact in task.artifacts),
        history=tuple(_message(message, part) for message in task.history),
    )


def _message(message: Message, part: Parts) -> Message:
    return replace(message, parts=tuple(map(part, message.parts)))


def _maybe(message: Message | None, part: Parts) -> Message | None:
    return None if message is None else _message(message, part)


def _artifact(artifact: Artifact, part: Parts) -> Artifact:
    return replace(artifact, parts=tuple(map(part, artifact.parts)))


def _part_0_3(part: AnyPart) -> AnyPart:
    """The same, but metadata with the two words of ours in it comes back as those words, and what
    only held them comes back as none.
    """
    if isinstance(part, Text):
        filename, media_type, metadata = convert.undressed(convert.dressed(part))
        return Text(part.text, filename=filename, media_type=media_type, metadata=metadata)
    if isinstance(part, Data):
        value, metadata = convert.wrapped(part.value, convert.dressed(part))
        filename, media_type, metadata = convert.undressed(metadata)
        value, metadata = convert.unwrapped(value, metadata)
        return Data(value, filename=filename, media_type=media_type, metadata=metadata)
    return part


def _error(error: DragomanError, version: Version) -> DragomanError:
    told = errors.spelling_of(error, version.spellings)
    return errors.error_in(told.code, error.message, version.details(error))
