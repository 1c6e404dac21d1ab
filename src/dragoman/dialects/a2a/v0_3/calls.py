"""A2A 0.3's methods: what they ask, what they answer, and what happens meanwhile."""

from __future__ import annotations

from collections.abc import Callable

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

from .. import extensions
from ..cards import documents
from ..scalars import LATEST, Wrong, count_in, each, links_in, stamp_in, stamp_out
from ..version import method
from . import hooks, wire
from .convert import (
    ROLES_IN,
    STATES_IN,
    STATES_OUT,
    artifact_in,
    artifact_out,
    data_in,
    message_in,
    message_out,
    status_in,
    status_out,
    task_in,
    task_out,
)

# What is asked


def send_in(params: wire.SendParams) -> SendMessage:
    message = params.message
    if message.role not in ROLES_IN:
        raise Wrong("Expected `user` or `agent`", ".message.role")
    if not message.message_id:
        raise Wrong("Expected a message id", ".message.messageId")
    if not message.parts:
        raise Wrong("Expected at least one part", ".message.parts")
    try:
        said = message_in(message)
        data_in(message.parts, ".parts")
        links_in(said.parts, ".parts", ".file.uri")
    except Wrong as wrong:
        raise wrong.under(".message") from None
    options = params.configuration
    if options is None:
        return SendMessage(message=said, metadata=params.metadata)
    return SendMessage(
        message=said,
        # Over JSON-RPC, a call that does not say waits (D7).
        wait=options.blocking is not False,
        history_length=history_in(options.history_length, ".configuration.historyLength"),
        accepts=options.accepted_output_modes or (),
        hook=hooks.inline_in(options.push_notification_config),
        metadata=params.metadata,
    )


def send_out(op: SendMessage) -> wire.SendParams:
    hook = hooks.hook_out(op.hook) if op.hook is not None else None
    return wire.SendParams(
        message=message_out(op.message),
        configuration=wire.Configuration(op.accepts, op.history_length, op.wait, hook),
        metadata=op.metadata,
    )


def history_in(value: int | None, path: str = ".historyLength") -> int | None:
    return None if value is None else count_in(value, path)


def id_in(task_id: str) -> str:
    if not task_id:
        raise Wrong("Expected a task id", ".id")
    return task_id


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
    return task_out(value) if isinstance(value, Task) else message_out(value)


def got_out(value: Task, op: GetTask | CancelTask) -> wire.Task:
    return task_out(value)


def page_out(page: TaskPage, op: ListTasks) -> wire.Page:
    tasks = each(task_out, page.tasks)
    if op.with_artifacts:
        tasks = tuple(replace(task, artifacts=task.artifacts or ()) for task in tasks)
    return wire.Page(tasks, page.next_token, page.page_size, page.total)


def card_out(card: Card, op: GetExtendedCard) -> Raw:
    return Raw(documents.merged(card))


def sent_in(raw: Raw) -> Task | Message:
    match step_in(raw):
        case wire.Task() as task:
            return task_in(task)
        case wire.Message() as message:
            return message_in(message)
        case _:
            raise Wrong("Expected a task or a message")


def got_in(raw: Raw) -> Task:
    step = step_in(raw)
    if not isinstance(step, wire.Task):
        raise Wrong("Expected a task")
    return task_in(step)


def page_in(raw: Raw) -> TaskPage:
    page = _read_page(raw)
    tasks = each(task_in, page.tasks or ())
    return TaskPage(
        tasks=tasks,
        next_token=page.next_page_token or "",
        page_size=page.page_size or 0,
        total=len(tasks) if page.total_size is None else page.total_size,
    )


def card_in(raw: Raw) -> Card:
    return documents.card_in(bytes(raw))


# What happens

_SUBMITTED = State.SUBMITTED


def event_out(entry: Stamped | Message, notes: bool) -> wire.Step:
    if isinstance(entry, Stamped):
        return _EVENTS_OUT[type(entry.event)](entry, entry.event, notes)
    return message_out(entry)


def opened_out(entry: Stamped, event: Opened, notes: bool) -> wire.Step:
    status = status_out(_SUBMITTED, entry.at, None)
    history = (message_out(event.message),)
    return wire.Task(entry.task_id, entry.context_id, status, None, history, event.metadata)


def snapshot_out(entry: Stamped, event: Snapshot, notes: bool) -> wire.Step:
    return task_out(event.task)


