"""The table of the rpcs of a gRPC service, which serves both sides.

The two packages have the same rpcs, some of them under different names. `service` builds the table
from the converters of a version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core import operations as ops
from dragoman.core.card import Card
from dragoman.core.model import Json

from ..proto import ANY, Fields, Proto, reader, stamp_in, stamp_out, writer
from ..scalars import Wrong
from .decode import card_in, nothing_in, sent_in, task_in
from .encode import NUMBERS, STATES, GrpcEncoder, nothing_out

Question = tuple[Callable[[Proto], ops.Operation[Any]], Callable[[Any], Fields]]
"""The functions that read a request as an operation, and write an operation as a request."""
Answer = tuple[Callable[[Any], Fields], Callable[[Proto], Any]]
"""The functions that write and read a response."""


class Rpc(Struct, frozen=True, kw_only=True):
    """One rpc. Its converters accept each other's types, which only the table ties together."""

    op: type[ops.AnyOperation]
    stream: bool = False
    read: Callable[[bytes], Proto]
    """Reads a request, for the callee."""
    op_in: Callable[[Proto], ops.Operation[Any]]
    write: Callable[[Fields], bytes]
    """Writes the response, for the callee."""
    answer_out: Callable[[Any], Fields]
    write_request: Callable[[Fields], bytes]
    """Writes a request, for the caller."""
    op_out: Callable[[Any], Fields]
    """Converts an operation to a request, for the caller. Raises `Wrong` if this version cannot
    express it."""
    read_response: Callable[[bytes], Proto]
    """Reads the response, for the caller."""
    answer_in: Callable[[Proto], Any]
    notes: Callable[[Proto], Iterable[Mapping[str, Json]]] | None = None
    """Returns how the request was interpreted, for the log."""


def rpc(
    package: str,
    op: type[ops.AnyOperation],
    request: str,
    question: Question,
    response: str,
    answer: Answer,
    *,
    stream: bool = False,
) -> Rpc:
    """Returns an rpc between these two messages of a package. A name with a dot is complete. The
    messages of a stream are written and read by its service."""
    whole = response if "." in response else f"{package}.{response}"
    return Rpc(
        op=op,
        stream=stream,
        read=reader(f"{package}.{request}"),
        op_in=question[0],
        write=writer(whole),
        answer_out=answer[0],
        write_request=writer(f"{package}.{request}"),
        op_out=question[1],
        read_response=reader(whole, ANY),
        answer_in=answer[1],
    )


class RpcService(Struct, frozen=True, kw_only=True):
    """One service: its rpcs, and its spelling of events."""

    name: str
    version: str
    """The version in the a2a-version metadata."""
    rpcs: Mapping[str, Rpc]
    """The rpcs by name. If two have the same meaning, our callers use the first."""
    step: Callable[[Fields], bytes]
    """Writes one message of a stream."""
    read_step: Callable[[bytes], Proto]
    """Reads one message of a stream."""
    words: GrpcEncoder
    """The spelling of tasks and events."""
    tenants: bool
    """Whether requests can name a tenant."""


def list_question(
    since: str,
    size_in: Callable[[Proto], int | None],
    length_in: Callable[[Proto], int | None],
) -> Question:
    """Returns the functions that read and write a request for a list of tasks. `since` is the field
    for the time after which a task must have changed."""

    def list_in(request: Proto) -> ops.ListTasks:
        if request.status >= len(STATES):
            raise Wrong(f"Unknown state {request.status}", ".status")
        return ops.ListTasks(
            context_id=request.context_id,
            state=STATES[request.status] if request.status else None,
            since=stamp_in(request, since),
            page_size=size_in(request) or 50,
            page_token=request.page_token,
            history_length=length_in(request),
            with_artifacts=request.include_artifacts,
        )

    def list_out(op: ops.ListTasks) -> Fields:
        return {
            "context_id": op.context_id,
            "status": NUMBERS[op.state] if op.state is not None else 0,
            "page_size": op.page_size,
            "page_token": op.page_token,
            "history_length": op.history_length,
            since: stamp_out(op.since) if op.since is not None else None,
            "include_artifacts": op.with_artifacts,
        }

    return list_in, list_out


