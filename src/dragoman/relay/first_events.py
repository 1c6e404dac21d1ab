"""Interprets the first events of a remote task."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.core.events import ArtifactChunk, Asked, Noted, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import Role, State, Task
from dragoman.core.stream_state import Entry


def is_plain(entries: Sequence[Entry]) -> bool:
    """Returns whether these are all events of a task, from its beginning to its end, and each of
    them can be mirrored as it is: no question, no message of its own and no repetition."""
    first = entries[0]
    if type(first) is not Stamped or type(first.event) is not Snapshot:
        return False
    if tells_more(first.event.task):
        return False
    task_id, seq, ended = first.task_id, first.seq, False
    for entry in entries[1:]:
        if type(entry) is not Stamped or entry.task_id != task_id or ended:
            return False
        if 0 < entry.seq <= seq:
            return False
        seq, event = entry.seq, entry.event
        if type(event) is StateChanged:
            ended = event.state in FINAL
            if event.state in WAITING:
                return False
        elif type(event) is not ArtifactChunk and type(event) is not Noted:
            return False
    return ended


def is_whole(entries: Sequence[Entry]) -> bool:
    """Returns whether a task ends in these events without asking a question."""
    last = entries[-1]
    if not isinstance(last, Stamped) or not isinstance(last.event, StateChanged):
        return False
    return last.event.state in FINAL and not any(map(_waits_in, entries))


def _waits_in(entry: Entry) -> bool:
    if not isinstance(entry, Stamped):
        return False
    match entry.event:
        case StateChanged(state=state):
            return state in WAITING
        case Snapshot(task=task):
            return task.state in WAITING
    return isinstance(entry.event, Asked)


def tells_more(task: Task) -> bool:
    """Returns whether a task contains more than the message that opened it."""
    status = task.status
    if task.artifacts or status.message is not None or status.state is not State.SUBMITTED:
        return True
    return any(message.role is Role.AGENT for message in task.history)
