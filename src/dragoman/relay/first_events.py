"""Interprets the events of a remote task before there is a state of its stream."""

from __future__ import annotations

from collections.abc import Sequence

from dragoman.core.events import Asked, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import Role, State, Task
from dragoman.core.stream_state import MOST_LATER, Entry

_SUBMITTED, _AGENT = State.SUBMITTED, Role.AGENT
MOST_TAKEN = MOST_LATER
"""The events that are mirrored without the state of the stream. It is made of them if it is needed
after all."""


def is_whole(entries: Sequence[Entry]) -> bool:
    """Returns whether a task ends in these events without asking a question."""
    return ends_in(entries[-1]) and not any(map(_waits_in, entries))


def ends_in(entry: Entry) -> bool:
    """Returns whether a task ends with this event."""
    if type(entry) is not Stamped:
        return False
    event = entry.event
    return type(event) is StateChanged and event.state in FINAL


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
    if task.artifacts or status.message is not None or status.state is not _SUBMITTED:
        return True
    for message in task.history:  # noqa: SIM110  `any` would cost a generator for each task
        if message.role is _AGENT:
            return True
    return False
