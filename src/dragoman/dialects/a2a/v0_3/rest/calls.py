"""A2A 0.3's operations over REST."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from dragoman.core.operations import ListTasks, SendMessage, TaskPage

from ...cards import documents
from ...hooks import inline_in
from ...methods import card_method, history_in, list_method, task_answer, task_methods
from ...scalars import LATEST, Wrong, each, query_out, stamp_in
from ...version import method
from ..calls import updated_in
from ..hooks import hook_in, hook_out
from . import wire
from .convert import CODEC, EVENTS, STEPS, file_notes

event_out, event_in = EVENTS.event_out, STEPS.event_in
request_in, message_out = CODEC.request_in, CODEC.message_out


def send_in(params: wire.SendParams) -> SendMessage:
    message = params.message or params.request or params.msg
    if message is None:
        raise Wrong("Object missing required field `message`")
    found = request_in(message)
    options = params.configuration
    if options is None:
        return SendMessage(message=found, metadata=params.metadata)
    length = options.history_length
    length = length if length is not None else options.history_length_
    config = (
        options.push_notification or options.push_notification_ or options.push_notification_config
    )
    return SendMessage(
        message=found,
        # Without the member a send waits, as over JSON-RPC. But a caller that uses `request` prints
        # the message of the .proto (a2a-sdk 1.x), which leaves out false.
        wait=params.request is None if options.blocking is None else options.blocking,
        history_length=history_in(length, ".configuration.historyLength"),
        accepts=options.accepted_output_modes or options.accepted_output_modes_ or (),
        hook=inline_in(config, ".configuration.pushNotification", hook_in),
        metadata=params.metadata,
    )


def send_out(op: SendMessage) -> wire.SendParams:
    hook = hook_out(op.hook) if op.hook is not None else None
    # 0.3.0's .proto has no references, and servers with its Python SDK refuse a whole request for
    # a member that they do not know. What we answer has them: clients with that SDK send none, so
    # their tasks have none.
    return wire.SendParams(
        message_out(replace(op.message, references=())),
        wire.Configuration(op.accepts, hook, op.history_length, op.wait),
        op.metadata,
    )


def since_in(params: wire.ListParams) -> int | None:
    if params.status_timestamp_after:
        return stamp_in(params.status_timestamp_after, ".statusTimestampAfter")
    since = params.last_updated_after
    # A query has no numbers, only their digits.
    if isinstance(since, str) and since.isdecimal() and len(since) <= len(str(LATEST)):
        since = int(since)
    return updated_in(since)


def page_out(page: TaskPage, op: ListTasks) -> tuple[wire.Task, ...]:
    """Writes a list of tasks: in 0.3 §3.5.3 it is a bare array."""
    return each(CODEC.task_out, page.tasks)


def page_in(raw: Raw) -> TaskPage:
    """Reads a list of tasks: the text of 0.3 has an array, a2a-go the object of the `.proto`."""
    bare = bytes(raw).lstrip()[:1] == b"["
    page = wire.TaskPage(_read_tasks(raw)) if bare else _read_page(raw)
    tasks = each(CODEC.task_in, page.tasks or ())
    token = page.next_page_token or page.next_page_token_
    return TaskPage(tasks, token, len(tasks), len(tasks))


NEXT_PAGE = "x-next-page-token"


def page_headers_out(page: TaskPage, op: ListTasks) -> Mapping[str, str]:
    """Returns the headers that lead to the next page, for which a bare array has no place: its
    token, escaped for a query, and the whole query as a link relative to this one (RFC 8288)."""
    if not page.next_token:
        return {}
    query = query_out(msgspec.to_builtins(LIST.op_out(replace(op, page_token=page.next_token))))
    return {NEXT_PAGE: quote(page.next_token, safe=""), "link": f'<?{query}>; rel="next"'}


def page_headers_in(page: TaskPage, headers: Mapping[str, str]) -> TaskPage:
    return replace(page, next_token=page.next_token or unquote(headers.get(NEXT_PAGE, "")))


_read_tasks = msgspec.json.Decoder(tuple[wire.Task, ...]).decode
_read_page = msgspec.json.Decoder(wire.TaskPage).decode
_STEP = (STEPS.sent_out, STEPS.sent_in)

SEND = replace(method(SendMessage, wire.SendParams, (send_in, send_out), _STEP), notes=file_notes)
STREAM = replace(SEND, stream=True)
GET, CANCEL, WATCH = task_methods(
    *(wire.TaskParams, wire.TaskParams, wire.TaskParams),
    *(task_answer(CODEC, STEPS.task_in), _STEP),
)
LIST = replace(
    list_method(CODEC, wire.ListParams, (page_out, page_in), since_in=since_in),
    headers_out=page_headers_out,
    headers_in=page_headers_in,
)
CARD = card_method(wire.Params, documents.merged)
