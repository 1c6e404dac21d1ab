"""Time limits without a timeout object per request.

Code that starts to wait for a client enters its task and a deadline in a dictionary and removes the
entry afterwards. One timer reads the entries each second while there are any, and cancels the tasks
that are late. A wait that is over at once thus costs well under a microsecond.
"""

from __future__ import annotations

import asyncio
from typing import Any

TICK = 1.0


class Deadlines:
    """Cancels tasks that wait too long. `late` tells a task whether this is why it was
    cancelled."""

    def __init__(self, tick: float = TICK) -> None:
        self.waits: dict[asyncio.Task[Any], float] = {}
        """Maps a task to the loop time at which it is late. Callers may delete entries directly."""
        self._late: set[asyncio.Task[Any]] = set()
        self._tick = tick
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, task: asyncio.Task[Any], deadline: float) -> None:
        """Has the task cancelled at the deadline, with the precision of a tick."""
        self.waits[task] = deadline
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._tick, self._look)

    def late(self, task: asyncio.Task[Any]) -> bool:
        """Returns whether the deadline cancelled this task. Call it once, in the task's
        `except CancelledError`."""
        if task not in self._late:
            return False
        self._late.discard(task)
        return True

    def stop(self) -> None:
        """Drops all deadlines."""
        if self._timer is not None:
            self._timer.cancel()
        self.waits.clear()

    def _look(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for task in [task for task, deadline in self.waits.items() if deadline <= now]:
            del self.waits[task]
            self._late.add(task)
            task.cancel()
        if self.waits:
            self._timer = loop.call_later(self._tick, self._look)
