"""Calls a method of the author's own (A2A 0.3 §3.5.5)."""

from __future__ import annotations

import asyncio

from dragoman.core.model import Json
from dragoman.core.operations import Invoke
from dragoman.core.peer import Context

from .agent import Agent
from .parts import builtins_of
from .skill import Shape


async def invoke(agent: Agent, op: Invoke, ctx: Context) -> Json:
    """Returns what the method answers. Arguments and result are checked, and plain functions run in
    a thread."""
    method = agent.methods.get(op.method)
    if method is None:
        return await agent.invoke_elsewhere(op, ctx)
    arguments = method.params.take({} if op.params is None else op.params)
    if method.shape is Shape.COROUTINE:
        value = await method.function(ctx, **arguments)
    else:
        value = await asyncio.to_thread(method.function, ctx, **arguments)
    method.params.check_result(value)
    return builtins_of(value)
