"""Work of an engine that nobody awaits."""

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

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts work that nobody awaits."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

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
