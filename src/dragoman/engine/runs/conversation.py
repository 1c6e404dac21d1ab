"""Reads the earlier messages of a context, which a skill sees as its conversation."""

from __future__ import annotations

from dragoman.core.model import Message
from dragoman.store.interface import Filter, Row, Store


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
