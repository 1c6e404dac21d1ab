"""A bell within one process."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Protocol


class Bell(Protocol):
    """Wakes those who wait for news of a task."""

    def listen(self, task_id: str) -> asyncio.Future[bool]:
        """Done, and true, at the next ring. Listen before you read, or an event slips between."""

    def hush(self, task_id: str, future: asyncio.Future[bool]) -> None:
        """The listener stops waiting."""

    def ring(self, task_id: str) -> None:
        """Something changed."""

    def ring_all(self) -> None:
        """Something changed, but nobody knows what."""

    def listening(self) -> bool:
        """Whether anybody waits."""


class LocalBell:
    """Bare futures, one per listener: the cheapest way to wake a coroutine."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[bool]]] = {}

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def listen(self, task_id: str) -> asyncio.Future[bool]:
        """See `Bell`."""
        future: asyncio.Future[bool] = self._loop.create_future()
        self._waiting.setdefault(task_id, set()).add(future)
        return future

    def hush(self, task_id: str, future: asyncio.Future[bool]) -> None:
        """See `Bell`."""
        waiting = self._waiting.get(task_id)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._waiting[task_id]

    def ring(self, task_id: str) -> None:
        """See `Bell`."""
        waiting = self._waiting.pop(task_id, None)
        if waiting is not None:
            for future in waiting:
                if not future.done():
                    future.set_result(True)

    def ring_all(self) -> None:
        """See `Bell`."""
        for task_id in list(self._waiting):
            self.ring(task_id)

    def listening(self) -> bool:
        """See `Bell`."""
        return bool(self._waiting)
