"""The declared losses of A2A, for tests and for people: what of a signal does not survive it.

In both versions, the work behind a task is opaque (received messages, the details of a question,
notes); a chunk has no time; an opened task is sent as a task; errors without a code are sent as the
nearest one that has a code; the dialect in which a webhook was set is the one in which it arrives;
and a method of the agent's own without params gets an empty object. 1.0 has one scheme for a
webhook, the first of 0.3's. A send has no fragments of context (IAT has them). 0.3 also has no
filename or media type for text and data, which are kept in metadata there; it lists all webhooks at
once, and a webhook that is set with a send has no task yet.

REST and gRPC have no ids of calls and no notifications. 0.3 over REST is another .proto: a send
names no other tasks, and the list of tasks has no total.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from dragoman.core import events as ev
from dragoman.core.errors import DragomanError
from dragoman.core.events import Stamped
from dragoman.core.lifecycle import Fold
from dragoman.core.model import AnyPart, Artifact, Data, Hook, Message, Status, Task, Text
from dragoman.core.operations import HookPage, Invoke, ListHooks, SendMessage, SetHook, TaskPage
from dragoman.core.session import Call, Fault, Result, Signal, Update

from . import errors
from .v0_3 import V0_3, convert
from .v0_3.rest import V0_3_REST
from .v1_0 import V1_0
from .version import Version


class WireLosses(NamedTuple):
    """The losses of one dialect, as far as all dialects share them."""

    version: Version
    part: Callable[[AnyPart], AnyPart]


def carried_1_0(signal: Signal) -> Signal:
    """Returns what remains of a signal over 1.0."""
    return _carried(signal, WireLosses(V1_0, lambda part: part))


def carried_0_3(signal: Signal) -> Signal:
    """Returns what remains of a signal over 0.3."""
    return _carried(signal, WireLosses(V0_3, _part_0_3))


def carried_1_0_rest(signal: Signal) -> Signal:
    """Returns what remains of a signal over 1.0's REST and gRPC."""
    return _drop_id(carried_1_0(signal))


def carried_0_3_grpc(signal: Signal) -> Signal:
    """Returns what remains of a signal over 0.3's gRPC."""
    return _drop_id(carried_0_3(signal))


def carried_0_3_rest(signal: Signal) -> Signal:
    """Returns what remains of a signal over 0.3's REST."""
    found = _drop_id(_carried(signal, WireLosses(V0_3_REST, _part_0_3)))
    match found:
        case Call(op=SendMessage(message=message) as op):
            return replace(found, op=replace(op, message=replace(message, references=())))
        case Result(value=TaskPage(tasks=tasks) as page):
            return replace(found, value=replace(page, page_size=len(tasks), total=len(tasks)))
        case _:
            return found


def _drop_id(signal: Signal) -> Signal:
    return replace(signal, id=None, silent=False) if isinstance(signal, Call) else signal


def _carried(signal: Signal, wire: WireLosses) -> Signal:
    version = wire.version
    match signal:
        case Call(op=SendMessage() as op):
            message, hook = _message(op.message, wire), _inline(op.hook, version)
            return replace(signal, op=replace(op, message=message, hook=hook, context=()))
        case Call(op=SetHook(hook=hook)):
            return replace(signal, op=SetHook(hook=_hook(hook, version)))
        case Call(op=ListHooks(task_id=task_id)) if version is V0_3:
            return replace(signal, op=ListHooks(task_id=task_id))
        case Call(op=Invoke(method=method, params=None)):
            return replace(signal, op=Invoke(method=method, params={}))
        case Result(value=Hook() as hook):
            return replace(signal, value=_hook(hook, version))
        case Result(value=HookPage() as page):
            hooks = tuple(_hook(hook, version) for hook in page.hooks)
            return replace(signal, value=HookPage(hooks, page.next_token * (version is not V0_3)))
        case Result(value=Task() as task):
            return replace(signal, value=_task(task, wire))
        case Result(value=Message() as message):
            return replace(signal, value=_message(message, wire))
        case Result(value=TaskPage() as page):
            tasks = tuple(_task(task, wire) for task in page.tasks)
            return replace(signal, value=replace(page, tasks=tasks))
        case Update(entry=Message() as message):
            return replace(signal, entry=_message(message, wire))
        case Update(entry=Stamped() as entry):
            return replace(signal, entry=_entry(entry, wire))
        case Fault(error=error):
            return replace(signal, error=_error(error, version))
        case _:
            return signal


def _hook(hook: Hook, version: Version) -> Hook:
    others = hook.other_schemes if version.name == "0.3" else ()
    return replace(hook, dialect="", other_schemes=others)


def _inline(hook: Hook | None, version: Version) -> Hook | None:
    if hook is None:
        return None
    return _hook(replace(hook, task_id="") if version.name == "0.3" else hook, version)


def _entry(entry: Stamped, wire: WireLosses) -> Stamped:
    match entry.event:
        case ev.ArtifactChunk() as event:
            chunk = replace(event, artifact=_artifact(event.artifact, wire))
            return replace(entry, at=0, event=chunk)
        case ev.StateChanged() as event:
            message = _maybe(event.message, wire)
            return replace(entry, event=replace(event, message=message, heard=None))
        case ev.Asked() as event:
            message = _message(event.message, wire)
            return replace(entry, event=ev.StateChanged(state=event.state, message=message))
        case ev.Noted() as event:
            return replace(entry, event=ev.StateChanged(state=event.state))
        case ev.Opened():
            fold = Fold(entry.task_id, entry.context_id)
            fold.add(entry)
            return replace(entry, event=ev.Snapshot(task=_task(fold.task(), wire)))
        case ev.Snapshot(task=task):
            snapshot = ev.Snapshot(task=_task(task, wire))
            return Stamped(task.id, task.context_id, entry.seq, task.status.at, snapshot)


def _task(task: Task, wire: WireLosses) -> Task:
    status = task.status
    return replace(
        task,
        status=Status(status.state, status.at, _maybe(status.message, wire)),
        artifacts=tuple(_artifact(artifact, wire) for artifact in task.artifacts),
        history=tuple(_message(message, wire) for message in task.history),
    )


def _message(message: Message, wire: WireLosses) -> Message:
    return replace(message, parts=tuple(map(wire.part, message.parts)))


def _maybe(message: Message | None, wire: WireLosses) -> Message | None:
    return None if message is None else _message(message, wire)


def _artifact(artifact: Artifact, wire: WireLosses) -> Artifact:
    return replace(artifact, parts=tuple(map(wire.part, artifact.parts)))


def _part_0_3(part: AnyPart) -> AnyPart:
    """Returns the part with the filename and media type that were sent in its metadata. Metadata
    that held nothing else becomes None."""
    if isinstance(part, Text):
        filename, media_type, metadata = convert.unpack_names(convert.pack_names(part))
        return Text(part.text, filename=filename, media_type=media_type, metadata=metadata)
    if isinstance(part, Data):
        value, metadata = convert.wrap_value(part.value, convert.pack_names(part))
        filename, media_type, metadata = convert.unpack_names(metadata)
        value, metadata = convert.unwrap_value(value, metadata)
        return Data(value, filename=filename, media_type=media_type, metadata=metadata)
    return part


def _error(error: DragomanError, version: Version) -> DragomanError:
    spelling = errors.spelling_of(error, version.spellings)
    message = errors.message_out(error, spelling)
    return errors.error_in(spelling.code, message, version.details(error))
