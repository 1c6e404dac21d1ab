"""A2A 0.1's methods: what they ask, what they answer, and what happens meanwhile.

There are flavours of it: 0.1 itself, the superset that readers of 0.3 understand too, and the
community a2a-go.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from dragoman.core.events import (
    AnyEvent,
    ArtifactChunk,
    Asked,
    Noted,
    Opened,
    Snapshot,
    Stamped,
    StateChanged,
)
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import Hook, Message, State, Status, Task
from dragoman.core.operations import CancelTask, GetHook, GetTask, SendMessage, SetHook, Watch
from dragoman.core.task_names import LONGEST, called, fit

from ...scalars import Wrong, count_in, links_in
from ...v0_3.convert import ROLES_IN
from ...version import RpcMethod, method
from . import wire
from .convert import (
    Flavour,
    artifact_in,
    artifact_out,
    hinted,
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
    """0.1 tells nothing of the history unless it is asked, unlike all that followed."""
    return 0 if value is None else count_in(value, ".historyLength")


def send_in(params: wire.SendParams) -> SendMessage:
    return named_in(params, id_in(params.id))


def named_in(params: wire.SendParams, name: str) -> SendMessage:
    if params.message.role not in ROLES_IN:
        raise Wrong("Expected `user` or `agent`", ".message.role")
    try:
        said = message_in(params.message)
        links_in(said.parts, ".parts", ".file.uri")
    except Wrong as wrong:
        raise wrong.under(".message") from None
    if not said.parts:
        raise Wrong("Expected at least one part", ".message.parts")
    return SendMessage(
        message=replace(said, context_id=params.session_id or ""),
        open_as=name,
        history_length=history_in(params.history_length),
        accepts=params.accepted_output_modes or (),
        hook=inline_in(params.push_notification, name),
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
    """What to call the task: a message's id is as unique as a new one, and a codec has no dice."""
    message = op.message
    return called(message.task_id) or op.open_as or message.message_id


def get_in(params: wire.TaskParams) -> GetTask:
    return GetTask(task_id=id_in(params.id), history_length=history_in(params.history_length))


def get_out(op: GetTask) -> wire.TaskParams:
    return wire.TaskParams(op.task_id, op.history_length)


def cancel_in(params: wire.TaskParams) -> CancelTask:
    return CancelTask(task_id=id_in(params.id), metadata=params.metadata)


def cancel_out(op: CancelTask) -> wire.TaskParams:
    return wire.TaskParams(op.task_id, metadata=op.metadata)


def watch_in(params: wire.TaskParams) -> Watch:
    return Watch(task_id=id_in(params.id))


def watch_out(op: Watch) -> wire.TaskParams:
    return wire.TaskParams(op.task_id)


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
    told = config.authentication or _NOBODY
    scheme, *others = told.schemes or ("",)
    return Hook(
        # A task has one webhook in 0.1: the next one takes its place.
        hook_id=task_id,
        task_id=task_id,
        url=config.url or "",
        token=config.token or "",
        scheme=scheme,
        credentials=told.credentials or "",
        other_schemes=tuple(others),
    )


def inline_in(config: wire.PushConfig | None, name: str) -> Hook | None:
    """The webhook a send sets in the same breath."""
    if config is None:
        return None
    if not config.url:
        raise Wrong("Expected a url", ".pushNotification.url")
    return replace(hook_in(config, name), task_id="")


def hook_out(hook: Hook) -> wire.PushConfig:
    told = wire.Authentication(hook.schemes, hook.credentials)
    return wire.PushConfig(hook.url, hook.token, told if told != _NOBODY else None)


_NOBODY = wire.Authentication((), "")


# What is answered


def replied(message: Message) -> Task:
    """A direct reply, which 0.1 does not know, as the task it is all of."""
    status = Status(State.COMPLETED, 0, message)
    return Task(id=message.task_id, context_id=message.context_id, status=status)


def sent_out(flavour: Flavour, value: Task | Message, op: SendMessage) -> wire.Task:
    return task_out(value if isinstance(value, Task) else replied(value), flavour)


def got_out(flavour: Flavour, task: Task, op: GetTask | CancelTask) -> wire.Task:
    return task_out(task, flavour)


def told_out(hook: Hook, op: SetHook | GetHook) -> wire.TaskPushConfig:
    return wire.TaskPushConfig(called(hook.task_id), hook_out(hook))


def told_in(raw: Raw) -> Hook:
    told = _read_config(raw)
    return hook_in(told.push_notification_config or wire.PushConfig(), told.id or "")


def got_in(raw: Raw) -> Task:
    return task_in(_read_task(raw))


_read_task = msgspec.json.Decoder(wire.Task).decode
_read_heard = msgspec.json.Decoder(wire.Heard).decode
_read_config = msgspec.json.Decoder(wire.TaskPushConfig).decode


# What happens


