"""Interprets the first events of a remote task."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.core import events
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import Role, State, Task
from dragoman.core.stream_state import Entry


def is_whole(entries: Sequence[Entry]) -> bool:
    """Returns whether a task ends in these events without asking a question."""
    last = entries[-1]
    if not isinstance(last, events.Stamped) or not isinstance(last.event, events.StateChanged):
        return False
    return last.event.state in FINAL and not any(map(_waits_in, entries))


def _waits_in(entry: Entry) -> bool:
    if not isinstance(entry, events.Stamped):
        return False
    match entry.event:
        case events.StateChanged(state=state):
            return state in WAITING
        case events.Snapshot(task=task):
            return task.state in WAITING
    return isinstance(entry.event, events.Asked)


def tells_more(task: Task) -> bool:
    """Returns whether a task contains more than the message that opened it."""
    return bool(
        task.artifacts
        or task.status.message is not None
        or task.state is not State.SUBMITTED
        or any(message.role is Role.AGENT for message in task.history)
    )
