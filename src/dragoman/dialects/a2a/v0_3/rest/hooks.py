"""The webhooks of A2A 0.3 over REST: resource names instead of ids, and three forms of the body
that sets one."""

from __future__ import annotations

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from dragoman.core.model import Hook
from dragoman.core.operations import DeleteHook, GetHook, HookPage, ListHooks, SetHook

from ...hooks import hook_methods
from ...scalars import Wrong, count_in, each
from ..hooks import hook_in, hook_out
from ..wire import PushConfig
from . import wire

_NO_CONFIG = PushConfig()
_BETWEEN = "/pushNotificationConfigs/"


def config_out(hook: Hook, op: SetHook | GetHook | None = None) -> wire.TaskPushConfig:
    return wire.TaskPushConfig(f"tasks/{hook.task_id}{_BETWEEN}{hook.hook_id}", hook_out(hook))


def one_in(config: wire.TaskPushConfig) -> Hook:
    task_id, _, hook_id = (config.name or "").removeprefix("tasks/").partition(_BETWEEN)
    found = config.push_notification_config or config.push_notification_config_ or _NO_CONFIG
    return hook_in(found, task_id, hook_id)


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
    return wire.SetPushParams(hook.task_id, f"tasks/{hook.task_id}", hook.hook_id, config_out(hook))


def bare_out(op: SetHook) -> wire.SetPushParams:
    """Returns the config alone, as the .proto's annotation has it (`body: "config"`)."""
    named = config_out(op.hook)
    config = named.push_notification_config
    return wire.SetPushParams(op.hook.task_id, name=named.name, push_notification_config=config)


def get_in(params: wire.PushParams) -> GetHook:
    return GetHook(task_id=params.id or "", hook_id=params.push_notification_config_id or "")


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


def config_in(raw: Raw) -> Hook:
    return one_in(_read_config(raw))


def page_out(page: HookPage, op: ListHooks) -> wire.PushPage:
    return wire.PushPage(each(config_out, page.hooks), page.next_token)


def page_in(raw: Raw) -> HookPage:
    """Reads a list of webhooks: the text of 0.3 has an array, the SDKs an object."""
    if bytes(raw).lstrip()[:1] == b"[":
        return HookPage(each(one_in, _read_configs(raw)))
    page = _read_page(raw)
    hooks = each(one_in, page.configs or ())
    return HookPage(hooks, page.next_page_token or page.next_page_token_)


_read_config = msgspec.json.Decoder(wire.TaskPushConfig).decode
_read_configs = msgspec.json.Decoder(tuple[wire.TaskPushConfig, ...]).decode
_read_page = msgspec.json.Decoder(wire.PushPage).decode

SET, GET, LIST, DELETE = hook_methods(
    (wire.SetPushParams, wire.PushParams, wire.PushParams),
    *((set_in, set_out), get_in, (list_in, list_out), delete_in),
    *((config_out, config_in), (page_out, page_in)),
)
SET_BARE = replace(SET, op_out=bare_out)
