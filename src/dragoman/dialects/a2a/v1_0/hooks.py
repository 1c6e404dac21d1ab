"""A2A 1.0's webhooks (push notification configs): flat, with one scheme each."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from dragoman.core.model import Hook
from dragoman.core.operations import DeleteHook, GetHook, HookPage, ListHooks, SetHook

from ..hooks import hook_methods
from ..scalars import Wrong, count_in, each
from ..version import method
from . import wire


def hook_in(config: wire.PushConfig) -> Hook:
    authentication = config.authentication or _NO_AUTHENTICATION
    return Hook(
        hook_id=config.id or "",
        task_id=config.task_id or config.task_id_,
        url=config.url or "",
        token=config.token or "",
        scheme=authentication.scheme or "",
        credentials=authentication.credentials or "",
    )


def hook_out(hook: Hook) -> wire.PushConfig:
    authentication = wire.Authentication(hook.scheme, hook.credentials)
    return wire.PushConfig(
        hook.hook_id,
        hook.task_id,
        hook.url,
        hook.token,
        authentication if authentication != _NO_AUTHENTICATION else None,
    )


_NO_AUTHENTICATION = wire.Authentication("", "")


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
    # An id is required, but a caller that knows only the task gets its first webhook, as in 0.2.
    return GetHook(task_id=task_in(params.task_id or params.task_id_), hook_id=params.id or "")


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


def config_out(hook: Hook, op: SetHook | GetHook) -> wire.PushConfig:
    return hook_out(hook)


def config_in(raw: Raw) -> Hook:
    return hook_in(_read_config(raw))


def page_out(page: HookPage, op: ListHooks) -> wire.PushPage:
    return wire.PushPage(each(hook_out, page.hooks), page.next_token)


def page_in(raw: Raw) -> HookPage:
    page = _read_page(raw)
    hooks = each(hook_in, page.configs or ())
    return HookPage(hooks, page.next_page_token or page.next_page_token_)


_read_config = msgspec.json.Decoder(wire.PushConfig).decode
_read_page = msgspec.json.Decoder(wire.PushPage).decode
_HOOK = hook_methods(
    (wire.PushConfig, wire.PushParams, wire.PushListParams),
    *((set_in, set_out), get_in, (list_in, list_out), delete_in),
    *((config_out, config_in), (page_out, page_in)),
)


# SetTaskPushNotificationConfig is the name of Create... in drafts between 0.3 and 1.0, which the
# overview documents follow. Its config is nested there, as in 0.3; callers that only took over the
# name send the flat one. The answer has both forms.


def draft_set_in(params: wire.DraftSetParams) -> SetHook:
    config = params.push_notification_config or params.push_notification_config_
    if config is None:
        return set_in(params)
    if not config.url:
        raise Wrong("Expected a url", ".pushNotificationConfig.url")
    authentication = config.authentication or wire.DraftAuthentication()
    scheme, *others = authentication.schemes or (authentication.scheme or "",)
    hook = Hook(
        hook_id=config.id or params.id or "",
        task_id=task_in(params.task_id or params.task_id_),
        url=config.url,
        token=config.token or "",
        scheme=scheme,
        credentials=authentication.credentials or "",
        other_schemes=tuple(others),
    )
    return SetHook(hook=hook)


def draft_config_out(hook: Hook, op: SetHook) -> wire.DraftSetParams:
    flat = hook_out(hook)
    authentication = (
        wire.DraftAuthentication(hook.scheme, hook.credentials, hook.schemes)
        if flat.authentication is not None
        else None
    )
    return wire.DraftSetParams(
        flat.id,
        flat.task_id,
        flat.url,
        flat.token,
        flat.authentication,
        push_notification_config=wire.DraftPushConfig(
            hook.hook_id, hook.url, hook.token, authentication
        ),
    )


_DRAFT_SET = method(
    SetHook, wire.DraftSetParams, (draft_set_in, set_out), (draft_config_out, config_in)
)

METHODS = {
    "CreateTaskPushNotificationConfig": _HOOK.set,
    "GetTaskPushNotificationConfig": _HOOK.get,
    "ListTaskPushNotificationConfigs": _HOOK.list,
    "DeleteTaskPushNotificationConfig": _HOOK.delete,
    # The names of these methods in drafts between 0.3 and 1.0.
    "SetTaskPushNotificationConfig": _DRAFT_SET,
    "ListTaskPushNotificationConfig": _HOOK.list,
}
