"""The rows for webhooks (push notification configs) that the method tables of 1.0 and 0.3 share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Raw, Struct

from dragoman.core import operations as ops
from dragoman.core.model import Hook

from .codec import Wire
from .methods import Answer
from .scalars import Wrong
from .version import RpcMethod, method

Question = tuple[Callable[..., Any], Callable[..., Struct]]
"""The functions that read params as an operation, and write an operation as params."""


class HookMethods(NamedTuple):
    """The methods that set, show, list and delete the webhooks of a task."""

    set: RpcMethod
    get: RpcMethod
    list: RpcMethod
    delete: RpcMethod


def hook_methods(
    params: tuple[type[Struct], type[Struct], type[Struct]],
    set: Question,
    get_in: Callable[[Wire], ops.GetHook],
    list: Question,
    delete_in: Callable[[Wire], ops.DeleteHook],
    hook: Answer,
    page: Answer,
) -> HookMethods:
    """Returns the rows for these params, which set a webhook, name one, and list them."""
    set_params, one_params, list_params = params
    one: Callable[..., Struct] = one_params

    def one_out(op: ops.GetHook | ops.DeleteHook) -> Struct:
        return one(op.task_id, op.hook_id)

    nothing: Answer = _nothing_out, _nothing_in
    return HookMethods(
        method(ops.SetHook, set_params, set, hook),
        method(ops.GetHook, one_params, (get_in, one_out), hook),
        method(ops.ListHooks, list_params, list, page),
        method(ops.DeleteHook, one_params, (delete_in, one_out), nothing, null=True),
    )


def _nothing_out(value: None, op: ops.DeleteHook) -> None:
    """Writes the result of a delete. In 0.3 §7.8 it is null, and present. 1.0 does not define it;
    its Python SDK answers null (D12). REST writes an empty object."""


def _nothing_in(raw: Raw) -> None:
    """Accepts any answer to a delete, because peers answer it in many ways."""


def inline_in(config: Wire | None, path: str, hook_in: Callable[[Wire], Hook]) -> Hook | None:
    """Returns the webhook that a send sets, or None."""
    if config is None:
        return None
    if not config.url:
        raise Wrong("Expected a url", f"{path}.url")
    return hook_in(config)
