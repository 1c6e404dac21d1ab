"""A2A 0.3's webhooks (push notification configs): nested, with a list of schemes."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from dragoman.core.model import Hook
from dragoman.core.operations import DeleteHook, GetHook, HookPage, ListHooks, SetHook

from ..scalars import Wrong, each
from ..version import method
from . import wire


def hook_in(config: wire.PushConfig, task_id: str = "") -> Hook:
    told = config.authentication or _NOBODY
    scheme, *others = told.schemes or ("",)
    return Hook(
        hook_id=config.id or "",
        task_id=task_id,
        url=config.url or "",
        token=config.token or "",
        scheme=scheme,
        credentials=told.credentials or "",
        other_schemes=tuple(others),
    )


def hook_out(hook: Hook) -> wire.PushConfig:
    told = wire.Authentication(hook.schemes, hook.credentials)
    return wire.PushConfig(hook.hook_id, hook.url, hook.token, told if told != _NOBODY else None)


_NOBODY = wire.Authentication((), "")


def inline_in(config: wire.PushConfig | None) -> Hook | None:
    """The webhook a send sets in the same breath."""
    if config is None:
        return None
    if not config.url:
        raise Wrong("Expected a url", ".configuration.pushNotificationConfig.url")
    return hook_in(config)


def task_in(task_id: str | None, path: str = ".id") -> str:
    if not task_id:
        raise Wrong("Expected a task id", path)
    return task_id


def set_in(params: wire.TaskPushConfig) -> SetHook:
    task_id = task_in(params.task_id or params.id, ".taskId")
    if not params.push_notification_config.url:
        raise Wrong("Expected a url", ".pushNotificationConfig.url")
    return SetHook(hook=hook_in(params.push_notification_config, task_id))


def set_out(op: SetHook) -> wire.TaskPushConfig:
    return wire.TaskPushConfig(op.hook.task_id, hook_out(op.hook))


def get_in(params: wire.PushParams) -> GetHook:
    return GetHook(task_id=task_in(params.id), hook_id=params.push_notification_config_id or "")


def one_out(op: GetHook | DeleteHook) -> wire.PushParams:
    return wire.PushParams(op.task_id, op.hook_id)


def list_in(params: wire.PushParams) -> ListHooks:
    return ListHooks(task_id=task_in(params.id))


def list_out(op: ListHooks) -> wire.PushParams:
    return wire.PushParams(op.task_id)


def delete_in(params: wire.PushParams) -> DeleteHook:
    if not params.push_notification_config_id:
        raise Wrong("Expected the id of a webhook", ".pushNotificationConfigId")
    return DeleteHook(task_id=task_in(params.id), hook_id=params.push_notification_config_id)


def told_out(hook: Hook, op: SetHook | GetHook | ListHooks) -> wire.TaskPushConfig:
    return wire.TaskPushConfig(hook.task_id, hook_out(hook))


def told_in(raw: Raw) -> Hook:
    return one_in(_read_config(raw))


def one_in(told: wire.TaskPushConfig) -> Hook:
    return hook_in(told.push_notification_config, told.task_id or told.id or "")


def page_out(page: HookPage, op: ListHooks) -> tuple[wire.TaskPushConfig, ...]:
    return tuple(told_out(hook, op) for hook in page.hooks)


def page_in(raw: Raw) -> HookPage:
    return HookPage(each(one_in, _read_configs(raw)))


def deleted_out(value: None, op: DeleteHook) -> None:
    """0.3 §7.8: the result is null, and is there."""


def deleted_in(raw: Raw) -> None:
    """Whatever it is, it is gone."""


_read_config = msgspec.json.Decoder(wire.TaskPushConfig).decode
_read_configs = msgspec.json.Decoder(tuple[wire.TaskPushConfig, ...]).decode
_TOLD = (told_out, told_in)

METHODS = {
    "tasks/pushNotificationConfig/set": method(
        SetHook, wire.TaskPushConfig, (set_in, set_out), _TOLD
    ),
    "tasks/pushNotificationConfig/get": method(GetHook, wire.PushParams, (get_in, one_out), _TOLD),
    "tasks/pushNotificationConfig/list": method(
        ListHooks, wire.PushParams, (list_in, list_out), (page_out, page_in)
    ),
    "tasks/pushNotificationConfig/delete": method(
        DeleteHook, wire.PushParams, (delete_in, one_out), (deleted_out, deleted_in), null=True
    ),
}
