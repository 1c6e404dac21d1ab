"""A2A 0.3's operations over REST: what they ask, what they answer, and what happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import quote, unquote

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from dragoman.core.card import Card
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
from dragoman.core.lifecycle import ENDS_STREAM, FINAL
from dragoman.core.model import Message, State, Task
from dragoman.core.operations import (
    CancelTask,
    GetExtendedCard,
    GetTask,
    ListTasks,
    SendMessage,
    TaskPage,
    Watch,
)

from ... import extensions
from ...cards import documents
from ...scalars import LATEST, Wrong, count_in, each, links_in, query_out, stamp_in, stamp_out
from ...v1_0.wire import Number
from ...version import method
from . import hooks, wire
from .convert import (
    ROLES_IN,
    STATES_IN,
    STATES_OUT,
    artifact_in,
    artifact_out,
    data_in,
    file_notes,
    message_in,
    message_out,
    status_in,
    status_out,
    task_in,
    task_out,
)

# What is asked


def send_in(params: wire.SendParams) -> SendMessage:
    message = params.message or params.request or params.msg
    if message is None:
        raise Wrong("Object missing required field `message`")
    if message.role not in ROLES_IN:
        raise Wrong("Expected `ROLE_USER` or `ROLE_AGENT`", ".message.role")
    if not (message.message_id or message.message_id_):
        raise Wrong("Expected a message id", ".message.messageId")
    if not (message.content or message.parts):
        raise Wrong("Expected at least one part", ".message.content")
    try:
        said = message_in(message)
        data_in(message.content or message.parts or (), ".content")
        links_in(said.parts, ".content", ".file.fileWithUri")
    except Wrong as wrong:
        raise wrong.under(".message") from None
    options = params.configuration
    if options is None:
        return SendMessage(message=said, metadata=params.metadata)
    length = (
        options.history_length if options.history_length is not None else options.history_length_
    )
    return SendMessage(
        message=said,
        # Absent waits, as over JSON-RPC. But whoever says `request` prints the .proto's message as
        # it is (a2a-sdk 1.x), where false is what is left out.
        wait=params.request is None if options.blocking is None else options.blocking,
        history_length=history_in(length, ".configuration.historyLength"),
        accepts=options.accepted_output_modes or options.accepted_output_modes_ or (),
        hook=hooks.inline_in(options),
        metadata=params.metadata,
    )


def send_out(op: SendMessage) -> wire.SendParams:
    hook = hooks.hook_out(op.hook) if op.hook is not None else None
    # 0.3.0's .proto has no references, and servers with its Python SDK refuse a whole request for
    # a member that they do not know. What we answer has them: clients with that SDK send none, so
    # their tasks have none.
    return wire.SendParams(
        message_out(replace(op.message, references=())),
        wire.Configuration(op.accepts, hook, op.history_length, op.wait),
        op.metadata,
    )


def history_in(value: Number, path: str = ".historyLength") -> int | None:
    return None if value is None else count_in(value, path)


def get_in(params: wire.TaskParams) -> GetTask:
    length = params.history_length if params.history_length is not None else params.history_length_
    return GetTask(task_id=params.id, history_length=history_in(length))


def get_out(op: GetTask) -> wire.TaskParams:
    return wire.TaskParams(op.task_id, op.history_length)


def cancel_in(params: wire.TaskParams) -> CancelTask:
    return CancelTask(task_id=params.id, metadata=params.metadata)


def cancel_out(op: CancelTask) -> wire.TaskParams:
    return wire.TaskParams(op.task_id, None, op.metadata)


def watch_in(params: wire.TaskParams) -> Watch:
    return Watch(task_id=params.id)


def watch_out(op: Watch) -> wire.TaskParams:
    return wire.TaskParams(op.task_id)


def list_in(params: wire.ListParams) -> ListTasks:
    state = STATES_IN.get(params.status) if params.status else None
    if params.status and state is None:
        raise Wrong(f"Unknown state {params.status!r}", ".status")
    size = params.page_size
    return ListTasks(
        context_id=params.context_id or "",
        state=state,
        since=since_in(params),
        page_size=50 if size is None else count_in(size, ".pageSize", 1, 100),
        page_token=params.page_token or "",
        history_length=history_in(params.history_length),
        with_artifacts=bool(params.include_artifacts),
    )


def since_in(params: wire.ListParams) -> int | None:
    if params.status_timestamp_after:
        return stamp_in(params.status_timestamp_after, ".statusTimestampAfter")
    since = params.last_updated_after
    if isinstance(since, str) and since.isdecimal() and len(since) <= len(str(LATEST)):
        since = int(since)
    if isinstance(since, int):
        return count_in(since, ".lastUpdatedAfter", 0, LATEST)
    return stamp_in(since, ".lastUpdatedAfter") if since else None


def list_out(op: ListTasks) -> wire.ListParams:
    return wire.ListParams(
        op.context_id,
        STATES_OUT[op.state] if op.state is not None else "",
        op.page_size,
        op.page_token,
        op.history_length,
        stamp_out(op.since) if op.since is not None else "",
        op.with_artifacts,
    )


def extended_in(params: wire.Params) -> GetExtendedCard:
    return GetExtendedCard()


def extended_out(op: GetExtendedCard) -> wire.Params:
    return wire.Params()


# What is answered


def sent_out(value: Task | Message, op: SendMessage) -> wire.Step:
    if isinstance(value, Task):
        return wire.Step(task_out(value))
    return wire.Step(None, message_out(value))


def got_out(value: Task, op: GetTask | CancelTask) -> wire.Task:
    return task_out(value)


def page_out(page: TaskPage, op: ListTasks) -> tuple[wire.Task, ...]:
    """0.3 §3.5.3: the tasks and nothing around them."""
    return each(task_out, page.tasks)


def card_out(card: Card, op: GetExtendedCard) -> Raw:
    return Raw(documents.merged(card))


def sent_in(raw: Raw) -> Task | Message:
    step = step_in(raw)
    if step.task is not None:
        return task_in(step.task)
    message = step.message or step.msg
    if message is None:
        raise Wrong("Expected a task or a message")
    return message_in(message)


def got_in(raw: Raw) -> Task:
    step = step_in(raw)
    if step.task is None:
        raise Wrong("Expected a task")
    return task_in(step.task)


def page_in(raw: Raw) -> TaskPage:
    tasks = each(task_in, _read_tasks(raw))
    return TaskPage(tasks, "", len(tasks), len(tasks))


NEXT_PAGE = "x-next-page-token"


def page_headers_out(page: TaskPage, op: ListTasks) -> Mapping[str, str]:
    """Where the next page is, which a bare array has no place for: its token, escaped as a query
    wants it, and the whole query as a link relative to this one (RFC 8288)."""
    if not page.next_token:
        return {}
    query = query_out(msgspec.to_builtins(list_out(replace(op, page_token=page.next_token))))
    return {NEXT_PAGE: quote(page.next_token, safe=""), "link": f'<?{query}>; rel="next"'}


def page_headers_in(page: TaskPage, headers: Mapping[str, str]) -> TaskPage:
    return replace(page, next_token=unquote(headers.get(NEXT_PAGE, "")))


def card_in(raw: Raw) -> Card:
    return documents.card_in(bytes(raw))


# What happens

_SUBMITTED = State.SUBMITTED


def event_out(entry: Stamped | Message, notes: bool) -> wire.Step:
    if isinstance(entry, Stamped):
        return _EVENTS_OUT[type(entry.event)](entry, entry.event, notes)
    return wire.Step(None, message_out(entry))


def opened_out(entry: Stamped, event: Opened, notes: bool) -> wire.Step:
    status = status_out(_SUBMITTED, entry.at, None)
    history = (message_out(event.message),)
    task = wire.Task(entry.task_id, entry.context_id, status, None, history, event.metadata)
    return wire.Step(task)


def snapshot_out(entry: Stamped, event: Snapshot, notes: bool) -> wire.Step:
    return wire.Step(task_out(event.task))


def state_out(entry: Stamped, event: StateChanged, notes: bool) -> wire.Step:
    status = status_out(event.state, entry.at, event.message)
    final = event.state in ENDS_STREAM
    update = wire.StatusUpdate(entry.task_id, entry.context_id, status, final, event.metadata)
    return wire.Step(None, None, update)


def asked_out(entry: Stamped, event: Asked, notes: bool) -> wire.Step:
    status = status_out(event.state, entry.at, event.message)
    final = event.state in ENDS_STREAM
    return wire.Step(None, None, wire.StatusUpdate(entry.task_id, entry.context_id, status, final))


def noted_out(entry: Stamped, event: Noted, notes: bool) -> wire.Step:
    # Execution is opaque: without the extension only the state is told (DESIGN §3).
    status = status_out(event.state, entry.at, None)
    note = extensions.note_out(event) if notes else None
    update = wire.StatusUpdate(entry.task_id, entry.context_id, status, False, note)
    return wire.Step(None, None, update)


def chunk_out(entry: Stamped, event: ArtifactChunk, notes: bool) -> wire.Step:
    artifact = artifact_out(event.artifact)
    ids = entry.task_id, entry.context_id
    update = wire.ArtifactUpdate(artifact, *ids, event.append, event.last, event.metadata)
    return wire.Step(None, None, None, update)


_EVENTS_OUT: dict[type[AnyEvent], Callable[..., wire.Step]] = {
    Opened: opened_out,
    Snapshot: snapshot_out,
    StateChanged: state_out,
    Asked: asked_out,
    Noted: noted_out,
    ArtifactChunk: chunk_out,
}


def event_in(raw: Raw, seq: int) -> tuple[Stamped | Message, bool]:
    """What happened, and whether nothing can follow."""
    step = step_in(raw)
    message = step.message or step.msg
    if message is not None:
        return message_in(message), True
    if step.task is not None:
        task = task_in(step.task)
        return Stamped(task.id, task.context_id, seq, task.status.at, Snapshot(task=task)), False
    chunk = step.artifact_update or step.artifact_update_
    if chunk is not None:
        event: AnyEvent = ArtifactChunk(
            artifact=artifact_in(chunk.artifact),
            append=bool(chunk.append),
            last=bool(chunk.last_chunk or chunk.last_chunk_),
            metadata=chunk.metadata,
        )
        return Stamped(*_ids(chunk), seq, 0, event), False
    update = step.status_update or step.status_update_
    if update is None:
        raise Wrong("Expected a task, a message or an update")
    status = status_in(update.status)
    event = extensions.note_in(update.metadata, status.state) or StateChanged(
        state=status.state, message=status.message, metadata=update.metadata
    )
    last = bool(update.final) or status.state in FINAL
    return Stamped(*_ids(update), seq, status.at, event), last


def _ids(update: wire.StatusUpdate | wire.ArtifactUpdate) -> tuple[str, str]:
    return (
        update.task_id or update.task_id_,
        update.context_id or update.context_id_,
    )


_read_heard = msgspec.json.Decoder(wire.Heard).decode
_read_tasks = msgspec.json.Decoder(tuple[wire.Task, ...]).decode


def step_in(raw: Raw) -> wire.Step:
    """Peers that do not wrap what they answer are told by the members they use."""
    heard = _read_heard(raw)
    if heard.content is not None or heard.parts is not None:
        return wire.Step(message=msgspec.json.decode(raw, type=wire.Message))
    if heard.artifact is not None:
        return wire.Step(artifact_update=msgspec.json.decode(raw, type=wire.ArtifactUpdate))
    if heard.status is not None and heard.id is not None:
        return wire.Step(msgspec.json.decode(raw, type=wire.Task))
    if heard.status is not None:
        return wire.Step(status_update=msgspec.json.decode(raw, type=wire.StatusUpdate))
    return heard


_SEND = (send_in, send_out), (sent_out, sent_in)
_WATCH = (watch_in, watch_out), (sent_out, sent_in)
_TASK = (got_out, got_in)
_CARD = (extended_in, extended_out), (card_out, card_in)

SEND = replace(method(SendMessage, wire.SendParams, *_SEND), notes=file_notes)
STREAM = replace(SEND, stream=True)
GET = method(GetTask, wire.TaskParams, (get_in, get_out), _TASK)
LIST = replace(
    method(ListTasks, wire.ListParams, (list_in, list_out), (page_out, page_in)),
    headers_out=page_headers_out,
    headers_in=page_headers_in,
)
CANCEL = method(CancelTask, wire.TaskParams, (cancel_in, cancel_out), _TASK)
WATCH = method(Watch, wire.TaskParams, *_WATCH, stream=True)
CARD = method(GetExtendedCard, wire.Params, *_CARD)
