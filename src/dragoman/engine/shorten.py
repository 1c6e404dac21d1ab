"""Streams for callers that say how much history they want (A2A 1.0 §3.2.4)."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from msgspec.structs import replace

from ..events import Opened, Snapshot, Stamped
from ..lifecycle import shortened
from ..model import Message, State, Status, Task
from ..peer import Batch


async def with_history(
    steps: AsyncGenerator[Batch, None], length: int
) -> AsyncGenerator[Batch, None]:
    """The same steps, with at most so many messages in the tasks they tell."""
    try:
        async for batch in steps:
            yield Batch([_cut(entry, length) for entry in batch.entries], batch.last)
    finally:
        await steps.aclose()


def _cut(entry: Stamped | Message, length: int) -> Stamped | Message:
    if not isinstance(entry, Stamped):
        return entry
    event = entry.event
    if isinstance(event, Snapshot):
        return replace(entry, event=Snapshot(task=shortened(event.task, length)))
    if isinstance(event, Opened) and length == 0:  # its one message is all its history
        task = Task(
            id=entry.task_id,
            context_id=entry.context_id,
            status=Status(State.SUBMITTED, entry.at),
            metadata=event.metadata,
        )
        return replace(entry, event=Snapshot(task=task))
    return entry
