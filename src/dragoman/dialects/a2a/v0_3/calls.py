"""The methods of A2A 0.3 (0.3 §7) and 0.2."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw

from dragoman.core.events import Stamped
from dragoman.core.model import Message, Task
from dragoman.core.operations import SendMessage, TaskPage

from ..cards import documents
from ..hooks import inline_in
from ..methods import card_method, history_in, list_method, page_out, task_answer, task_methods
from ..scalars import LATEST, Wrong, count_in, each, stamp_in
from ..version import method
from . import hooks, wire
from .convert import CODEC, EVENTS

event_out = EVENTS.event_out
request_in, message_in, message_out = CODEC.request_in, CODEC.message_in, CODEC.message_out
snapshot_in, chunk_in, update_in = EVENTS.snapshot_in, EVENTS.chunk_in, EVENTS.update_in
whole_in, task_out = CODEC.task_in, CODEC.task_out


# Requests


def send_in(params: wire.SendParams) -> SendMessage:
    message = request_in(params.message)
    options = params.configuration
    if options is None:
        return SendMessage(message=message, metadata=params.metadata)
    return SendMessage(
        message=message,
        # Over JSON-RPC, a call waits by default (D7).
        wait=options.blocking is not False,
        history_length=history_in(options.history_length, ".configuration.historyLength"),
        accepts=options.accepted_output_modes or (),
        hook=inline_in(
            options.push_notification_config,
            ".configuration.pushNotificationConfig",
            hooks.hook_in,
        ),
        metadata=params.metadata,
    )


def send_out(op: SendMessage) -> wire.SendParams:
    hook = hooks.hook_out(op.hook) if op.hook is not None else None
    return wire.SendParams(
        message=message_out(op.message),
        configuration=wire.Configuration(op.accepts, op.history_length, op.wait, hook),
        metadata=op.metadata,
    )


def since_in(params: wire.ListParams) -> int | None:
    if params.status_timestamp_after:
        return stamp_in(params.status_timestamp_after, ".statusTimestampAfter")
    return updated_in(params.last_updated_after)


def updated_in(since: str | int | None) -> int | None:
    """Reads the `lastUpdatedAfter` of a draft: a time, or milliseconds."""
    if isinstance(since, int):
        return count_in(since, ".lastUpdatedAfter", 0, LATEST)
    return stamp_in(since, ".lastUpdatedAfter") if since else None


# Answers and events


def sent_out(value: Task | Message, op: SendMessage) -> wire.Step:
    return task_out(value) if isinstance(value, Task) else message_out(value)


def sent_in(raw: Raw) -> Task | Message:
    match step_in(raw):
        case wire.Task() as task:
            return whole_in(task)
        case wire.Message() as message:
            return message_in(message)
        case _:
            raise Wrong("Expected a task or a message")


def task_in(raw: Raw) -> Task:
    step = step_in(raw)
    if not isinstance(step, wire.Task):
        raise Wrong("Expected a task")
    return whole_in(step)


def page_in(raw: Raw) -> TaskPage:
    page = _read_page(raw)
    tasks = each(whole_in, page.tasks or ())
    return TaskPage(
        tasks=tasks,
        next_token=page.next_page_token or "",
        page_size=page.page_size or 0,
        total=len(tasks) if page.total_size is None else page.total_size,
    )


def event_in(raw: Raw, seq: int) -> tuple[Stamped | Message, bool]:
    """Returns an event, and whether no other can follow."""
    step = step_in(raw)
    if isinstance(step, wire.Message):
        return message_in(step), True
    if isinstance(step, wire.Task):
        return snapshot_in(step, seq)
    if isinstance(step, wire.ArtifactUpdate):
        return chunk_in(step, seq)
    return update_in(step, seq)


_read_step: Callable[[Raw], wire.Step] = msgspec.json.Decoder(wire.Step).decode
_read_any_step = msgspec.json.Decoder(wire.StepIn).decode
_read_page = msgspec.json.Decoder(wire.PageIn).decode


def step_in(raw: Raw) -> wire.Step:
    try:
        return _read_step(raw)
    except msgspec.ValidationError:
        return _unnamed_in(raw)


def _unnamed_in(raw: Raw) -> wire.Step:
    """Returns a step without `kind`, which is recognised by its members (a2a-wire §6)."""
    found = _read_any_step(raw)
    wrapped = found.task or found.message or found.status_update or found.artifact_update
    if wrapped is not None:
        return wrapped
    if found.parts is not None:
        return msgspec.json.decode(raw, type=wire.Message)
    if found.artifact is not None:
        return msgspec.json.decode(raw, type=wire.ArtifactUpdate)
    if found.id is not None:
        return msgspec.json.decode(raw, type=wire.Task)
    if found.status is not None:
        return msgspec.json.decode(raw, type=wire.StatusUpdate)
    raise Wrong("Expected a task, a message or an update")


_STEP = (sent_out, sent_in)
_SEND = (send_in, send_out), _STEP
_TASK = task_methods(
    *(wire.TaskParams, wire.TaskParams, wire.TaskParams), task_answer(CODEC, task_in), _STEP
)
_CARD = card_method(wire.Params, documents.merged)

METHODS = {
    "message/send": method(SendMessage, wire.SendParams, *_SEND),
    "message/stream": method(SendMessage, wire.SendParams, *_SEND, stream=True),
    "tasks/get": _TASK.get,
    "tasks/cancel": _TASK.cancel,
    "tasks/resubscribe": _TASK.watch,
    "agent/getAuthenticatedExtendedCard": _CARD,
    # The name of 0.3 §11.1.3 and of 0.2.6.
    "agent/authenticatedExtendedCard": _CARD,
    # Drafts between 0.3 and 1.0, which some clients are built on.
    "tasks/list": list_method(
        *(CODEC, wire.ListParams, (page_out(CODEC, wire.Page), page_in)), since_in=since_in
    ),
    "tasks/subscribe": _TASK.watch,
    **hooks.METHODS,
}
