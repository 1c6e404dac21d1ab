"""A2A 0.3 as protobuf (a2a.v1), on the side that asks: the table of its rpcs.

A history length of 0 cannot be asked for, nor can a cancel say anything beside the task's name.
"""

from __future__ import annotations

from functools import partial

from dragoman.core.model import Hook
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
from . import grpc as heard
from .grpc import PACKAGE, SERVICE, WORDS, hook_out

# What is asked


def send_out(op: SendMessage) -> Fields:
    hook = op.hook
    return {
        "request": WORDS.message_out(op.message),
        "configuration": {
            "accepted_output_modes": op.accepts,
            "history_length": op.history_length or 0,
            "blocking": op.wait,
            "push_notification": hook_out(hook)["push_notification_config"] if hook else None,
        },
        "metadata": op.metadata,
    }


def get_out(op: GetTask) -> Fields:
    return {**named_out(op), "history_length": op.history_length or 0}


def list_out(op: ListTasks) -> Fields:
    return {
        "context_id": op.context_id,
        "status": NUMBERS[op.state] if op.state is not None else 0,
        "page_size": op.page_size,
        "page_token": op.page_token,
        "history_length": op.history_length or 0,
        "last_updated_time": stamp_out(op.since) if op.since is not None else None,
        "include_artifacts": op.with_artifacts,
    }


def named_out(op: GetTask | CancelTask | Watch) -> Fields:
    return {"name": f"tasks/{op.task_id}"}


def set_hook_out(op: SetHook) -> Fields:
    hook = op.hook
    return {
        "parent": f"tasks/{hook.task_id}",
        "config_id": hook.hook_id,
        "config": hook_out(hook),
    }


def hook_named_out(op: GetHook | DeleteHook) -> Fields:
    task = f"tasks/{op.task_id}"
    return {"name": f"{task}/pushNotificationConfigs/{op.hook_id}" if op.hook_id else task}


def list_hooks_out(op: ListHooks) -> Fields:
    return {
        "parent": f"tasks/{op.task_id}",
        "page_size": op.page_size,
        "page_token": op.page_token,
    }


def extended_out(op: GetExtendedCard) -> Fields:
    return {}


# What is answered


def page_in(page: Proto) -> TaskPage:
    """0.3 does not tell how many a page could hold."""
    tasks = tuple(task_in(WORDS, each) for each in page.tasks)
    return TaskPage(tasks, page.next_page_token, len(tasks), page.total_size)


def hook_in(told: Proto) -> Hook:
    task_id, _, hook_id = told.name.removeprefix("tasks/").partition("/pushNotificationConfigs/")
    return heard.hook_in(told.push_notification_config, task_id, hook_id, "")


def hooks_in(page: Proto) -> HookPage:
    return HookPage(tuple(map(hook_in, page.configs)), page.next_page_token)


_ask = partial(asking, PACKAGE)
_task_in, _sent_in = partial(task_in, WORDS), partial(sent_in, WORDS)
_CONFIG = "TaskPushNotificationConfig"
ASKED = AskedService(
    service=SERVICE.name,
    version=SERVICE.version,
    extensions_header="x-a2a-extensions",
    words=WORDS,
    tenants=False,
    step=reader(f"{PACKAGE}.StreamResponse", ANY),
    calls={
        SendMessage: _ask(
            "SendMessage", "SendMessageRequest", send_out, "SendMessageResponse", _sent_in
        ),
        GetTask: _ask("GetTask", "GetTaskRequest", get_out, "Task", _task_in),
        ListTasks: _ask("ListTasks", "ListTasksRequest", list_out, "ListTasksResponse", page_in),
        CancelTask: _ask("CancelTask", "CancelTaskRequest", named_out, "Task", _task_in),
        SetHook: _ask(
            f"Create{_CONFIG}", f"Create{_CONFIG}Request", set_hook_out, _CONFIG, hook_in
        ),
        GetHook: _ask(f"Get{_CONFIG}", f"Get{_CONFIG}Request", hook_named_out, _CONFIG, hook_in),
        ListHooks: _ask(
            f"List{_CONFIG}",
            f"List{_CONFIG}Request",
            list_hooks_out,
            f"List{_CONFIG}Response",
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
            "GetAgentCard", "GetAgentCardRequest", extended_out, "AgentCard", card_in
        ),
    },
    streams={
        SendMessage: _ask(
            "SendStreamingMessage", "SendMessageRequest", send_out, "StreamResponse", _sent_in
        ),
        Watch: _ask(
            "TaskSubscription", "TaskSubscriptionRequest", named_out, "StreamResponse", _sent_in
        ),
    },
)
