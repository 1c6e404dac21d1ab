"""Waits for remote tasks until they end or ask a question."""

from __future__ import annotations

from dragoman.core.events import Asked, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import WAITING
from dragoman.core.model import State, Status, Task
from dragoman.core.operations import Watch
from dragoman.core.stream_state import Entry, StreamState

from .agent import RemoteAgent
from .failover import RESTS


async def rested(agent: RemoteAgent, task_id: str) -> Task:
    """Returns a task when it has ended or asks a question."""
    while True:
        task = await agent.get(task_id)
        if task.state in RESTS:
            return task
        events = agent.watch(task_id)
        async with events:
            async for entry in events:
                if waits(entry):
                    break


def waits(entry: Entry) -> bool:
    """Returns whether the task asks a question in this entry. Not every stream ends there."""
    event = entry.event if isinstance(entry, Stamped) else None
    if isinstance(event, Snapshot):
        return event.task.state in WAITING
    return isinstance(event, Asked | StateChanged) and event.state in WAITING


def retold(task: Task) -> list[Entry]:
    """Returns events that lead to the current task."""
    seen = StreamState(Watch(task_id=task.id), numbered=False)
    seen.catch_up(Task(id=task.id, context_id=task.context_id, status=Status(State.SUBMITTED)))
    return seen.catch_up(task)