CONFIG = "TaskPushNotificationConfig"


def service(
    package: str,
    version: str,
    words: GrpcEncoder,
    *,
    send: Question,
    get: Question,
    list_tasks: Question,
    page: Answer,
    cancel: Question,
    watch: tuple[str, Question],
    set_hook: tuple[str, Question],
    one_hook: tuple[Question, Question],
    list_hooks: tuple[str, Question],
    hook: Answer,
    card: tuple[str, Callable[[Card], Fields]],
    notes: Callable[[Proto], Iterable[Mapping[str, Json]]] | None = None,
    aliases: Mapping[str, str] = {},
    tenants: bool = False,
) -> RpcService:
    """Returns the A2A service of a package.

    If the packages have different names for an rpc, the name precedes its converters; for
    `set_hook` it is the name of the request. `one_hook` reads the requests to show and to delete a
    webhook. `aliases` are further names of rpcs, and `notes` returns how the message of a send was
    interpreted, for the log.
    """
    row = partial(rpc, package)
    task: Answer = words.task_out, partial(task_in, words)
    send_row = row(
        *(ops.SendMessage, "SendMessageRequest", send, "SendMessageResponse"),
        (words.sent_out, partial(sent_in, words)),
    )
    send_row = replace(send_row, notes=notes)
    hook_out, hook_in = hook

    def hooks_out(found: ops.HookPage) -> Fields:
        return {"configs": list(map(hook_out, found.hooks)), "next_page_token": found.next_token}

    def hooks_in(found: Proto) -> ops.HookPage:
        return ops.HookPage(tuple(map(hook_in, found.configs)), found.next_page_token)

    hooks: Answer = hooks_out, hooks_in
    watches, watch_question = watch
    lists, list_hooks_question = list_hooks
    shows, card_out = card
    get_hook, delete_hook = one_hook
    rpcs = {
        "SendMessage": send_row,
        "SendStreamingMessage": replace(send_row, stream=True),
        "GetTask": row(ops.GetTask, "GetTaskRequest", get, "Task", task),
        "ListTasks": row(ops.ListTasks, "ListTasksRequest", list_tasks, "ListTasksResponse", page),
        "CancelTask": row(ops.CancelTask, "CancelTaskRequest", cancel, "Task", task),
        watches: row(ops.Watch, f"{watches}Request", watch_question, "Task", task, stream=True),
        f"Create{CONFIG}": row(ops.SetHook, *set_hook, CONFIG, hook),
        f"Get{CONFIG}": row(ops.GetHook, f"Get{CONFIG}Request", get_hook, CONFIG, hook),
        lists: row(
            *(ops.ListHooks, f"{lists}Request", list_hooks_question), f"{lists}Response", hooks
        ),
        f"Delete{CONFIG}": row(
            *(ops.DeleteHook, f"Delete{CONFIG}Request", delete_hook),
            *("google.protobuf.Empty", (nothing_out, nothing_in)),
        ),
        shows: row(
            *(ops.GetExtendedCard, f"{shows}Request", (_card_request_in, _card_request_out)),
            *("AgentCard", (card_out, card_in)),
        ),
    }
    step = f"{package}.StreamResponse"
    return RpcService(
        name=f"{package}.A2AService",
        version=version,
        rpcs=rpcs | {alias: rpcs[name] for alias, name in aliases.items()},
        step=writer(step),
        read_step=reader(step, ANY),
        words=words,
        tenants=tenants,
    )


def _card_request_in(request: Proto) -> ops.GetExtendedCard:
    return ops.GetExtendedCard()


def _card_request_out(op: ops.GetExtendedCard) -> Fields:
    return {}
