"""The methods of A2A 1.0 (1.0 §3.1), by their names in JSON-RPC (§9.4)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from dragoman.core.errors import Unparseable
from dragoman.core.events import Stamped
from dragoman.core.model import Message
from dragoman.core.operations import SendMessage, TaskPage
from dragoman.core.session import Frame, Id

from ...jsonrpc import check_answer
from ..cards import documents
from ..hooks import inline_in
from ..methods import card_method, history_in, list_method, page_out, task_answer, task_methods
from ..scalars import Wrong, count_in, each, seq_in, stamp_in
from ..version import method
from . import hooks, wire
from .convert import CODEC, EVENTS, STEPS

event_out, event_in = EVENTS.event_out, STEPS.event_in
snapshot_in, chunk_in, update_in = EVENTS.snapshot_in, EVENTS.chunk_in, EVENTS.update_in
request_in, message_out, task_in = CODEC.request_in, CODEC.message_out, CODEC.task_in


def events_in(frames: Sequence[Frame], id: Id) -> tuple[list[Stamped | Message], bool] | None:
    """Returns the events in JSON-RPC responses to this call, up to the last one of the stream, and
    whether that is among them. Returns None if one of them needs a closer look: an error, a
    message, an event without its wrapper, or the answer to another call.

    To find each result first and to read it then would take half as much time again.
    """
    entries: list[Stamped | Message] = []
    last = False
    try:
        # One check for all of them: between lines, UTF-8 and the depth of valid JSON begin anew.
        check_answer(b"\n".join([frame.body for frame in frames]))
        for frame in frames:
            answer = _read_answer(frame.body)
            result = answer.result
            if result is None or answer.error is not None or answer.id != id:
                return None
            seq = seq_in(frame.mark)
            if (update := result.status_update or result.status_update_) is not None:
                entry, last = update_in(update, seq)
            elif (chunk := result.artifact_update or result.artifact_update_) is not None:
                entry, last = chunk_in(chunk, seq)
            elif result.task is not None:
                entry, last = snapshot_in(result.task, seq)
            else:
                return None
            entries.append(entry)
            if last:
                break
    except (msgspec.DecodeError, RecursionError, Unparseable, Wrong):
        return None
    return entries, last


def send_in(params: wire.SendParams) -> SendMessage:
    message = request_in(params.message)
    options = params.configuration
    if options is None:
        return SendMessage(message=message, metadata=params.metadata)
    length = options.history_length
    length = length if length is not None else options.history_length_
    config = options.task_push_notification_config or options.task_push_notification_config_
    return SendMessage(
        message=message,
        wait=not (options.return_immediately or options.return_immediately_),
        history_length=history_in(length, ".configuration.historyLength"),
        accepts=options.accepted_output_modes or options.accepted_output_modes_,
        hook=inline_in(config, ".configuration.taskPushNotificationConfig", hooks.hook_in),
        metadata=params.metadata,
    )


def send_out(op: SendMessage) -> wire.SendParams:
    hook = hooks.hook_out(op.hook) if op.hook is not None else None
    options = wire.Configuration(op.accepts, op.history_length, not op.wait, hook)
    return wire.SendParams(
        message=message_out(op.message),
        configuration=options if options != wire.Configuration() else None,
        metadata=op.metadata,
    )


def since_in(params: wire.ListParams) -> int | None:
    since = params.status_timestamp_after or params.status_timestamp_after_
    return stamp_in(since, ".statusTimestampAfter") if since else None


def page_in(raw: Raw) -> TaskPage:
    page = _read_page(raw)
    tasks = each(task_in, page.tasks or ())
    total = page.total_size if page.total_size is not None else page.total_size_
    return TaskPage(
        tasks=tasks,
        next_token=page.next_page_token or page.next_page_token_,
        page_size=count_in(page.page_size or page.page_size_ or 0, ".pageSize"),
        total=count_in(total if total is not None else len(tasks), ".totalSize"),
    )


_read_answer = msgspec.json.Decoder(wire.Answer).decode
_read_page = msgspec.json.Decoder(wire.PageIn).decode
_STEP = (STEPS.sent_out, STEPS.sent_in)
_SEND = (send_in, send_out), _STEP
_TASK = task_methods(
    *(wire.GetParams, wire.CancelParams, wire.WatchParams),
    *(task_answer(CODEC, STEPS.task_in), _STEP),
)

METHODS = {
    "SendMessage": method(SendMessage, wire.SendParams, *_SEND),
    "SendStreamingMessage": method(SendMessage, wire.SendParams, *_SEND, stream=True),
    "GetTask": _TASK.get,
    "ListTasks": list_method(
        CODEC,
        wire.ListParams,
        (page_out(CODEC, wire.Page), page_in),
        since_in=since_in,
        any_state=(None, "", 0, "TASK_STATE_UNSPECIFIED"),
    ),
    "CancelTask": _TASK.cancel,
    "SubscribeToTask": _TASK.watch,
    "GetExtendedAgentCard": card_method(wire.Params, documents.pure_1_0),
    **hooks.METHODS,
}
