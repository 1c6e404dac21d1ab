"""A2A 0.3 as protobuf (a2a.v1): its parts, what it asks, and the table of its rpcs.

Tasks are named `tasks/{id}`; the bytes of a file travel as base64 text; a number that is 0 was not
given, and a `blocking` that is false may not have been given either, so it does not wait (D7). What
0.3 has no place for lives in the metadata of parts, as over JSON-RPC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from dragoman.core.card import Card
from dragoman.core.model import AnyPart, Blob, Data, Hook, Json, Link, Text
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
    Watch,
)

from ..grpc import cards
from ..grpc.encode import STATES, GrpcEncoder, nothing_out
from ..grpc.service import Rpc, Service, rpc
from ..proto import Fields, Proto, bag_in, needed, object_in, reader, stamp_in, writer
from ..scalars import Wrong, base64_out, count_in
from . import files
from .convert import dressed, undressed, unwrapped, wrapped

DIALECT = "a2a-0.3"

# Parts


def part_in(part: Proto) -> AnyPart:
    kind, metadata = part.WhichOneof("part"), bag_in(part)
    match kind:
        case "file":
            return file_in(part.file, metadata)
        case "text":
            filename, media_type, metadata = undressed(metadata)
            return Text(part.text, filename=filename, media_type=media_type, metadata=metadata)
        case "data":
            filename, media_type, metadata = undressed(metadata)
            value, metadata = unwrapped(object_in(part.data.data), metadata)
            return Data(value, filename=filename, media_type=media_type, metadata=metadata)
    raise Wrong("Expected exactly one of `text`, `file`, `data`")


def file_in(file: Proto, metadata: dict[str, Json] | None) -> AnyPart:
    kind, name, mime_type = file.WhichOneof("file"), file.name, file.mime_type
    if kind == "file_with_uri":
        return Link(file.file_with_uri, filename=name, media_type=mime_type, metadata=metadata)
    if kind == "file_with_bytes":
        content = files.bytes_in(file.file_with_bytes, mime_type)
        return Blob(content, filename=name, media_type=mime_type, metadata=metadata)
    raise Wrong("Expected one of `file_with_uri`, `file_with_bytes`", ".file")


def file_notes(request: Proto) -> Iterator[Mapping[str, Json]]:
    """For the log: how the bytes of each file were taken."""
    return files.notes(
        (index, part.file.file_with_bytes, part.file.mime_type)
        for index, part in enumerate(request.request.content)
        if part.WhichOneof("part") == "file"
    )


def part_out(part: AnyPart) -> Fields:
    if isinstance(part, Text):
        return {"text": part.text, "metadata": dressed(part)}
    if isinstance(part, Data):
        value, metadata = wrapped(part.value, dressed(part))
        return {"data": {"data": value}, "metadata": metadata}
    file: Fields = {"name": part.filename, "mime_type": part.media_type}
    if isinstance(part, Blob):
        file["file_with_bytes"] = base64_out(part.content).encode("ascii")
    else:
        file["file_with_uri"] = part.url
    return {"file": file, "metadata": part.metadata}


WORDS = GrpcEncoder(
    part_in=part_in,
    part_out=part_out,
    parts="content",
    said="update",
    message="msg",
    link=".file.file_with_uri",
    final=True,
)

# Names

_TASK = re.compile(r"tasks/([^/]+)(?:/pushNotificationConfigs/?)?").fullmatch
_CONFIG = re.compile(r"tasks/([^/]+)/pushNotificationConfigs/([^/]+)").fullmatch


def task_in(name: str, path: str = ".name") -> str:
    """The id in `tasks/{id}`. Some clients send the bare id."""
    if found := _TASK(name):
        return found[1]
    if "/" in name:
        raise Wrong("Expected `tasks/{id}`", path)
    return needed(name, "`tasks/{id}`", path)


def config_in(name: str, path: str = ".name") -> tuple[str, str]:
    """Task and webhook in `tasks/{id}/pushNotificationConfigs/{id}`."""
    if found := _CONFIG(name):
        return found[1], found[2]
    raise Wrong("Expected `tasks/{id}/pushNotificationConfigs/{id}`", path)


# Webhooks


def hook_in(config: Proto, task_id: str, hook_id: str, path: str) -> Hook:
    authentication = config.authentication
    scheme, *others = authentication.schemes or ("",)
    return Hook(
        hook_id=config.id or hook_id,
        task_id=task_id,
        url=needed(config.url, "a URL", f"{path}.url"),
        token=config.token,
        scheme=scheme,
        credentials=authentication.credentials,
        other_schemes=tuple(others),
    )


def hook_out(hook: Hook) -> Fields:
    config: Fields = {"id": hook.hook_id, "url": hook.url, "token": hook.token}
    if hook.schemes or hook.credentials:
        config["authentication"] = {"schemes": hook.schemes, "credentials": hook.credentials}
    return {
        "name": f"tasks/{hook.task_id}/pushNotificationConfigs/{hook.hook_id}",
        "push_notification_config": config,
    }


# What is asked


def send_in(request: Proto) -> SendMessage:
    said = WORDS.request_in(request, "request")
    options = request.configuration
    hook = None
    if options.HasField("push_notification"):
        config = options.push_notification
        hook = hook_in(config, said.task_id, "", ".configuration.pushNotification")
    return SendMessage(
        message=said,
        wait=options.blocking,
        history_length=length_in(options, ".configuration.historyLength"),
        accepts=tuple(options.accepted_output_modes),
        hook=hook,
        metadata=bag_in(request),
    )


def length_in(message: Proto, path: str = ".historyLength") -> int | None:
    return count_in(message.history_length, path) or None


def get_in(request: Proto) -> GetTask:
    return GetTask(task_id=task_in(request.name), history_length=length_in(request))


def list_in(request: Proto) -> ListTasks:
    if request.status >= len(STATES):
        raise Wrong(f"Unknown state {request.status}", ".status")
    return ListTasks(
        context_id=request.context_id,
        state=STATES[request.status] if request.status else None,
        since=stamp_in(request, "last_updated_time"),
        page_size=count_in(request.page_size, ".pageSize", 0, 100) or 50,
        page_token=request.page_token,
        history_length=length_in(request),
        with_artifacts=request.include_artifacts,
    )


def cancel_in(request: Proto) -> CancelTask:
    return CancelTask(task_id=task_in(request.name))


def watch_in(request: Proto) -> Watch:
    return Watch(task_id=task_in(request.name))


def set_hook_in(request: Proto) -> SetHook:
    task_id = task_in(request.parent, ".parent")
    config = request.config.push_notification_config
    path = ".config.pushNotificationConfig"
    return SetHook(hook=hook_in(config, task_id, request.config_id, path))


def get_hook_in(request: Proto) -> GetHook:
    if found := _TASK(request.name):  # the first one, as in 0.2
        return GetHook(task_id=found[1])
    task_id, hook_id = config_in(request.name)
    return GetHook(task_id=task_id, hook_id=hook_id)


def list_hooks_in(request: Proto) -> ListHooks:
    return ListHooks(
        task_id=task_in(request.parent, ".parent"),
        page_size=count_in(request.page_size, ".pageSize"),
        page_token=request.page_token,
    )


def delete_hook_in(request: Proto) -> DeleteHook:
    task_id, hook_id = config_in(request.name)
    return DeleteHook(task_id=task_id, hook_id=hook_id)


def extended_in(request: Proto) -> GetExtendedCard:
    return GetExtendedCard()


# What is answered


def hooks_out(page: HookPage) -> Fields:
    return {"configs": list(map(hook_out, page.hooks)), "next_page_token": page.next_token}


def card_out(card: Card) -> Fields:
    return cards.card_0_3(card)


PACKAGE = "a2a.v1"


def _rpc(
    request: str,
    op_in: Callable[[Proto], Operation[Any]],
    response: str,
    answer_out: Callable[[Any], Fields],
    *,
    stream: bool = False,
) -> Rpc:
    return rpc(f"{PACKAGE}.{request}", op_in, f"{PACKAGE}.{response}", answer_out, stream=stream)


_HOOK = "TaskPushNotificationConfig"
_SEND = replace(
    _rpc("SendMessageRequest", send_in, "SendMessageResponse", WORDS.sent_out), notes=file_notes
)
_WATCH = _rpc("TaskSubscriptionRequest", watch_in, "Task", WORDS.task_out, stream=True)
_CARD = _rpc("GetAgentCardRequest", extended_in, "AgentCard", card_out)
_LIST = _rpc("ListTasksRequest", list_in, "ListTasksResponse", WORDS.page_out)
_SET_HOOK = _rpc(f"Create{_HOOK}Request", set_hook_in, _HOOK, hook_out)
_GET_HOOK = _rpc(f"Get{_HOOK}Request", get_hook_in, _HOOK, hook_out)
_LIST_HOOKS = _rpc(f"List{_HOOK}Request", list_hooks_in, f"List{_HOOK}Response", hooks_out)
_DELETE_HOOK = Rpc(
    reader(f"{PACKAGE}.Delete{_HOOK}Request"),
    delete_hook_in,
    writer("google.protobuf.Empty"),
    nothing_out,
)
SERVICE = Service(
    name=f"{PACKAGE}.A2AService",
    dialect=DIALECT,
    version="0.3",
    step=writer(f"{PACKAGE}.StreamResponse"),
    words=WORDS,
    rpcs={
        "SendMessage": _SEND,
        "SendStreamingMessage": replace(_SEND, stream=True),
        "GetTask": _rpc("GetTaskRequest", get_in, "Task", WORDS.task_out),
        "CancelTask": _rpc("CancelTaskRequest", cancel_in, "Task", WORDS.task_out),
        "TaskSubscription": _WATCH,
        f"Create{_HOOK}": _SET_HOOK,
        f"Get{_HOOK}": _GET_HOOK,
        f"List{_HOOK}": _LIST_HOOKS,
        "GetAgentCard": _CARD,
        f"Delete{_HOOK}": _DELETE_HOOK,
        # Named by 0.3's text (§3.5.6) and not by its proto.
        "ListTask": _LIST,
        "CreateTaskPushNotification": _SET_HOOK,
        "GetTaskPushNotification": _GET_HOOK,
        "ListTaskPushNotification": _LIST_HOOKS,
        "DeleteTaskPushNotification": _DELETE_HOOK,
        # Drafts between 0.3 and 1.0, still in this package.
        "ListTasks": _LIST,
        "SubscribeToTask": _WATCH,
        "GetExtendedAgentCard": _CARD,
        f"Set{_HOOK}": _SET_HOOK,
    },
)
