"""A2A 0.3's webhooks (push notification configs): nested, with a list of schemes."""

from __future__ import annotations

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from dragoman.core.model import Hook
from dragoman.core.operations import DeleteHook, GetHook, HookPage, ListHooks, SetHook

from ..codec import Wire
from ..hooks import hook_methods
from ..members import Authentication
from ..scalars import Wrong, each
from . import wire


def hook_in(config: Wire, task_id: str = "", hook_id: str = "") -> Hook:
    """Returns a webhook of 0.3, of its REST or of 0.1: their configs have the same members."""
    authentication = config.authentication or NO_AUTHENTICATION
    scheme, *others = authentication.schemes or ("",)
    return Hook(
        hook_id=config.id or hook_id,
        task_id=task_id,
        url=config.url or "",
        token=config.token or "",
        scheme=scheme,
        credentials=authentication.credentials or "",
        other_schemes=tuple(others),
    )


def hook_out(hook: Hook) -> wire.PushConfig:
    return wire.PushConfig(hook.hook_id, hook.url, hook.token, authentication_out(hook))


def authentication_out(hook: Hook) -> Authentication | None:
    authentication = Authentication(hook.schemes, hook.credentials)
    return authentication if authentication != NO_AUTHENTICATION else None


NO_AUTHENTICATION = Authentication((), "")


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
    return config_out(op.hook)


def get_in(params: wire.PushParams) -> GetHook:
    return GetHook(task_id=task_in(params.id), hook_id=params.push_notification_config_id or "")


def list_in(params: wire.PushParams) -> ListHooks:
    return ListHooks(task_id=task_in(params.id))


def list_out(op: ListHooks) -> wire.PushParams:
    return wire.PushParams(op.task_id)


def delete_in(params: wire.PushParams) -> DeleteHook:
    if not params.push_notification_config_id:
        raise Wrong("Expected the id of a webhook", ".pushNotificationConfigId")
    return DeleteHook(task_id=task_in(params.id), hook_id=params.push_notification_config_id)


def config_out(hook: Hook, op: SetHook | GetHook | None = None) -> wire.TaskPushConfig:
    return wire.TaskPushConfig(hook.task_id, hook_out(hook))


def config_in(raw: Raw) -> Hook:
    return one_in(_read_config(raw))


def one_in(config: wire.TaskPushConfig) -> Hook:
    return hook_in(config.push_notification_config, config.task_id or config.id or "")


def page_out(page: HookPage, op: ListHooks) -> tuple[wire.TaskPushConfig, ...]:
    return each(config_out, page.hooks)


def page_in(raw: Raw) -> HookPage:
    return HookPage(each(one_in, _read_configs(raw) or ()))


_read_config = msgspec.json.Decoder(wire.TaskPushConfig).decode
_read_configs = msgspec.json.Decoder(tuple[wire.TaskPushConfig, ...] | None).decode
_HOOK = hook_methods(
    (wire.TaskPushConfig, wire.PushParams, wire.PushParams),
    *((set_in, set_out), get_in, (list_in, list_out), delete_in),
    *((config_out, config_in), (page_out, page_in)),
)

_HOOK = _HOOK._replace(list=replace(_HOOK.list, null=True))  # a2a-go omits an empty list
METHODS = {f"tasks/pushNotificationConfig/{verb}": row for verb, row in _HOOK._asdict().items()}
