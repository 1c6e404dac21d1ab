"""Work that nobody awaits: of an engine, and of what else starts some."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from dragoman.core.errors import DragomanError
from dragoman.core.log import Logger

log = Logger("runner")
T = TypeVar("T")


class BackgroundWork:
    """Starts work that outlives the request that caused it.

    asyncio holds only weak references to tasks, so each one is referenced here until it is done.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._until_stop: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts work that nobody awaits."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def spawn_until_stop(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts work that nobody awaits, and that may take long. It ends with the engine."""
        task = self.spawn(work)
        self._until_stop.add(task)
        task.add_done_callback(self._until_stop.discard)
        return task

    def stop(self) -> None:
        """Ends the work that lasts until the engine stops."""
        for task in self._until_stop:
            task.cancel()

    async def cancel(self) -> None:
        """Cancels all work, and waits until it has ended."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def finish_unseen(self, work: Coroutine[Any, Any, object]) -> None:
        """Completes an operation whose caller has disconnected."""

        async def finish() -> None:
            try:
                await work
            except DragomanError as exc:  # there is no caller to report it to
                log.info(
                    "An operation whose caller has disconnected failed", reason=exc.reason, why=exc
                )

        self.spawn(finish())
