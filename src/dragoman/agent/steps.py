"""Steps: calls whose results are recorded, so that a run that starts again does not repeat them."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, get_args, get_origin

import msgspec

from dragoman import spans
from dragoman.core.errors import AgentMisbehaved

from .models import decode_model
from .parts import json_of
from .run_api import RunApi


async def run_step(
    run: RunApi, key: str, name: str, function: Callable[..., Any], *args: Any, **kw: Any
) -> Any:
    """Returns the recorded result of a function, or calls it and records its result under `key`.

    A plain function runs in a thread.
    """
    raw = recorded = run.recorded(key)
    if raw is None:
        await run.begin()
        if spans.tracer is None:
            value = await _call(run, function, *args, **kw)
        else:
            with spans.tracer.span(f"step {name}", parent=spans.tracer.current()):
                value = await _call(run, function, *args, **kw)
        raw = json_of(value, f"The result of step `{name}`")
    # The first run too gets what a replay would get. So a result that does not survive its own
    # encoding is noticed while the author tries the skill, and not after the first crash.
    try:
        result = msgspec.json.decode(raw, type=_result_type(function), dec_hook=decode_model)
    except msgspec.ValidationError as exc:
        raise AgentMisbehaved(f"The result of step `{name}` breaks its hint: {exc}") from exc
    if recorded is None:
        await run.record(key, raw)
    return result


async def _call(run: RunApi, function: Callable[..., Any], *args: Any, **kw: Any) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kw)
    # Not in the loop's own threads, which the server needs too: an author's code may block them
    # all. Nor in those of skills: a skill that is a plain function waits in one for its step.
    call = partial(contextvars.copy_context().run, function, *args, **kw)
    value = await asyncio.get_running_loop().run_in_executor(run.shared.step_threads, call)
    return await value if inspect.isawaitable(value) else value


def _result_type(function: Callable[..., Any]) -> Any:
    try:
        returns = inspect.signature(function, eval_str=True).return_annotation
    except (NameError, TypeError, ValueError):
        return Any
    if get_origin(returns) in (Awaitable, Coroutine):
        returns = get_args(returns)[-1]
    return Any if returns is inspect.Signature.empty else returns
