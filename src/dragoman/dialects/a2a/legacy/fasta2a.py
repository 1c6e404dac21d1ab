"""The hybrid that the client of fasta2a speaks: the methods and names of 0.3 with the objects of
1.0.

Its parts are flat (`text`, `raw`, `url`, `data`) and have no `kind`. It expects the answer to a
send in a wrapper (`task`, `message`, `statusUpdate`, `artifactUpdate`), but the answer to tasks/get
without one, and sends null as the id of tasks/get. Others leave out `kind` too, such as examples
and people with curl. Therefore a send without `kind` is answered in both forms at once: as in 0.3,
with the wrapper of 1.0 as one more member. Only tasks that are requested under the id null have the
form of 1.0 alone.
"""

from __future__ import annotations

from functools import partial

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import astuple, replace

from dragoman.core.errors import TaskNotFound
from dragoman.core.events import Stamped
from dragoman.core.model import AnyPart, Json, Message, Task
from dragoman.core.operations import CancelTask, GetTask, SendMessage

from ..hooks import inline_in
from ..scalars import Wrong, check_links, convert_each, each
from ..v0_3 import V0_3, calls
from ..v0_3 import convert as convert_0_3
from ..v0_3 import wire as wire_0_3
from ..v1_0 import convert as convert_1_0
from ..v1_0 import hooks as hooks_1_0
from ..v1_0 import wire as wire_1_0
from ..v1_0.calls import event_out as event_1_0
from ..version import RpcMethod, method

# What is asked


class HybridPart(wire_1_0.Part, frozen=True, gc=False):
    """A part of 1.0, or the one part of 0.3 that differs."""

    file: wire_0_3.File | UnsetType | None = UNSET
    type: Json = None
    kind: None = None


class HybridMessage(wire_1_0.Message, frozen=True, gc=False):
    parts: tuple[HybridPart, ...] | None = None


class Configuration(wire_0_3.Configuration, frozen=True, gc=False):
    return_immediately: bool | None = None
    task_push_notification_config: wire_1_0.PushConfig | None = None


class SendParams(wire_0_3.Params, frozen=True, gc=False):
    message: HybridMessage
    configuration: Configuration | None = None


def lacks_kinds(params: Struct) -> bool:
    """Returns whether no part of a message has a `kind`."""
    parts = params.message.parts if isinstance(params, wire_0_3.SendParams) else None
    return bool(parts) and all(part.kind is None for part in parts or ())


def send_in(params: SendParams) -> SendMessage:
    message, options = params.message, params.configuration
    # Everything except the parts is read as in 0.3.
    bare = wire_0_3.Message(
        message.message_id or message.message_id_,
        message.role if isinstance(message.role, str) else "",
        _ANY_PART,
        message.context_id or message.context_id_,
        message.task_id or message.task_id_,
        message.metadata,
        message.extensions,
        message.reference_task_ids or message.reference_task_ids_,
    )
    op = calls.send_in(wire_0_3.SendParams(bare, options, metadata=params.metadata))
    parts = tuple(convert_each(part_in, message.parts or (), ".message.parts"))
    check_links(parts, ".message.parts", "")
    op = replace(op, message=replace(op.message, parts=parts))
    if options is not None and options.task_push_notification_config is not None:
        op = replace(
            op,
            hook=inline_in(
                options.task_push_notification_config,
                ".configuration.taskPushNotificationConfig",
                hooks_1_0.hook_in,
            ),
        )
    if options is not None and options.return_immediately is not None:
        op = replace(op, wait=not options.return_immediately)
    return op


_ANY_PART = (wire_0_3.Part("text", ""),)


def part_in(part: HybridPart) -> AnyPart:
    holds_file = part.file or part.raw is not None or part.url is not None
    convert_0_3.check_kind(
        part, "text" if part.text is not None else "file" if holds_file else "data"
    )
    if not part.file:
        return convert_1_0.part_in(part)
    if any(other is not None for other in (part.text, part.raw, part.url)):
        raise Wrong("Expected exactly one of `text`, `file`, `raw`, `url`, `data`")
    old = wire_0_3.Part(None, None, part.file, UNSET, part.metadata)
    return convert_0_3.part_in(old)


# What is answered: 1.0's shapes, 0.3's words


def message_out(message: Message) -> wire_1_0.Message:
    role = convert_0_3.ROLES_OUT[message.role]
    return replace(convert_1_0.message_out(message), role=role)


def _status(status: wire_1_0.Status) -> wire_1_0.Status:
    message = status.message
    return replace(
        status,
        state=convert_0_3.STATES_OUT[convert_1_0.STATES_IN[status.state]],
        message=_message(message) if message is not None else None,
    )


def _message(message: wire_1_0.Message) -> wire_1_0.Message:
    return replace(message, role=convert_0_3.ROLES_OUT[convert_1_0.ROLES_IN[message.role]])


def task_out(task: Task) -> wire_1_0.Task:
    found = convert_1_0.task_out(task)
    history = each(_message, found.history or ()) or None
    return replace(found, status=_status(found.status), history=history)


def got_out(task: Task, op: GetTask | CancelTask) -> wire_1_0.Task:
    return task_out(task)


class TaskTwice(wire_0_3.Task, frozen=True, gc=False, tag="task"):
    task: wire_1_0.Task | None = None


class MessageTwice(wire_0_3.Message, frozen=True, gc=False, tag="message"):
    message: wire_1_0.Message | None = None


class StatusTwice(wire_0_3.StatusUpdate, frozen=True, gc=False, tag="status-update"):
    status_update: wire_1_0.StatusUpdate | None = None


class ArtifactTwice(wire_0_3.ArtifactUpdate, frozen=True, gc=False, tag="artifact-update"):
    artifact_update: wire_1_0.ArtifactUpdate | None = None


_TWICE: dict[type[Struct], type[Struct]] = {
    wire_0_3.Task: TaskTwice,
    wire_0_3.Message: MessageTwice,
    wire_0_3.StatusUpdate: StatusTwice,
    wire_0_3.ArtifactUpdate: ArtifactTwice,
}


def _twice(step: Struct, wrapped: Struct) -> Struct:
    return _TWICE[type(step)](*astuple(step), wrapped)


def sent_out(value: Task | Message, op: SendMessage) -> Struct:
    wrapped = task_out(value) if isinstance(value, Task) else message_out(value)
    return _twice(calls.sent_out(value, op), wrapped)


def event_out(entry: Stamped | Message, notes: bool) -> Struct:
    step = event_1_0(entry, notes)
    update = step.status_update
    if step.task is not None:
        task = step.task
        history = each(_message, task.history or ()) or None
        wrapped: Struct = replace(task, status=_status(task.status), history=history)
    elif update is not None:
        wrapped = replace(update, status=_status(update.status))
    elif step.message is not None:
        wrapped = _message(step.message)
    else:
        assert step.artifact_update is not None  # noqa: S101  a step is one of the four
        wrapped = step.artifact_update
    return _twice(calls.event_out(entry, notes), wrapped)


# The client of fasta2a accepts no other name for this one.
HYBRID = replace(V0_3, event_out=event_out, words={TaskNotFound: "Task not found"})
_sending = partial(method, SendMessage, SendParams, (send_in, calls.send_out))
SEND = _sending((sent_out, calls.sent_in))
STREAM = _sending((sent_out, calls.sent_in), stream=True)
TASKS: dict[type, RpcMethod] = {
    op: replace(V0_3.methods[name], result_out=got_out)
    for op, name in ((GetTask, "tasks/get"), (CancelTask, "tasks/cancel"))
}
