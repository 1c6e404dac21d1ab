"""A2A 1.0 as protobuf (lf.a2a.v1): its parts, what it asks, and the table of its rpcs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dragoman.core.card import Card
from dragoman.core.model import AnyPart, Blob, Data, Hook, Link, Text
from dragoman.core.operations import (
    CancelTask,
    DeleteHook,
    GetExtendedCard,
    GetHook,
    GetTask,
    HookPage,
    ListHooks,
    ListTasks,
    Operation,
    SendMessage,
    SetHook,
    TaskPage,
    Watch,
)

from ..grpc import cards
from ..grpc.encode import STATES, GrpcEncoder, nothing_out
from ..grpc.service import Rpc, Service, rpc
from ..proto import (
    Fields,
    Proto,
    bag_in,
    counted,
    needed,
    reader,
    stamp_in,
    value_in,
    value_out,
    writer,
)
from ..scalars import Wrong, count_in

DIALECT = "a2a-1.0"

# Parts and webhooks


def part_in(part: Proto) -> AnyPart:
    kind = part.WhichOneof("content")
    if kind is None:
        raise Wrong("Expected exactly one of `text`, `raw`, `url`, `data`")
    make, read = _PARTS_IN[kind]
    return make(
        read(getattr(part, kind)),
        filename=part.filename,
        media_type=part.media_type,
        metadata=bag_in(part),
    )


_PARTS_IN: dict[str, tuple[Callable[..., AnyPart], Callable[[Any], Any]]] = {
    "text": (Text, str),
    "raw": (Blob, bytes),
    "url": (Link, str),
    "data": (Data, value_in),
}


def part_out(part: AnyPart) -> Fields:
    field, value = _PARTS_OUT[type(part)](part)
    said = {field: value}
    if part.filename:
        said["filename"] = part.filename
    if part.media_type:
        said["media_type"] = part.media_type
    if part.metadata is not None:
        said["metadata"] = part.metadata
    return said


_PARTS_OUT: dict[type[AnyPart], Callable[[Any], tuple[str, Any]]] = {
    Text: lambda part: ("text", part.text),
    Blob: lambda part: ("raw", part.content),
    Link: lambda part: ("url", part.url),
    Data: lambda part: ("data", value_out(part.value)),
}


WORDS = GrpcEncoder(
    part_in=part_in,
    part_out=part_out,
    parts="parts",
    said="message",
    message="message",
    link=".url",
    final=False,
)


def hook_in(config: Proto, path: str = "") -> Hook:
    if not config.url:
        raise Wrong("Expected a URL", f"{path}.url")
    authentication = config.authentication
    return Hook(
        hook_id=config.id,
        task_id=config.task_id,
        url=config.url,
        token=config.token,
        scheme=authentication.scheme,
        credentials=authentication.credentials,
    )


def hook_out(hook: Hook) -> Fields:
    said: Fields = {
        "id": hook.hook_id,
        "task_id": hook.task_id,
        "url": hook.url,
        "token": hook.token,
    }
    if hook.scheme or hook.credentials:
        said["authentication"] = {"scheme": hook.scheme, "credentials": hook.credentials}
    return said


# What is asked


def send_in(request: Proto) -> SendMessage:
    said = WORDS.request_in(request, "message")
    if not request.HasField("configuration"):
        return SendMessage(message=said, metadata=bag_in(request))
    options = request.configuration
    hook = None
    if options.HasField("task_push_notification_config"):
        config = options.task_push_notification_config
        hook = hook_in(config, ".configuration.taskPushNotificationConfig")
    return SendMessage(
        message=said,
        wait=not options.return_immediately,
        history_length=counted(options, "history_length", ".configuration.historyLength"),
        accepts=tuple(options.accepted_output_modes),
        hook=hook,
        metadata=bag_in(request),
    )


def get_in(request: Proto) -> GetTask:
    return GetTask(task_id=id_in(request), history_length=counted(request, "history_length"))


def id_in(request: Proto) -> str:
    return needed(request.id, "a task id", ".id")


def list_in(request: Proto) -> ListTasks:
    if request.status >= len(STATES):
        raise Wrong(f"Unknown state {request.status}", ".status")
    size = counted(request, "page_size", ".pageSize", 1, 100)
    return ListTasks(
        context_id=request.context_id,
        state=STATES[request.status] if request.status else None,
        since=stamp_in(request, "status_timestamp_after"),
        page_size=50 if size is None else size,
        page_token=request.page_token,
        history_length=counted(request, "history_length"),
        with_artifacts=request.include_artifacts,
    )


def cancel_in(request: Proto) -> CancelTask:
    return CancelTask(task_id=id_in(request), metadata=bag_in(request))


def watch_in(request: Proto) -> Watch:
    return Watch(task_id=id_in(request))


def set_hook_in(config: Proto) -> SetHook:
    task_in(config)
    return SetHook(hook=hook_in(config))


def task_in(request: Proto) -> str:
    return needed(request.task_id, "a task id", ".taskId")


def get_hook_in(request: Proto) -> GetHook:
    # An id is required, but whoever knows only the task gets its first, as in 0.2.
    return GetHook(task_id=task_in(request), hook_id=request.id)


def list_hooks_in(request: Proto) -> ListHooks:
    return ListHooks(
        task_id=task_in(request),
        page_size=count_in(request.page_size, ".pageSize"),
        page_token=request.page_token,
    )


def delete_hook_in(request: Proto) -> DeleteHook:
    return DeleteHook(task_id=task_in(request), hook_id=needed(request.id, "an id", ".id"))


def extended_in(request: Proto) -> GetExtendedCard:
    return GetExtendedCard()


# What is answered


def page_out(page: TaskPage) -> Fields:
    return {**WORDS.page_out(page), "page_size": page.page_size}


def hooks_out(page: HookPage) -> Fields:
    return {"configs": list(map(hook_out, page.hooks)), "next_page_token": page.next_token}


def card_out(card: Card) -> Fields:
    return cards.card_1_0(card)


PACKAGE = "lf.a2a.v1"


def _rpc(
    request: str,
    op_in: Callable[[Proto], Operation[Any]],
    response: str,
    answer_out: Callable[[Any], Fields],
    *,
    stream: bool = False,
) -> Rpc:
    return rpc(f"{PACKAGE}.{request}", op_in, f"{PACKAGE}.{response}", answer_out, stream=stream)


_CONFIG = "TaskPushNotificationConfig"
SERVICE = Service(
    name=f"{PACKAGE}.A2AService",
    dialect=DIALECT,
    version="1.0",
    step=writer(f"{PACKAGE}.StreamResponse"),
    words=WORDS,
    rpcs={
        "SendMessage": _rpc("SendMessageRequest", send_in, "SendMessageResponse", WORDS.sent_out),
        "SendStreamingMessage": _rpc(
            "SendMessageRequest", send_in, "SendMessageResponse", WORDS.sent_out, stream=True
        ),
        "GetTask": _rpc("GetTaskRequest", get_in, "Task", WORDS.task_out),
        "ListTasks": _rpc("ListTasksRequest", list_in, "ListTasksResponse", page_out),
        "CancelTask": _rpc("CancelTaskRequest", cancel_in, "Task", WORDS.task_out),
        "SubscribeToTask": _rpc(
            "SubscribeToTaskRequest", watch_in, "Task", WORDS.task_out, stream=True
        ),
        f"Create{_CONFIG}": _rpc(_CONFIG, set_hook_in, _CONFIG, hook_out),
        f"Get{_CONFIG}": _rpc(f"Get{_CONFIG}Request", get_hook_in, _CONFIG, hook_out),
        f"List{_CONFIG}s": _rpc(
            f"List{_CONFIG}sRequest", list_hooks_in, f"List{_CONFIG}sResponse", hooks_out
        ),
        "GetExtendedAgentCard": _rpc(
            "GetExtendedAgentCardRequest", extended_in, "AgentCard", card_out
        ),
        f"Delete{_CONFIG}": Rpc(
            reader(f"{PACKAGE}.Delete{_CONFIG}Request"),
            delete_hook_in,
            writer("google.protobuf.Empty"),
            nothing_out,
        ),
    },
)
