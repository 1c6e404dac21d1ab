"""The rows that the method tables of all versions share: tasks, lists, the card and webhooks.

The table of a version gives each row its name, its params and the spelling of its answer. The
fields of params have the same names in all versions, and those with two spellings have twins
(`members`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Raw, Struct
from msgspec.structs import replace

from dragoman.core.card import Card
from dragoman.core.model import State, Task
from dragoman.core.operations import (
    CancelTask,
    GetExtendedCard,
    GetTask,
    ListTasks,
    TaskPage,
    Watch,
)

from .cards import documents
from .codec import TaskCodec, Wire
from .members import Number
from .scalars import Wrong, count_in, each, stamp_out
from .version import RpcMethod, method

Answer = tuple[Callable[..., object], Callable[[Raw], Any]]
"""The functions that write and read an answer."""


def id_in(task_id: str) -> str:
    if not task_id:
        raise Wrong("Expected a task id", ".id")
    return task_id


def history_in(value: Number, path: str = ".historyLength") -> int | None:
    return None if value is None else count_in(value, path)


# Tasks


class TaskMethods(NamedTuple):
    """The methods that name one task."""

    get: RpcMethod
    cancel: RpcMethod
    watch: RpcMethod


def task_methods(
    get: type[Struct],
    cancel: type[Struct],
    watch: type[Struct],
    task: Answer,
    step: Answer,
    *,
    id_in: Callable[[Any], str] = id_in,
    history_in: Callable[[Any], int | None] = history_in,
) -> TaskMethods:
    """Returns the rows for these params. The answer to a get or a cancel is a `task`, the answer to
    a watch is a stream of `step`."""
    get_params: Callable[..., Struct] = get
    cancel_params: Callable[..., Struct] = cancel
    watch_params: Callable[..., Struct] = watch

    def get_in(params: Wire) -> GetTask:
        length = params.history_length
        length = length if length is not None else params.history_length_
        return GetTask(task_id=id_in(params.id), history_length=history_in(length))

    def get_out(op: GetTask) -> Struct:
        return get_params(op.task_id, op.history_length)

    def cancel_in(params: Wire) -> CancelTask:
        return CancelTask(task_id=id_in(params.id), metadata=params.metadata)

    def cancel_out(op: CancelTask) -> Struct:
        return cancel_params(op.task_id, metadata=op.metadata)

    def watch_in(params: Wire) -> Watch:
        return Watch(task_id=id_in(params.id))

    def watch_out(op: Watch) -> Struct:
        return watch_params(op.task_id)

    return TaskMethods(
        method(GetTask, get, (get_in, get_out), task),
        method(CancelTask, cancel, (cancel_in, cancel_out), task),
        method(Watch, watch, (watch_in, watch_out), step, stream=True),
    )


def task_answer(codec: TaskCodec[Any, Any, Any], task_in: Callable[[Raw], Task]) -> Answer:
    """Returns the functions for a task as the answer to a get or a cancel."""
    task_out = codec.task_out
    return (lambda task, op: task_out(task)), task_in


# Lists of tasks


def list_method(
    codec: TaskCodec[Any, Any, Any],
    params: type[Struct],
    page: Answer,
    *,
    since_in: Callable[[Any], int | None],
    any_state: tuple[object, ...] = (None, ""),
) -> RpcMethod:
    """Returns the row for these params; `any_state` is the value of a caller that does not filter
    by state."""
    list_params: Callable[..., Struct] = params

    def state_in(status: Any) -> State | None:
        if status in any_state:
            return None
        if status not in codec.states_in:
            raise Wrong(f"Unknown state {status!r}", ".status")
        return codec.states_in[status]

    def list_in(params: Wire) -> ListTasks:
        state = state_in(params.status)
        size = params.page_size if params.page_size is not None else params.page_size_
        length = params.history_length
        length = length if length is not None else params.history_length_
        return ListTasks(
            context_id=params.context_id or params.context_id_,
            state=state,
            since=since_in(params),
            page_size=50 if size is None else count_in(size, ".pageSize", 1, 100),
            page_token=params.page_token or params.page_token_,
            history_length=history_in(length),
            with_artifacts=bool(params.include_artifacts or params.include_artifacts_),
        )

    def list_out(op: ListTasks) -> Struct:
        return list_params(
            op.context_id,
            codec.states_out[op.state] if op.state is not None else None,
            op.page_size,
            op.page_token,
            op.history_length,
            stamp_out(op.since) if op.since is not None else "",
            op.with_artifacts,
        )

    return method(ListTasks, params, (list_in, list_out), page)


def page_out(
    codec: TaskCodec[Any, Any, Any], page: Callable[..., Struct]
) -> Callable[[TaskPage, ListTasks], Struct]:
    """Writes a page of tasks with all its members."""
    task_out = codec.task_out

    def write(found: TaskPage, op: ListTasks) -> Struct:
        tasks: tuple[Wire, ...] = each(task_out, found.tasks)
        if op.with_artifacts:
            # 1.0 §3.1.4: a caller that requests artifacts sees the member even if it is empty.
            tasks = tuple(replace(task, artifacts=task.artifacts or ()) for task in tasks)
        return page(tasks, found.next_token, found.page_size, found.total)

    return write


# The extended card


def card_method(params: type[Struct], write: Callable[[Card], bytes]) -> RpcMethod:
    """Returns the row for a version that writes its card in this form."""

    def card_in(raw: Raw) -> Card:
        return documents.card_in(bytes(raw))

    return method(
        GetExtendedCard,
        params,
        (lambda given: GetExtendedCard(), lambda op: params()),
        (lambda card, op: Raw(write(card)), card_in),
    )
