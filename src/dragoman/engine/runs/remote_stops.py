"""Cancels remote tasks before a canceled task ends."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from dragoman.core.model import State

from .journal import STOP_SECONDS

if TYPE_CHECKING:
    from .run import Run


class RemoteStops:
    """Postpones the end of a canceled task until its remote tasks are canceled.

    If the process dies before that, the next run cancels them again. After `STOP_SECONDS` the task
    ends without them, and they are canceled when their agents can be reached.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._pending = 0
        self._ending = False
        """Whether the task was about to end in the meantime."""

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts work that may outlast the run, and after which a canceled task ends."""
        run = self._run
        task = run.shared.spawn_until_stop(work)
        if run.cancelled and not run.over:
            self._pending += 1
            run.shared.spawn(_wait(task)).add_done_callback(self._done)

    def postpones_end(self) -> bool:
        """Returns whether the task must not end yet. It ends when this work is done."""
        self._ending |= self._pending > 0
        return self._pending > 0

    def _done(self, _: asyncio.Task[None]) -> None:
        self._pending -= 1
        if not self._pending and (self._ending or self._run.task is None):
            self._run.finish(State.CANCELED)


async def _wait(task: asyncio.Task[None]) -> None:
    await asyncio.wait((task,), timeout=STOP_SECONDS)
