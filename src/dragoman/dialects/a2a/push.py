"""Writes the body of a webhook call, in the version in which the webhook was registered (a2a-wire
§13.6). It does no I/O."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from dragoman.core.events import Stamped
from dragoman.core.model import Hook, Task

from .legacy.a2a_go import GO
from .legacy.v0_1.convert import PLAIN
from .legacy.v0_1.convert import task_out as task_0_1
from .v0_3.convert import task_out as task_0_3
from .v1_0.calls import event_out as event_1_0

Body = tuple[bytes, str]
"""A body and its content type."""

Push = Callable[[Stamped, Task | None], Body]

_encode = msgspec.json.Encoder().encode


def push(hook: Hook, entry: Stamped, task: Task | None) -> Body:
    """Returns the body for one event; `task` is the task after that event."""
    return _PUSHES.get(hook.dialect, _step)(entry, task)


def wants_task(hook: Hook) -> bool:
    """Returns whether this webhook gets the whole task instead of single events."""
    return _PUSHES.get(hook.dialect, _step) is not _step


def _step(entry: Stamped, task: Task | None) -> Body:
    # A2A 1.0 §4.3.3: the body is a StreamResponse.
    # 1.0.1 would use a2a+json; 1.0.0, and most receivers, expect plain JSON.
    return _encode(event_1_0(entry, False)), "application/json"


def _task(task_out: Callable[[Task], object]) -> Push:
    """Writes the bare task for 0.3 and earlier versions, each in its own spelling (0.2 and 0.3 with
    its kind)."""

    def write(entry: Stamped, task: Task | None) -> Body:
        if task is None:
            raise ValueError("this dialect tells the whole task")
        return _encode(task_out(task)), "application/json"

    return write


_task_0_3 = _task(task_0_3)
_PUSHES: dict[str, Push] = {
    "a2a-1.0": _step,
    "a2a-1.0-rest": _step,
    "a2a-1.0-grpc": _step,
    "a2a-0.3": _task_0_3,
    "a2a-0.3-rest": _task_0_3,
    "a2a-0.3-grpc": _task_0_3,
    "a2a-0.2": _task_0_3,
    "a2a-0.1": _task(lambda task: task_0_1(task, PLAIN)),
    "a2a-go": _task(lambda task: task_0_1(task, GO)),
}
