"""A2A 1.0's webhooks (push notification configs): the methods that set, show and end them."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from dragoman.core.model import Hook
from dragoman.core.operations import DeleteHook, GetHook, HookPage, ListHooks, SetHook

from ..scalars import Wrong, count_in, each
from ..version import method
from . import wire


def hook_in(config: wire.PushConfig) -> Hook:
    told = config.authentication or _NOBODY
    return Hook(
        hook_id=config.id or "",
        task_id=config.task_id or config.task_id_,
        url=config.url or "",
        token=config.token or "",
        scheme=told.scheme or "",
        credentials=told.credentials or "",
    )


def hook_out(hook: Hook) -> wire.PushConfig:
    told = wire.Authentication(hook.scheme, hook.credentials)
    return wire.PushConfig(
        hook.hook_id,
        hook.task_id,
        hook.url,
        hook.token,
        told if told != _NOBODY else None,
    )


_NOBODY = wire.Authentication("", "")


def inline_in(config: wire.PushConfig | None) -> Hook | None:
    """The webhook a send sets in the same breath."""
    if config is None:
        return None
    if not config.url:
        raise Wrong("Expected a url", ".configuration.taskPushNotificationConfig.url")
    return hook_in(config)


def task_in(task_id: str) -> str:
    if not task_id:
        raise Wrong("Expected a task id", ".taskId")
    return task_id


def set_in(params: wire.PushConfig) -> SetHook:
    hook = hook_in(params)
    task_in(hook.task_id)
    if not hook.url:
        raise Wrong("Expected a url", ".url")
    return SetHook(hook=hook)


def set_out(op: SetHook) -> wire.PushConfig:
    return hook_out(op.hook)


def get_in(params: wire.PushParams) -> GetHook:
    # An id is required, but whoever knows only the task gets its first, as in 0.2.
    return GetHook(task_id=task_in(params.task_id or params.task_id_), hook_id=params.id or "")


def one_out(op: GetHook | DeleteHook) -> wire.PushParams:
    return wire.PushParams(op.task_id, op.hook_id)


def list_in(params: wire.PushListParams) -> ListHooks:
    size = params.page_size if params.page_size is not None else params.page_size_
    return ListHooks(
        task_id=task_in(params.task_id or params.task_id_),
        page_size=count_in(size or 0, ".pageSize"),
        page_token=params.page_token or params.page_token_,
    )


def list_out(op: ListHooks) -> wire.PushListParams:
    return wire.PushListParams(op.task_id, op.page_size or None, op.page_token)


def delete_in(params: wire.PushParams) -> DeleteHook:
    if not params.id:
        raise Wrong("Expected the id of a webhook", ".id")
    return DeleteHook(task_id=task_in(params.task_id or params.task_id_), hook_id=params.id)


def told_out(hook: Hook, op: SetHook | GetHook) -> wire.PushConfig:
    return hook_out(hook)


def told_in(raw: Raw) -> Hook:
    return hook_in(_read_config(raw))


def page_out(page: HookPage, op: ListHooks) -> wire.PushPage:
    return wire.PushPage(each(hook_out, page.hooks), page.next_token)


def page_in(raw: Raw) -> HookPage:
    page = _read_page(raw)
    hooks = each(hook_in, page.configs or ())
    return HookPage(hooks, page.next_page_token or page.next_page_token_)


def deleted_out(value: None, op: DeleteHook) -> None:
    """1.0 does not say what a delete answers; the Python SDK says null (D12)."""


def deleted_in(raw: Raw) -> None:
    """Whatever it is, it is gone."""


_read_config = msgspec.json.Decoder(wire.PushConfig).decode
_read_page = msgspec.json.Decoder(wire.PushPage).decode
_TOLD = (told_out, told_in)

_SET = method(SetHook, wire.PushConfig, (set_in, set_out), _TOLD)
_LIST = method(ListHooks, wire.PushListParams, (list_in, list_out), (page_out, page_in))

METHODS = {
    "CreateTaskPushNotificationConfig": _SET,
    "GetTaskPushNotificationConfig": method(GetHook, wire.PushParams, (get_in, one_out), _TOLD),
    "ListTaskPushNotificationConfigs": _LIST,
    "DeleteTaskPushNotificationConfig": method(
        DeleteHook, wire.PushParams, (delete_in, one_out), (deleted_out, deleted_in), null=True
    ),
    # Drafts between 0.3 and 1.0 called them so.
    "SetTaskPushNotificationConfig": _SET,
    "ListTaskPushNotificationConfig": _LIST,
}