def state_out(entry: Stamped, event: StateChanged, notes: bool) -> wire.Step:
    status = status_out(event.state, entry.at, event.message)
    final = event.state in ENDS_STREAM
    return wire.StatusUpdate(entry.task_id, entry.context_id, status, final, event.metadata)


def asked_out(entry: Stamped, event: Asked, notes: bool) -> wire.Step:
    status = status_out(event.state, entry.at, event.message)
    final = event.state in ENDS_STREAM
    return wire.StatusUpdate(entry.task_id, entry.context_id, status, final)


def noted_out(entry: Stamped, event: Noted, notes: bool) -> wire.Step:
    # Execution is opaque: without the extension only the state is told (DESIGN §3).
    status = status_out(event.state, entry.at, None)
    note = extensions.note_out(event) if notes else None
    return wire.StatusUpdate(entry.task_id, entry.context_id, status, False, note)


def chunk_out(entry: Stamped, event: ArtifactChunk, notes: bool) -> wire.Step:
    artifact = artifact_out(event.artifact)
    ids = entry.task_id, entry.context_id
    return wire.ArtifactUpdate(artifact, *ids, event.append, event.last, event.metadata)


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
    if isinstance(step, wire.Message):
        return message_in(step), True
    if isinstance(step, wire.Task):
        task = task_in(step)
        return Stamped(task.id, task.context_id, seq, task.status.at, Snapshot(task=task)), False
    task_id, context_id = step.task_id or "", step.context_id or ""
    if isinstance(step, wire.ArtifactUpdate):
        event: AnyEvent = ArtifactChunk(
            artifact=artifact_in(step.artifact),
            append=bool(step.append),
            last=bool(step.last_chunk),
            metadata=step.metadata,
        )
        return Stamped(task_id, context_id, seq, 0, event), False
    status = status_in(step.status)
    event = extensions.note_in(step.metadata, status.state) or StateChanged(
        state=status.state, message=status.message, metadata=step.metadata
    )
    last = bool(step.final) or status.state in FINAL
    return Stamped(task_id, context_id, seq, status.at, event), last


_read_step: Callable[[Raw], wire.Step] = msgspec.json.Decoder(wire.Step).decode
_read_heard = msgspec.json.Decoder(wire.Heard).decode
_read_page = msgspec.json.Decoder(wire.PageHeard).decode


def step_in(raw: Raw) -> wire.Step:
    try:
        return _read_step(raw)
    except msgspec.ValidationError:
        return _unnamed_in(raw)


def _unnamed_in(raw: Raw) -> wire.Step:
    """A step without `kind` is told by its members (a2a-wire §6)."""
    heard = _read_heard(raw)
    wrapped = heard.task or heard.message or heard.status_update or heard.artifact_update
    if wrapped is not None:
        return wrapped
    if heard.parts is not None:
        return msgspec.json.decode(raw, type=wire.Message)
    if heard.artifact is not None:
        return msgspec.json.decode(raw, type=wire.ArtifactUpdate)
    if heard.id is not None:
        return msgspec.json.decode(raw, type=wire.Task)
    if heard.status is not None:
        return msgspec.json.decode(raw, type=wire.StatusUpdate)
    raise Wrong("Expected a task, a message or an update")


_SEND = (send_in, send_out), (sent_out, sent_in)
_WATCH = (watch_in, watch_out), (sent_out, sent_in)
_TASK = (got_out, got_in)
_CARD = (extended_in, extended_out), (card_out, card_in)
_RESUBSCRIBE = method(Watch, wire.TaskParams, *_WATCH, stream=True)
_EXTENDED_CARD = method(GetExtendedCard, wire.Params, *_CARD)

METHODS = {
    "message/send": method(SendMessage, wire.SendParams, *_SEND),
    "message/stream": method(SendMessage, wire.SendParams, *_SEND, stream=True),
    "tasks/get": method(GetTask, wire.TaskParams, (get_in, get_out), _TASK),
    "tasks/cancel": method(CancelTask, wire.TaskParams, (cancel_in, cancel_out), _TASK),
    "tasks/resubscribe": _RESUBSCRIBE,
    "agent/getAuthenticatedExtendedCard": _EXTENDED_CARD,
    # Spelled so in 0.3 §11.1.3 and 0.2.6.
    "agent/authenticatedExtendedCard": _EXTENDED_CARD,
    # Drafts between 0.3 and 1.0, which some clients are built on.
    "tasks/list": method(ListTasks, wire.ListParams, (list_in, list_out), (page_out, page_in)),
    "tasks/subscribe": _RESUBSCRIBE,
    **hooks.METHODS,
}
