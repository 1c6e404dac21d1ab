"""A2A 0.3's webhooks over REST: resource names instead of ids, and three bodies to set one."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from dragoman.core.model import Hook
from dragoman.core.operations import DeleteHook, GetHook, HookPage, ListHooks, SetHook

from ...scalars import Wrong, count_in, each
from ...version import method
from . import wire

_NOBODY = wire.Authentication((), "")
_NOTHING = wire.PushConfig()
_BETWEEN = "/pushNotificationConfigs/"


def hook_in(config: wire.PushConfig, task_id: str = "", hook_id: str = "") -> Hook:
    told = config.authentication or _NOBODY
    scheme, *others = told.schemes or ("",)
    return Hook(
        hook_id=config.id or hook_id,
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


def inline_in(options: wire.Configuration) -> Hook | None:
    """The webhook a send sets in the same breath."""
    config = (
        options.push_notification or options.push_notification_ or options.push_notification_config
    )
    if config is None:
        return None
    if not config.url:
        raise Wrong("Expected a url", ".configuration.pushNotification.url")
    return hook_in(config)


def named(hook: Hook) -> wire.TaskPushConfig:
    return wire.TaskPushConfig(f"tasks/{hook.task_id}{_BETWEEN}{hook.hook_id}", hook_out(hook))


def one_in(told: wire.TaskPushConfig) -> Hook:
    task_id, _, hook_id = (told.name or "").removeprefix("tasks/").partition(_BETWEEN)
    config = told.push_notification_config or told.push_notification_config_ or _NOTHING
    return hook_in(config, task_id, hook_id)


def set_in(params: wire.SetPushParams) -> SetHook:
    config = params.push_notification_config or params.push_notification_config_
    if config is None and params.config is not None:
        config = params.config.push_notification_config or params.config.push_notification_config_
    if config is None or not config.url:
        raise Wrong("Expected a url", ".config.pushNotificationConfig.url")
    hook_id = params.config_id or params.config_id_
    return SetHook(hook=hook_in(config, params.id or "", hook_id))


def set_out(op: SetHook) -> wire.SetPushParams:
    hook = op.hook
    return wire.SetPushParams(hook.task_id, f"tasks/{hook.task_id}", hook.hook_id, named(hook))


def bare_out(op: SetHook) -> wire.SetPushParams:
    """The config alone, as the .proto's annotation has it (`body: "config"`)."""
    told = named(op.hook)
    config = told.push_notification_config
    return wire.SetPushParams(op.hook.task_id, name=told.name, push_notification_config=config)


def get_in(params: wire.PushParams) -> GetHook:
    return GetHook(task_id=params.id or "", hook_id=params.push_notification_config_id or "")


def one_out(op: GetHook | DeleteHook) -> wire.PushParams:
    return wire.PushParams(op.task_id, op.hook_id)


def list_in(params: wire.PushParams) -> ListHooks:
    return ListHooks(
        task_id=params.id or "",
        page_size=count_in(params.page_size or 0, ".pageSize"),
        page_token=params.page_token or "",
    )


def list_out(op: ListHooks) -> wire.PushParams:
    return wire.PushParams(op.task_id, "", op.page_size or None, op.page_token)


def delete_in(params: wire.PushParams) -> DeleteHook:
    return DeleteHook(task_id=params.id or "", hook_id=params.push_notification_config_id or "")


def told_out(hook: Hook, op: SetHook | GetHook) -> wire.TaskPushConfig:
    return named(hook)


def told_in(raw: Raw) -> Hook:
    return one_in(_read_config(raw))


def page_out(page: HookPage, op: ListHooks) -> wire.PushPage:
    return wire.PushPage(each(named, page.hooks), page.next_token)


def page_in(raw: Raw) -> HookPage:
    """The text says an array, the SDKs an object."""
    if bytes(raw).lstrip()[:1] == b"[":
        return HookPage(each(one_in, _read_configs(raw)))
    page = _read_page(raw)
    hooks = each(one_in, page.configs or ())
    return HookPage(hooks, page.next_page_token or page.next_page_token_)


def deleted_out(value: None, op: DeleteHook) -> None:
    """An empty object, which is REST's nothing."""


def deleted_in(raw: Raw) -> None:
    """Whatever it is, it is gone."""


_read_config = msgspec.json.Decoder(wire.TaskPushConfig).decode
_read_configs = msgspec.json.Decoder(tuple[wire.TaskPushConfig, ...]).decode
_read_page = msgspec.json.Decoder(wire.PushPage).decode
_TOLD = (told_out, told_in)

SET = method(SetHook, wire.SetPushParams, (set_in, set_out), _TOLD)
SET_BARE = method(SetHook, wire.SetPushParams, (set_in, bare_out), _TOLD)
GET = method(GetHook, wire.PushParams, (get_in, one_out), _TOLD)
LIST = method(ListHooks, wire.PushParams, (list_in, list_out), (page_out, page_in))
DELETE = method(
    DeleteHook, wire.PushParams, (delete_in, one_out), (deleted_out, deleted_in), null=True
)
