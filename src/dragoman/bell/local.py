"""A bell within one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import Protocol


class Bell(Protocol):
    """Wakes the coroutines that wait for a change of a task."""

    def listen(self, task_id: str) -> asyncio.Future[bool]:
        """Returns a future that becomes true at the next ring. Call it before you read the store;
        otherwise you miss an event that is committed in between."""

    def hush(self, task_id: str, future: asyncio.Future[bool]) -> None:
        """Removes a listener that no longer waits."""

    def ring(self, task_id: str) -> None:
        """Wakes the listeners of a task, because it has changed."""

    def ring_all(self) -> None:
        """Wakes all listeners, because any task may have changed."""

    def listening(self) -> bool:
        """Returns whether there are listeners."""


class LocalBell:
    """Bare futures, one per listener: the cheapest way to wake a coroutine."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[bool]]] = {}
        self.on_wait: Callable[[str], None] | None = None
        """Called when the first listener of a task begins to wait, if other processes have to be
        asked to ring for it."""

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def listen(self, task_id: str) -> asyncio.Future[bool]:
        """Returns a future that becomes true at the next ring of this task."""
        future: asyncio.Future[bool] = self._loop.create_future()
        waiting = self._waiting.get(task_id)
        if waiting is None:
            waiting = self._waiting[task_id] = set()
            if self.on_wait is not None:
                self.on_wait(task_id)
        waiting.add(future)
        return future

    def hush(self, task_id: str, future: asyncio.Future[bool]) -> None:
        """Removes a listener that no longer waits."""
        waiting = self._waiting.get(task_id)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._waiting[task_id]

    def ring(self, task_id: str) -> None:
        """Wakes the listeners of a task."""
        waiting = self._waiting.pop(task_id, None)
        if waiting is not None:
            for future in waiting:
                if not future.done():
                    future.set_result(True)

    def ring_all(self) -> None:
        """Wakes all listeners."""
        for task_id in list(self._waiting):
            self.ring(task_id)

    def listening(self) -> bool:
        """Returns whether there are listeners."""
        return bool(self._waiting)
