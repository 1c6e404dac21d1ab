"""A2A 1.0 as protobuf (lf.a2a.v1), on the side that asks: the table of its rpcs."""

from __future__ import annotations

from functools import partial

from dragoman.core.operations import (
    CancelTask,
    DeleteHook,
    GetExtendedCard,
    GetHook,
    GetTask,
    HookPage,
    ListHooks,
    ListTasks,
    SendMessage,
    SetHook,
    TaskPage,
    Watch,
)

from ..grpc.decode import AskedService, asking, card_in, nothing_in, sent_in, task_in
from ..grpc.encode import NUMBERS
from ..proto import ANY, Fields, Proto, reader, stamp_out
from .grpc import PACKAGE, SERVICE, WORDS, hook_in, hook_out

# What is asked


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


def get_out(op: GetTask) -> Fields:
    return {"id": op.task_id, "history_length": op.history_length}


def list_out(op: ListTasks) -> Fields:
    return {
        "context_id": op.context_id,
        "status": NUMBERS[op.state] if op.state is not None else 0,
        "page_size": op.page_size,
        "page_token": op.page_token,
        "history_length": op.history_length,
        "status_timestamp_after": stamp_out(op.since) if op.since is not None else None,
        "include_artifacts": op.with_artifacts,
    }


def cancel_out(op: CancelTask) -> Fields:
    return {"id": op.task_id, "metadata": op.metadata}


def watch_out(op: Watch) -> Fields:
    return {"id": op.task_id}


def set_hook_out(op: SetHook) -> Fields:
    return hook_out(op.hook)


def hook_named_out(op: GetHook | DeleteHook) -> Fields:
    return {"task_id": op.task_id, "id": op.hook_id}


def list_hooks_out(op: ListHooks) -> Fields:
    return {"task_id": op.task_id, "page_size": op.page_size, "page_token": op.page_token}


def extended_out(op: GetExtendedCard) -> Fields:
    return {}


# What is answered


def page_in(page: Proto) -> TaskPage:
    tasks = tuple(task_in(WORDS, each) for each in page.tasks)
    return TaskPage(tasks, page.next_page_token, page.page_size, page.total_size)


def hooks_in(page: Proto) -> HookPage:
    return HookPage(tuple(map(hook_in, page.configs)), page.next_page_token)


_ask = partial(asking, PACKAGE)
_task_in, _sent_in = partial(task_in, WORDS), partial(sent_in, WORDS)
_CONFIG = "TaskPushNotificationConfig"
ASKED = AskedService(
    service=SERVICE.name,
    version=SERVICE.version,
    extensions_header="a2a-extensions",
    words=WORDS,
    tenants=True,
    step=reader(f"{PACKAGE}.StreamResponse", ANY),
    calls={
        SendMessage: _ask(
            "SendMessage", "SendMessageRequest", send_out, "SendMessageResponse", _sent_in
        ),
        GetTask: _ask("GetTask", "GetTaskRequest", get_out, "Task", _task_in),
        ListTasks: _ask("ListTasks", "ListTasksRequest", list_out, "ListTasksResponse", page_in),
        CancelTask: _ask("CancelTask", "CancelTaskRequest", cancel_out, "Task", _task_in),
        SetHook: _ask(f"Create{_CONFIG}", _CONFIG, set_hook_out, _CONFIG, hook_in),
        GetHook: _ask(f"Get{_CONFIG}", f"Get{_CONFIG}Request", hook_named_out, _CONFIG, hook_in),
        ListHooks: _ask(
            f"List{_CONFIG}s",
            f"List{_CONFIG}sRequest",
            list_hooks_out,
            f"List{_CONFIG}sResponse",
            hooks_in,
        ),
        DeleteHook: _ask(
            f"Delete{_CONFIG}",
            f"Delete{_CONFIG}Request",
            hook_named_out,
            "google.protobuf.Empty",
            nothing_in,
        ),
        GetExtendedCard: _ask(
            "GetExtendedAgentCard",
            "GetExtendedAgentCardRequest",
            extended_out,
            "AgentCard",
            card_in,
        ),
    },
    streams={
        SendMessage: _ask(
            "SendStreamingMessage", "SendMessageRequest", send_out, "StreamResponse", _sent_in
        ),
        Watch: _ask(
            "SubscribeToTask", "SubscribeToTaskRequest", watch_out, "StreamResponse", _sent_in
        ),
    },
)
