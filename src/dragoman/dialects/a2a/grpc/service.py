"""What a gRPC service is to us: a table of its rpcs, which serves both sides.

The two packages have the same rpcs, some under names of their own. `service` makes the table out of
the converters of a version.
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
"""How a request is read as an operation, and an operation written as a request."""
Answer = tuple[Callable[[Any], Fields], Callable[[Proto], Any]]
"""How a response is written, and how it is read."""


class Rpc(Struct, frozen=True, kw_only=True):
    """One rpc. The converters of one take each other's types; the table ties them together."""

    op: type[ops.AnyOperation]
    stream: bool = False
    read: Callable[[bytes], Proto]
    """Reads a request,"""
    op_in: Callable[[Proto], ops.Operation[Any]]
    write: Callable[[Fields], bytes]
    """and writes the response to it: the side that is asked."""
    answer_out: Callable[[Any], Fields]
    write_request: Callable[[Fields], bytes]
    """Writes a request,"""
    op_out: Callable[[Any], Fields]
    """Raises `Wrong` for what this version cannot ask."""
    read_response: Callable[[bytes], Proto]
    """and reads the response to it: the side that asks."""
    answer_in: Callable[[Proto], Any]
    notes: Callable[[Proto], Iterable[Mapping[str, Json]]] | None = None
    """What was decided in reading the request, for the log."""


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
    """An rpc between these two messages of a package; a name with a dot is whole. A stream's
    messages are written and read by its service."""
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
    """One service: its rpcs, and how it spells what happens."""

    name: str
    dialect: str
    version: str
    """As the a2a-version metadata says it."""
    rpcs: Mapping[str, Rpc]
    """Of two names for the same, our callers use the first."""
    step: Callable[[Fields], bytes]
    """Writes one message of a stream,"""
    read_step: Callable[[bytes], Proto]
    """and reads one."""
    words: GrpcEncoder
    """How it spells what happens."""
    tenants: bool
    """Whether its requests can name a tenant."""


def list_question(
    since: str,
    size_in: Callable[[Proto], int | None],
    length_in: Callable[[Proto], int | None],
) -> Question:
    """How a request for a list of tasks is read and written. `since` is the field that holds the
    time after which a task must have changed."""

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
    """The A2A service of a package.

    Where the packages differ in what an rpc is called, its name stands before its converters; for
    `set_hook` it is the name of the request. `one_hook` shows a webhook and deletes it. `aliases`
    are further names of rpcs, `notes` tells the log how the message of a send was read.
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
        dialect=f"a2a-{version}",
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
