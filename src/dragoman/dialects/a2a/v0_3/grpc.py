"""A2A 0.3 as protobuf (a2a.v1): its parts, its requests, and the table of its rpcs.

Tasks are named `tasks/{id}`, and the bytes of a file are sent as base64 text. A number that is 0
was not given, and a `blocking` that is false may not have been given either, so it does not wait
(D7). Therefore a history length of 0 cannot be requested, and a cancel can hold nothing but the
name of the task. Values for which 0.3 has no place are kept in the metadata of parts, as over
JSON-RPC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from dragoman.core import operations as ops
from dragoman.core.model import AnyPart, Blob, Data, Hook, Json, Link, Text
from dragoman.core.operations import SendMessage

from ..grpc import cards
from ..grpc.decode import task_in as whole_in
from ..grpc.encode import GrpcEncoder
from ..grpc.service import CONFIG, list_question, service
from ..proto import Fields, Proto, bag_in, needed, object_in
from ..scalars import Wrong, base64_out, count_in
from . import files
from .convert import pack_names, unpack_names, unwrap_value, wrap_value

# Parts


def part_in(part: Proto) -> AnyPart:
    kind, metadata = part.WhichOneof("part"), bag_in(part)
    match kind:
        case "file":
            return file_in(part.file, metadata)
        case "text":
            filename, media_type, metadata = unpack_names(metadata)
            return Text(part.text, filename=filename, media_type=media_type, metadata=metadata)
        case "data":
            filename, media_type, metadata = unpack_names(metadata)
            value, metadata = unwrap_value(object_in(part.data.data), metadata)
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
    """Returns how the bytes of each file were interpreted, for the log."""
    return files.notes(
        (index, part.file.file_with_bytes, part.file.mime_type)
        for index, part in enumerate(request.request.content)
        if part.WhichOneof("part") == "file"
    )


def part_out(part: AnyPart) -> Fields:
    if isinstance(part, Text):
        return {"text": part.text, "metadata": pack_names(part)}
    if isinstance(part, Data):
        value, metadata = wrap_value(part.value, pack_names(part))
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
    status_message="update",
    message="msg",
    link=".file.file_with_uri",
    final=True,
)

# Names

_TASK = re.compile(r"tasks/([^/]+)(?:/pushNotificationConfigs/?)?").fullmatch
_CONFIG = re.compile(r"tasks/([^/]+)/pushNotificationConfigs/([^/]+)").fullmatch


def task_in(name: str, path: str = ".name") -> str:
    """Returns the id in `tasks/{id}`. Some clients send the bare id."""
    if found := _TASK(name):
        return found[1]
    if "/" in name:
        raise Wrong("Expected `tasks/{id}`", path)
    return needed(name, "`tasks/{id}`", path)


def config_in(name: str, path: str = ".name") -> tuple[str, str]:
    """Returns the task and the webhook in `tasks/{id}/pushNotificationConfigs/{id}`."""
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


# Requests


def send_in(request: Proto) -> SendMessage:
    message = WORDS.request_in(request, "request")
    options = request.configuration
    hook = None
    if options.HasField("push_notification"):
        config = options.push_notification
        hook = hook_in(config, message.task_id, "", ".configuration.pushNotification")
    return SendMessage(
        message=message,
        wait=options.blocking,
        history_length=length_in(options, ".configuration.historyLength"),
        accepts=tuple(options.accepted_output_modes),
        hook=hook,
        metadata=bag_in(request),
    )


def send_out(op: SendMessage) -> Fields:
    hook = op.hook
    return {
        "request": WORDS.message_out(op.message),
        "configuration": {
            "accepted_output_modes": op.accepts,
            "history_length": op.history_length,
            "blocking": op.wait,
            "push_notification": hook_out(hook)["push_notification_config"] if hook else None,
        },
        "metadata": op.metadata,
    }


def length_in(message: Proto, path: str = ".historyLength") -> int | None:
    return count_in(message.history_length, path) or None


def size_in(request: Proto) -> int:
    return count_in(request.page_size, ".pageSize", 0, 100)


def get_in(request: Proto) -> ops.GetTask:
    return ops.GetTask(task_id=task_in(request.name), history_length=length_in(request))


def get_out(op: ops.GetTask) -> Fields:
    return {**name_out(op), "history_length": op.history_length}


def cancel_in(request: Proto) -> ops.CancelTask:
    return ops.CancelTask(task_id=task_in(request.name))


def watch_in(request: Proto) -> ops.Watch:
    return ops.Watch(task_id=task_in(request.name))


def name_out(op: ops.GetTask | ops.CancelTask | ops.Watch) -> Fields:
    return {"name": f"tasks/{op.task_id}"}


def set_hook_in(request: Proto) -> ops.SetHook:
    task_id = task_in(request.parent, ".parent")
    config = request.config.push_notification_config
    path = ".config.pushNotificationConfig"
    return ops.SetHook(hook=hook_in(config, task_id, request.config_id, path))


def set_hook_out(op: ops.SetHook) -> Fields:
    hook = op.hook
    parent = f"tasks/{hook.task_id}"
    return {"parent": parent, "config_id": hook.hook_id, "config": hook_out(hook)}


def get_hook_in(request: Proto) -> ops.GetHook:
    if found := _TASK(request.name):  # the first one, as in 0.2
        return ops.GetHook(task_id=found[1])
    task_id, hook_id = config_in(request.name)
    return ops.GetHook(task_id=task_id, hook_id=hook_id)


def delete_hook_in(request: Proto) -> ops.DeleteHook:
    task_id, hook_id = config_in(request.name)
    return ops.DeleteHook(task_id=task_id, hook_id=hook_id)


def one_hook_out(op: ops.GetHook | ops.DeleteHook) -> Fields:
    task = f"tasks/{op.task_id}"
    return {"name": f"{task}/pushNotificationConfigs/{op.hook_id}" if op.hook_id else task}


def list_hooks_in(request: Proto) -> ops.ListHooks:
    return ops.ListHooks(
        task_id=task_in(request.parent, ".parent"),
        page_size=count_in(request.page_size, ".pageSize"),
        page_token=request.page_token,
    )


def list_hooks_out(op: ops.ListHooks) -> Fields:
    parent = f"tasks/{op.task_id}"
    return {"parent": parent, "page_size": op.page_size, "page_token": op.page_token}


# Responses


def page_in(page: Proto) -> ops.TaskPage:
    """Reads a page. 0.3 does not tell how many tasks a page could hold."""
    tasks = tuple(whole_in(WORDS, each) for each in page.tasks)
    return ops.TaskPage(tasks, page.next_page_token, len(tasks), page.total_size)


def named_hook_in(config: Proto) -> Hook:
    task_id, _, hook_id = config.name.removeprefix("tasks/").partition("/pushNotificationConfigs/")
    return hook_in(config.push_notification_config, task_id, hook_id, "")


SERVICE = service(
    *("a2a.v1", "0.3", WORDS),
    send=(send_in, send_out),
    notes=file_notes,
    get=(get_in, get_out),
    list_tasks=list_question("last_updated_time", size_in, length_in),
    page=(WORDS.page_out, page_in),
    cancel=(cancel_in, name_out),
    watch=("TaskSubscription", (watch_in, name_out)),
    set_hook=(f"Create{CONFIG}Request", (set_hook_in, set_hook_out)),
    one_hook=((get_hook_in, one_hook_out), (delete_hook_in, one_hook_out)),
    list_hooks=(f"List{CONFIG}", (list_hooks_in, list_hooks_out)),
    hook=(hook_out, named_hook_in),
    card=("GetAgentCard", cards.card_0_3),
    aliases={
        # Drafts between 0.3 and 1.0, still in this package. ListTasks is one, too.
        "SubscribeToTask": "TaskSubscription",
        "GetExtendedAgentCard": "GetAgentCard",
        f"Set{CONFIG}": f"Create{CONFIG}",
        # It is in the text of 0.3 (§3.5.6) but not in its proto.
        "ListTask": "ListTasks",
        **{
            f"{verb}TaskPushNotification": f"{verb}{CONFIG}"
            for verb in ("Create", "Get", "List", "Delete")
        },
    },
)
