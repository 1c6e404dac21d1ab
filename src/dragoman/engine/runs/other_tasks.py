"""Reads the other tasks of a run's caller: those of the same context, and those that it names."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from dragoman.agent.remote_calls import StartedCall, started
from dragoman.core.errors import TaskNotFound
from dragoman.core.model import Message, Task
from dragoman.store.interface import Filter, Row, Scope, Store

from ..task_ids import named

EARLIER = 4
"""The number of tasks of a context that are asked for what they opened elsewhere."""


async def load_tasks(store: Store, scope: Scope, ids: Iterable[str]) -> tuple[Task, ...]:
    """Returns those of these tasks that belong to the scope. An id may be one that the caller has
    chosen."""
    found: list[Task] = []
    for name in dict.fromkeys(ids):
        for task_id in (name, named(name, scope)):
            with suppress(TaskNotFound):
                found.append((await store.load(scope, task_id))[1])
                break
    return tuple(found)


async def load_calls(
    store: Store, row: Row, ids: Iterable[str] | None
) -> dict[str, list[StartedCall]]:
    """Returns what those of these tasks that belong to the scope have opened at other agents. None:
    the latest other tasks in this task's context, the latest first."""
    if ids is None:
        listed = await store.find(row.scope, Filter(context_id=row.context_id), EARLIER + 1)
        ids = [task.id for task in listed.tasks if task.id != row.task_id][:EARLIER]
    found: dict[str, list[StartedCall]] = {}
    for name in dict.fromkeys(ids):
        with suppress(TaskNotFound):
            records = await store.records_of(row.scope, name)
            found[name] = started({each.key: each.value for each in records})
    return found


async def read_earlier(store: Store, row: Row, limit: int) -> list[Message]:
    """Returns the messages of the other tasks in this task's context, oldest first. They are those
    of the `limit` tasks whose status changed last."""
    found = await store.find(row.scope, Filter(context_id=row.context_id), limit)
    messages: list[Message] = []
    for task in reversed(found.tasks):
        if task.id != row.task_id:
            messages.extend(task.history)
            if task.status.message is not None:
                messages.append(task.status.message)
    return messages
