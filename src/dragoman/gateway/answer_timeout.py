"""A time limit for the first answers of an agent, without a timer for each of them.

Theory. All waits of one pool are equally long, so the oldest is always the next that may be late.
They stand in a dictionary in the order in which they began, and one timer looks at the oldest when
it would be late. `asyncio.timeout` sets and cancels a timer for each wait, which costs more than
anything else that a pool does for a call.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any


class AnswerTimeout:
    """Cancels tasks that wait too long for an answer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._waits: dict[asyncio.Task[Any], float] = {}
        """The tasks that wait, and the monotonic time at which each is late."""
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, now: float) -> asyncio.Task[Any]:
        """Has the task that runs canceled if it does not call `end` in time. Returns the task.
        `now` is the monotonic time."""
        loop = self._loop
        if loop is None:  # looked up only once: in Python 3.11 that is a system call
            loop = self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None  # noqa: S101  it is the one that runs
        self._waits[task] = now + self.seconds
        if self._timer is None:
            self._timer = loop.call_later(self.seconds, self._look)
        return task

    def is_late(self, task: asyncio.Task[Any]) -> bool:
        """Returns whether the task was canceled for nothing but being late."""
        return task not in self._waits and task.cancelling() == 1

    def end(self, task: asyncio.Task[Any]) -> None:
        """Ends the wait of the task. One that was late counts as canceled no longer, as with
        `asyncio.timeout`."""
        if self._waits.pop(task, None) is None:
            task.uncancel()

    def _look(self) -> None:
        """Cancels the tasks that are late, and looks again when the next one would be."""
        self._timer = None
        now = monotonic()
        for task, late_at in tuple(self._waits.items()):
            if late_at > now:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(late_at - now, self._look)
                return
            del self._waits[task]
            task.cancel()