class EventTeller:
    """Tells one stream in one flavour: it numbers the artifacts as they come."""

    def __init__(self, flavour: Flavour) -> None:
        self.flavour = flavour
        self._places: dict[str, int] = {}

    def event_out(self, entry: Stamped | Message, notes: bool) -> object:
        if not isinstance(entry, Stamped):
            task = replied(entry)
            return self._status(task.id, task.context_id, task.status, final=True)
        return _EVENTS_OUT[type(entry.event)](self, entry, entry.event)

    def _status(
        self,
        task_id: str,
        context_id: str,
        status: Status,
        metadata: wire.Bag = None,
        *,
        final: bool,
    ) -> wire.StatusUpdate:
        flavour = self.flavour
        told = status_out(status.state, status.at, status.message, flavour)
        name, hint = called(task_id), hinted(metadata, status.state, flavour)
        if not flavour.both:
            return wire.StatusUpdate(name, told, final, hint)
        return wire.StatusUpdate(name, told, final, hint, "status-update", name, context_id)

    def opened_out(self, entry: Stamped, event: Opened) -> wire.StatusUpdate:
        # 0.1 has no task in a stream (a2a-wire §9): its state has to do.
        status = Status(State.SUBMITTED, entry.at)
        return self._status(entry.task_id, entry.context_id, status, final=False)

    def snapshot_out(self, entry: Stamped, event: Snapshot) -> wire.StatusUpdate:
        task = event.task
        for artifact in task.artifacts:
            self.place(artifact.artifact_id)
        # Not final even where it waits: the stream is open because something is to follow.
        final = task.state in FINAL
        return self._status(task.id, task.context_id, task.status, final=final)

    def state_out(self, entry: Stamped, event: StateChanged) -> wire.StatusUpdate:
        status = Status(event.state, entry.at, event.message)
        final = event.state in _ENDS
        return self._status(entry.task_id, entry.context_id, status, event.metadata, final=final)

    def asked_out(self, entry: Stamped, event: Asked) -> wire.StatusUpdate:
        status = Status(event.state, entry.at, event.message)
        return self._status(entry.task_id, entry.context_id, status, final=True)

    def noted_out(self, entry: Stamped, event: Noted) -> wire.StatusUpdate:
        status = Status(event.state, entry.at)
        return self._status(entry.task_id, entry.context_id, status, final=False)

    def chunk_out(self, entry: Stamped, event: ArtifactChunk) -> wire.ArtifactUpdate:
        # Both flags are always said: to readers of 0.1 a chunk without lastChunk is the last.
        made = replace(
            artifact_out(event.artifact, self.place(event.artifact.artifact_id), self.flavour),
            append=event.append,
            last_chunk=event.last,
        )
        name = called(entry.task_id)
        if not self.flavour.both:
            return wire.ArtifactUpdate(name, made, None, event.metadata)
        told = ("artifact-update", name, entry.context_id, event.append, event.last)
        return wire.ArtifactUpdate(name, made, None, event.metadata, *told)

    def place(self, artifact_id: str) -> int:
        """The number of an artifact in this stream."""
        return self._places.setdefault(artifact_id, len(self._places))


_ENDS = FINAL | WAITING
"""Behind these a reader of 0.1 waits for nothing more; auth-required is input-required there."""

_EVENTS_OUT: dict[type[AnyEvent], Callable[..., object]] = {
    Opened: EventTeller.opened_out,
    Snapshot: EventTeller.snapshot_out,
    StateChanged: EventTeller.state_out,
    Asked: EventTeller.asked_out,
    Noted: EventTeller.noted_out,
    ArtifactChunk: EventTeller.chunk_out,
}


def event_in(raw: Raw, seq: int) -> tuple[Stamped | Message, bool]:
    """What happened, and whether nothing can follow."""
    heard = _read_heard(raw)
    task_id = heard.id or heard.task_id or ""
    if (made := heard.artifact) is not None:
        chunk = ArtifactChunk(
            artifact=artifact_in(made),
            append=bool(made.append),
            # Absent, it was all there is.
            last=made.last_chunk is not False,
            metadata=heard.metadata,
        )
        return Stamped(task_id, "", seq, 0, chunk), False
    if heard.status is None:
        raise Wrong("Expected a status or an artifact")
    status = status_in(heard.status)
    event = StateChanged(state=status.state, message=status.message, metadata=heard.metadata)
    last = bool(heard.final) or status.state in FINAL
    return Stamped(task_id, "", seq, status.at, event), last


_SET = (set_in, set_out)
_GET_HOOK = (hook_get_in, hook_get_out)
_HOOK = (told_out, told_in)


def methods(flavour: Flavour) -> dict[str, RpcMethod]:
    """The methods, asked and answered in this flavour."""
    send = (send_in, partial(send_out, flavour)), (partial(sent_out, flavour), got_in)
    task = (partial(got_out, flavour), got_in)
    stream = method(SendMessage, wire.SendParams, *send, stream=True)
    watch = method(Watch, wire.TaskParams, (watch_in, watch_out), task, stream=True)
    return {
        "tasks/send": method(SendMessage, wire.SendParams, *send),
        "tasks/sendSubscribe": stream,
        "tasks/get": method(GetTask, wire.TaskParams, (get_in, get_out), task),
        "tasks/cancel": method(CancelTask, wire.TaskParams, (cancel_in, cancel_out), task),
        "tasks/resubscribe": watch,
        "tasks/pushNotification/set": method(SetHook, wire.TaskPushConfig, _SET, _HOOK),
        "tasks/pushNotification/get": method(GetHook, wire.TaskParams, _GET_HOOK, _HOOK),
        # What python-a2a calls it.
        "tasks/stream": stream,
    }
