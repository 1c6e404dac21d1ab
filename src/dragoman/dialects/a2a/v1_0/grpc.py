"""A2A 1.0 as protobuf (lf.a2a.v1): its parts, its requests, and the table of its rpcs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dragoman.core import operations as ops
from dragoman.core.model import AnyPart, Blob, Data, Hook, Link, Text
from dragoman.core.operations import SendMessage

from ..grpc import cards
from ..grpc.decode import task_in
from ..grpc.encode import GrpcEncoder
from ..grpc.service import CONFIG, list_question, service
from ..proto import Fields, Proto, bag_in, counted, needed, value_in, value_out
from ..scalars import Wrong, count_in

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
    fields = {field: value}
    if part.filename:
        fields["filename"] = part.filename
    if part.media_type:
        fields["media_type"] = part.media_type
    if part.metadata is not None:
        fields["metadata"] = part.metadata
    return fields


_PARTS_OUT: dict[type[AnyPart], Callable[[Any], tuple[str, Any]]] = {
    Text: lambda part: ("text", part.text),
    Blob: lambda part: ("raw", part.content),
    Link: lambda part: ("url", part.url),
    Data: lambda part: ("data", value_out(part.value)),
}


WORDS = GrpcEncoder(part_in=part_in, part_out=part_out, link=".url")


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
    fields: Fields = {
        "id": hook.hook_id,
        "task_id": hook.task_id,
        "url": hook.url,
        "token": hook.token,
    }
    if hook.scheme or hook.credentials:
        fields["authentication"] = {"scheme": hook.scheme, "credentials": hook.credentials}
    return fields


# Requests


def send_in(request: Proto) -> SendMessage:
    message = WORDS.request_in(request, "message")
    if not request.HasField("configuration"):
        return SendMessage(message=message, metadata=bag_in(request))
    options = request.configuration
    hook = None
    if options.HasField("task_push_notification_config"):
        config = options.task_push_notification_config
        hook = hook_in(config, ".configuration.taskPushNotificationConfig")
    return SendMessage(
        message=message,
        wait=not options.return_immediately,
        history_length=counted(options, "history_length", ".configuration.historyLength"),
        accepts=tuple(options.accepted_output_modes),
        hook=hook,
        metadata=bag_in(request),
    )


def send_out(op: SendMessage) -> Fields:
    return {
        "message": WORDS.message_out(op.message),
        "configuration": {
            "accepted_output_modes": op.accepts,
            "history_length": op.history_length,
            "return_immediately": not op.wait,
            "task_push_notification_config": hook_out(op.hook) if op.hook is not None else None,
        },
        "metadata": op.metadata,
    }


def id_in(request: Proto) -> str:
    return needed(request.id, "a task id", ".id")


def get_in(request: Proto) -> ops.GetTask:
    return ops.GetTask(task_id=id_in(request), history_length=counted(request, "history_length"))


def get_out(op: ops.GetTask) -> Fields:
    return {"id": op.task_id, "history_length": op.history_length}


def cancel_in(request: Proto) -> ops.CancelTask:
    return ops.CancelTask(task_id=id_in(request), metadata=bag_in(request))


def cancel_out(op: ops.CancelTask) -> Fields:
    return {"id": op.task_id, "metadata": op.metadata}


def watch_in(request: Proto) -> ops.Watch:
    return ops.Watch(task_id=id_in(request))


def watch_out(op: ops.Watch) -> Fields:
    return {"id": op.task_id}


def hook_task_in(request: Proto) -> str:
    return needed(request.task_id, "a task id", ".taskId")


def set_hook_in(config: Proto) -> ops.SetHook:
    hook_task_in(config)
    return ops.SetHook(hook=hook_in(config))


def set_hook_out(op: ops.SetHook) -> Fields:
    return hook_out(op.hook)


def get_hook_in(request: Proto) -> ops.GetHook:
    # An id is required, but a caller that knows only the task gets its first webhook, as in 0.2.
    return ops.GetHook(task_id=hook_task_in(request), hook_id=request.id)


def delete_hook_in(request: Proto) -> ops.DeleteHook:
    task_id = hook_task_in(request)
    return ops.DeleteHook(task_id=task_id, hook_id=needed(request.id, "an id", ".id"))


def one_hook_out(op: ops.GetHook | ops.DeleteHook) -> Fields:
    return {"task_id": op.task_id, "id": op.hook_id}


def list_hooks_in(request: Proto) -> ops.ListHooks:
    return ops.ListHooks(
        task_id=hook_task_in(request),
        page_size=count_in(request.page_size, ".pageSize"),
        page_token=request.page_token,
    )


def list_hooks_out(op: ops.ListHooks) -> Fields:
    return {"task_id": op.task_id, "page_size": op.page_size, "page_token": op.page_token}


# Responses


def page_out(page: ops.TaskPage) -> Fields:
    return {**WORDS.page_out(page), "page_size": page.page_size}


def page_in(page: Proto) -> ops.TaskPage:
    tasks = tuple(task_in(WORDS, each) for each in page.tasks)
    return ops.TaskPage(tasks, page.next_page_token, page.page_size, page.total_size)


SERVICE = service(
    *("lf.a2a.v1", "1.0", WORDS),
    send=(send_in, send_out),
    get=(get_in, get_out),
    list_tasks=list_question(
        "status_timestamp_after",
        partial(counted, field="page_size", path=".pageSize", low=1, high=100),
        partial(counted, field="history_length"),
    ),
    page=(page_out, page_in),
    cancel=(cancel_in, cancel_out),
    watch=("SubscribeToTask", (watch_in, watch_out)),
    set_hook=(CONFIG, (set_hook_in, set_hook_out)),
    one_hook=((get_hook_in, one_hook_out), (delete_hook_in, one_hook_out)),
    list_hooks=(f"List{CONFIG}s", (list_hooks_in, list_hooks_out)),
    hook=(hook_out, hook_in),
    card=("GetExtendedAgentCard", cards.card_1_0),
    tenants=True,
)
