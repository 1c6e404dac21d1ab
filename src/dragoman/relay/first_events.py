"""Interprets the first events of a remote task."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.core import events
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import Role, State, Task
from dragoman.core.stream_state import Entry


def is_plain(entries: Sequence[Entry]) -> bool:
    """Returns whether these are all events of a task, from its beginning to its end, and each of
    them can be mirrored as it is: no question, no message of its own and no repetition."""
    first, last = entries[0], entries[-1]
    if type(first) is not events.Stamped or type(first.event) is not events.Snapshot:
        return False
    if type(last) is not events.Stamped or type(last.event) is not events.StateChanged:
        return False
    if last.event.state not in FINAL or tells_more(first.event.task):
        return False
    task_id, seq = first.task_id, first.seq
    for entry in entries[1:]:
        if type(entry) is not events.Stamped or entry.task_id != task_id:
            return False
        if entry.seq and entry.seq <= seq:
            return False
        seq, event = entry.seq, entry.event
        if type(event) is events.StateChanged:
            if event.state in WAITING or (event.state in FINAL and entry is not last):
                return False
        elif type(event) is not events.ArtifactChunk and type(event) is not events.Noted:
            return False
    return True


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
    status = task.status
    if task.artifacts or status.message is not None or status.state is not State.SUBMITTED:
        return True
    return any(message.role is Role.AGENT for message in task.history)
