"""Pages of a caller's tasks."""

from __future__ import annotations

from msgspec.structs import replace

from ..lifecycle import shortened
from ..ops import ListTasks, TaskPage
from ..peer import Context
from ..store.base import Filter, Store
from . import tokens
from .scope import scope_of


async def listed(store: Store, agent: str, secret: bytes, op: ListTasks, ctx: Context) -> TaskPage:
    """One page; the token of the next one is bound to what was asked."""
    scope = scope_of(ctx)
    bound = (scope, agent, op.context_id, op.state, op.since)
    which = Filter(
        agent=agent,
        context_id=op.context_id,
        state=op.state,
        since=op.since,
        before=tokens.read(secret, op.page_token, bound) if op.page_token else None,
    )
    found = await store.find(scope, which, op.page_size + 1)
    tasks = tuple(shortened(task, op.history_length) for task in found.tasks[: op.page_size])
    if not op.with_artifacts:
        tasks = tuple(replace(task, artifacts=()) for task in tasks)
    more = len(found.tasks) > op.page_size
    token = tokens.sign(secret, found.places[op.page_size - 1], bound) if more else ""
    return TaskPage(tasks=tasks, next_token=token, page_size=op.page_size, total=found.total)
