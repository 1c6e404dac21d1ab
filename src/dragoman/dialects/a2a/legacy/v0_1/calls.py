"""The methods of A2A 0.1: their requests, their answers and the events of a stream.

There are three variants: 0.1 itself, the superset that readers of 0.3 understand too, and the
community a2a-go.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from dragoman.core import events as ev
from dragoman.core.events import Stamped
from dragoman.core.lifecycle import FINAL, WAITING, Fold
from dragoman.core.model import Hook, Message, State, Status, Task
from dragoman.core.operations import CancelTask, GetHook, GetTask, SendMessage, SetHook
from dragoman.core.task_names import LONGEST, called, fit

from ...hooks import inline_in
from ...members import Bag
from ...methods import task_methods
from ...scalars import Wrong, check_links, count_in
from ...v0_3.convert import ROLES_IN
from ...v0_3.hooks import authentication_out
from ...v0_3.hooks import hook_in as hook_0_3
from ...version import RpcMethod, method
from . import wire
from .convert import (
    Flavour,
    add_hint,
    artifact_in,
    artifact_out,
    message_in,
    message_out,
    status_in,
    status_out,
    task_in,
    task_out,
)

# What is asked


def id_in(task_id: str | None) -> str:
    if not task_id:
        raise Wrong("Expected a task id", ".id")
    if not fit(task_id):
        raise Wrong(f"Expected at most {LONGEST} printable characters", ".id")
    return task_id


def history_in(value: int | None) -> int:
    """Reads the history length. Unlike all later versions, 0.1 sends no history unless it is
    requested."""
    return 0 if value is None else count_in(value, ".historyLength")


def send_in(params: wire.SendParams) -> SendMessage:
    return named_send_in(params, id_in(params.id))


def named_send_in(params: wire.SendParams, name: str) -> SendMessage:
    if params.message.role not in ROLES_IN:
        raise Wrong("Expected `user` or `agent`", ".message.role")
    try:
        message = message_in(params.message)
        check_links(message.parts, ".parts", ".file.uri")
    except Wrong as wrong:
        raise wrong.under(".message") from None
    if not message.parts:
        raise Wrong("Expected at least one part", ".message.parts")
    return SendMessage(
        message=replace(message, context_id=params.session_id or ""),
        open_as=name,
        history_length=history_in(params.history_length),
        accepts=params.accepted_output_modes or (),
        hook=inline_in(
            params.push_notification,
            ".pushNotification",
            lambda config: replace(hook_in(config, name), task_id=""),
        ),
        metadata=params.metadata,
    )


def send_out(flavour: Flavour, op: SendMessage) -> wire.SendParams:
    return wire.SendParams(
        message_out(op.message, flavour),
        name_out(op),
        op.message.context_id,
        op.accepts,
        hook_out(op.hook) if op.hook is not None else None,
        op.history_length,
        metadata=op.metadata,
    )


def name_out(op: SendMessage) -> str:
    """Returns the name of a new task: the id of its message, which is unique, because a codec
    cannot generate ids."""
    message = op.message
    return called(message.task_id) or op.open_as or message.message_id


def set_in(params: wire.TaskPushConfig) -> SetHook:
    task_id, config = id_in(params.id), params.push_notification_config
    if config is None or not config.url:
        raise Wrong("Expected a url", ".pushNotificationConfig.url")
    return SetHook(hook=hook_in(config, task_id))


def set_out(op: SetHook) -> wire.TaskPushConfig:
    return wire.TaskPushConfig(op.hook.task_id, hook_out(op.hook))


def hook_get_in(params: wire.TaskParams) -> GetHook:
    return GetHook(task_id=id_in(params.id))


def hook_get_out(op: GetHook) -> wire.TaskParams:
    return wire.TaskParams(op.task_id)


def hook_in(config: wire.PushConfig, task_id: str) -> Hook:
    # A task has one webhook in 0.1, so the next one replaces it.
    return hook_0_3(config, task_id, task_id)


def hook_out(hook: Hook) -> wire.PushConfig:
    return wire.PushConfig(hook.url, hook.token, authentication_out(hook))


# What is answered


def reply_task(message: Message) -> Task:
    """Returns a direct reply as a finished task, because 0.1 has no direct replies."""
    status = Status(State.COMPLETED, 0, message)
    return Task(id=message.task_id, context_id=message.context_id, status=status)


def task_of(entry: Stamped | Message) -> Task | None:
    """Returns the whole task, if an entry is one."""
    if not isinstance(entry, Stamped):
        return reply_task(entry)
    if isinstance(entry.event, ev.Snapshot):
        return entry.event.task
    if isinstance(entry.event, ev.Opened):
        fold = Fold(entry.task_id, entry.context_id)
        fold.add(entry)
        return fold.task()
    return None


def sent_out(flavour: Flavour, value: Task | Message, op: SendMessage) -> wire.Task:
    return task_out(value if isinstance(value, Task) else reply_task(value), flavour)


def got_out(flavour: Flavour, task: Task, op: GetTask | CancelTask) -> wire.Task:
    return task_out(task, flavour)


def config_out(hook: Hook, op: SetHook | GetHook) -> wire.TaskPushConfig:
    return wire.TaskPushConfig(called(hook.task_id), hook_out(hook))


def config_in(raw: Raw) -> Hook:
    config = _read_config(raw)
    return hook_in(config.push_notification_config or wire.PushConfig(), config.id or "")


def got_in(raw: Raw) -> Task:
    return task_in(_read_task(raw))


_read_task = msgspec.json.Decoder(wire.Task).decode
_read_event = msgspec.json.Decoder(wire.EventIn).decode
_read_config = msgspec.json.Decoder(wire.TaskPushConfig).decode


# What happens


class EventEncoder:
    """Encodes one stream in one variant. It numbers the artifacts in the order of their arrival."""

    def __init__(self, flavour: Flavour) -> None:
        self.flavour = flavour
        self._places: dict[str, int] = {}

    def event_out(self, entry: Stamped | Message, notes: bool) -> object:
        if not isinstance(entry, Stamped):
            task = reply_task(entry)
            return self._status(task.id, task.context_id, task.status, final=True)
        return _EVENTS_OUT[type(entry.event)](self, entry, entry.event)

    def _status(
        self,
        task_id: str,
        context_id: str,
        status: Status,
        metadata: Bag = None,
        *,
        final: bool,
    ) -> wire.StatusUpdate:
        flavour = self.flavour
        status_found = status_out(status.state, status.at, status.message, flavour)
        name, hint = called(task_id), add_hint(metadata, status.state, flavour)
        if not flavour.both:
            return wire.StatusUpdate(name, status_found, final, hint)
        return wire.StatusUpdate(name, status_found, final, hint, "status-update", name, context_id)

    def opened_out(self, entry: Stamped, event: ev.Opened) -> wire.StatusUpdate:
        # 0.1 has no task in a stream (a2a-wire §9), so only its state is sent.
        status = Status(State.SUBMITTED, entry.at)
        return self._status(entry.task_id, entry.context_id, status, final=False)

    def snapshot_out(self, entry: Stamped, event: ev.Snapshot) -> wire.StatusUpdate:
        task = event.task
        for artifact in task.artifacts:
            self.place(artifact.artifact_id)
        # It is not final even if the task waits: the stream is open because something will follow.
        final = task.state in FINAL
        return self._status(task.id, task.context_id, task.status, final=final)

    def state_out(self, entry: Stamped, event: ev.StateChanged) -> wire.StatusUpdate:
        status = Status(event.state, entry.at, event.message)
        final = event.state in _ENDS
        return self._status(entry.task_id, entry.context_id, status, event.metadata, final=final)

    def asked_out(self, entry: Stamped, event: ev.Asked) -> wire.StatusUpdate:
        status = Status(event.state, entry.at, event.message)
        return self._status(entry.task_id, entry.context_id, status, final=True)

    def noted_out(self, entry: Stamped, event: ev.Noted) -> wire.StatusUpdate:
        status = Status(event.state, entry.at)
        return self._status(entry.task_id, entry.context_id, status, final=False)

    def chunk_out(self, entry: Stamped, event: ev.ArtifactChunk) -> wire.ArtifactUpdate:
        # Both flags are always written: for readers of 0.1, a chunk without lastChunk is the last
        # one.
        made = replace(
            artifact_out(event.artifact, self.place(event.artifact.artifact_id), self.flavour),
            append=event.append,
            last_chunk=event.last,
        )
        name = called(entry.task_id)
        if not self.flavour.both:
            return wire.ArtifactUpdate(name, made, None, event.metadata)
        beside = ("artifact-update", name, entry.context_id, event.append, event.last)
        return wire.ArtifactUpdate(name, made, None, event.metadata, *beside)

    def place(self, artifact_id: str) -> int:
        """Returns the number of an artifact in this stream."""
        return self._places.setdefault(artifact_id, len(self._places))


_ENDS = FINAL | WAITING
"""The states after which a reader of 0.1 expects no more events; auth-required is input-required
there."""

_EVENTS_OUT: dict[type[ev.AnyEvent], Callable[..., object]] = {
    ev.Opened: EventEncoder.opened_out,
    ev.Snapshot: EventEncoder.snapshot_out,
    ev.StateChanged: EventEncoder.state_out,
    ev.Asked: EventEncoder.asked_out,
    ev.Noted: EventEncoder.noted_out,
    ev.ArtifactChunk: EventEncoder.chunk_out,
}


def event_in(raw: Raw, seq: int) -> tuple[Stamped | Message, bool]:
    """Returns an event, and whether no other can follow."""
    found = _read_event(raw)
    task_id = found.id or found.task_id or ""
    if (made := found.artifact) is not None:
        chunk = ev.ArtifactChunk(
            artifact=artifact_in(made),
            append=bool(made.append),
            # Without it, this was the whole artifact.
            last=made.last_chunk is not False,
            metadata=found.metadata,
        )
        return Stamped(task_id, "", seq, 0, chunk), False
    if found.status is None:
        raise Wrong("Expected a status or an artifact")
    status = status_in(found.status)
    event = ev.StateChanged(state=status.state, message=status.message, metadata=found.metadata)
    last = bool(found.final) or status.state in FINAL
    return Stamped(task_id, "", seq, status.at, event), last


_HOOK = (config_out, config_in)


def methods(flavour: Flavour) -> dict[str, RpcMethod]:
    """Returns the methods with the requests and answers of this variant."""
    task = (partial(got_out, flavour), got_in)
    send = (send_in, partial(send_out, flavour)), (partial(sent_out, flavour), got_in)
    stream = method(SendMessage, wire.SendParams, *send, stream=True)
    get, cancel, watch = task_methods(
        *(wire.TaskParams, wire.TaskParams, wire.TaskParams, task, task),
        id_in=id_in,
        history_in=history_in,
    )
    return {
        "tasks/send": method(SendMessage, wire.SendParams, *send),
        "tasks/sendSubscribe": stream,
        "tasks/get": get,
        "tasks/cancel": cancel,
        "tasks/resubscribe": watch,
        "tasks/pushNotification/set": method(
            SetHook, wire.TaskPushConfig, (set_in, set_out), _HOOK
        ),
        "tasks/pushNotification/get": method(
            GetHook, wire.TaskParams, (hook_get_in, hook_get_out), _HOOK
        ),
        # The name of this method in python-a2a.
        "tasks/stream": stream,
    }
