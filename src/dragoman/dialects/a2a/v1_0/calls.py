"""A2A 1.0's methods: what they ask, what they answer, and what happens meanwhile."""

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
from dragoman.core.lifecycle import FINAL
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
from ..scalars import Wrong, count_in, each, links_in, stamp_in, stamp_out
from ..version import method
from . import hooks, wire
from .convert import (
    ROLES_IN,
    STATES_IN,
    STATES_OUT,
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


def send_in(params: wire.SendParams) -> SendMessage:
    message = params.message
    if message.role not in ROLES_IN:
        raise Wrong("Expected `ROLE_USER` or `ROLE_AGENT`", ".message.role")
    if not (message.message_id or message.message_id_):
        raise Wrong("Expected a message id", ".message.messageId")
    if not message.parts:
        raise Wrong("Expected at least one part", ".message.parts")
    try:
        said = message_in(message)
        links_in(said.parts, ".parts", ".url")
    except Wrong as wrong:
        raise wrong.under(".message") from None
    options = params.configuration
    if options is None:
        return SendMessage(message=said, metadata=params.metadata)
    length = (
        options.history_length if options.history_length is not None else options.history_length_
    )
    config = options.task_push_notification_config or options.task_push_notification_config_
    return SendMessage(
        message=said,
        wait=not (options.return_immediately or options.return_immediately_),
        history_length=history_in(length, ".configuration.historyLength"),
        accepts=options.accepted_output_modes or options.accepted_output_modes_,
        hook=hooks.inline_in(config),
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


def history_in(value: wire.Number, path: str = ".historyLength") -> int | None:
    return None if value is None else count_in(value, path)


def id_in(task_id: str) -> str:
    if not task_id:
        raise Wrong("Expected a task id", ".id")
    return task_id


def get_in(params: wire.GetParams) -> GetTask:
    length = params.history_length if params.history_length is not None else params.history_length_
    return GetTask(task_id=id_in(params.id), history_length=history_in(length))


def get_out(op: GetTask) -> wire.GetParams:
    return wire.GetParams(op.task_id, op.history_length)


def cancel_in(params: wire.CancelParams) -> CancelTask:
    return CancelTask(task_id=id_in(params.id), metadata=params.metadata)


def cancel_out(op: CancelTask) -> wire.CancelParams:
    return wire.CancelParams(op.task_id, op.metadata)


def watch_in(params: wire.WatchParams) -> Watch:
    return Watch(task_id=id_in(params.id))


def watch_out(op: Watch) -> wire.WatchParams:
    return wire.WatchParams(op.task_id)


def list_in(params: wire.ListParams) -> ListTasks:
    p = params
    state = p.status if p.status not in ("", 0, "TASK_STATE_UNSPECIFIED") else None
    if state is not None and state not in STATES_IN:
        raise Wrong(f"Unknown state {state!r}", ".status")
    size = p.page_size if p.page_size is not None else p.page_size_
    length = p.history_length if p.history_length is not None else p.history_length_
    since = p.status_timestamp_after or p.status_timestamp_after_
    return ListTasks(
        context_id=p.context_id or p.context_id_,
        state=STATES_IN[state] if state is not None else None,
        since=stamp_in(since, ".statusTimestampAfter") if since else None,
        page_size=50 if size is None else count_in(size, ".pageSize", 1, 100),
        page_token=p.page_token or p.page_token_,
        history_length=history_in(length),
        with_artifacts=bool(p.include_artifacts or p.include_artifacts_),
    )


def list_out(op: ListTasks) -> wire.ListParams:
    return wire.ListParams(
        op.context_id,
        STATES_OUT[op.state] if op.state is not None else None,
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


def page_out(page: TaskPage, op: ListTasks) -> wire.Page:
    tasks = each(task_out, page.tasks)
    if op.with_artifacts:
        # 1.0 §3.1.4: asked for, they are there even if there are none.
        tasks = tuple(replace(task, artifacts=task.artifacts or ()) for task in tasks)
    return wire.Page(tasks, page.next_token, page.page_size, page.total)


def card_out(card: Card, op: GetExtendedCard) -> Raw:
    return Raw(documents.pure_1_0(card))


def sent_in(raw: Raw) -> Task | Message:
    step = step_in(raw)
    if step.task is not None:
        return task_in(step.task)
    if step.message is not None:
        return message_in(step.message)
    raise Wrong("Expected a task or a message")


def got_in(raw: Raw) -> Task:
    step = step_in(raw)
    if step.task is None:
        raise Wrong("Expected a task")
    return task_in(step.task)


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
    update = wire.StatusUpdate(entry.task_id, entry.context_id, status, event.metadata)
    return wire.Step(None, None, update)


def asked_out(entry: Stamped, event: Asked, notes: bool) -> wire.Step:
    status = status_out(event.state, entry.at, event.message)
    return wire.Step(None, None, wire.StatusUpdate(entry.task_id, entry.context_id, status))


def noted_out(entry: Stamped, event: Noted, notes: bool) -> wire.Step:
    # Execution is opaque: without the extension only the state is told (DESIGN §3).
    status = status_out(event.state, entry.at, None)
    note = extensions.note_out(event) if notes else None
    return wire.Step(None, None, wire.StatusUpdate(entry.task_id, entry.context_id, status, note))


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
    if step.message is not None:
        return message_in(step.message), True
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
    return Stamped(*_ids(update), seq, status.at, event), status.state in FINAL


def _ids(update: wire.StatusUpdate | wire.ArtifactUpdate) -> tuple[str, str]:
    return (
        update.task_id or update.task_id_,
        update.context_id or update.context_id_,
    )


_read_heard = msgspec.json.Decoder(wire.Heard).decode
_read_page = msgspec.json.Decoder(wire.PageHeard).decode


def step_in(raw: Raw) -> wire.Step:
    """Peers that do not wrap what they answer are told by the members they use."""
    heard = _read_heard(raw)
    if heard.parts is not None:
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

METHODS = {
    "SendMessage": method(SendMessage, wire.SendParams, *_SEND),
    "SendStreamingMessage": method(SendMessage, wire.SendParams, *_SEND, stream=True),
    "GetTask": method(GetTask, wire.GetParams, (get_in, get_out), _TASK),
    "ListTasks": method(ListTasks, wire.ListParams, (list_in, list_out), (page_out, page_in)),
    "CancelTask": method(CancelTask, wire.CancelParams, (cancel_in, cancel_out), _TASK),
    "SubscribeToTask": method(Watch, wire.WatchParams, *_WATCH, stream=True),
    "GetExtendedAgentCard": method(
        GetExtendedCard, wire.Params, (extended_in, extended_out), (card_out, card_in)
    ),
    **hooks.METHODS,
}
