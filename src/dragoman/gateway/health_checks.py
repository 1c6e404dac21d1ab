"""The health checks of all agents elsewhere: one scheduler, however many there are.

Theory. A task for each agent would cost memory, and after a start all of them would check at the
same moment for ever. Here is one task with a list of what is due when. So many checks run at the
same time at most, and the time of the next one is moved by chance.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable, Callable
from itertools import count
from weakref import WeakKeyDictionary

from dragoman.core.log import Logger

log = Logger("gateway")
AT_ONCE = 32
"""The checks that run at the same time."""
JITTER = 0.2
"""The part of an interval by which a check comes earlier or later."""

Check = Callable[[], Awaitable[float]]
"""Checks something, and returns the seconds until the next check."""


class HealthChecks:
    """Runs checks, each again and again until it is removed."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, object, Check]] = []
        self._checks: dict[object, Check] = {}
        self._running: dict[asyncio.Task[None], object] = {}
        self._numbers = count()
        self._news = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    def add(self, key: object, check: Check) -> None:
        """Begins to run a check, the first time as soon as possible."""
        self._checks[key] = check
        self._schedule(key, check, 0.0)
        if self._loop is None or self._loop.done():
            self._loop = asyncio.get_running_loop().create_task(self._run())

    async def remove(self, key: object) -> None:
        """Ends a check, and returns when it does not run any more."""
        self._checks.pop(key, None)
        running = [task for task, whose in self._running.items() if whose == key]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        if not self._checks and self._loop is not None:
            loop, self._loop = self._loop, None
            self._due.clear()
            loop.cancel()
            await asyncio.wait([loop])

    def _schedule(self, key: object, check: Check, seconds: float) -> None:
        at = asyncio.get_running_loop().time() + seconds
        heapq.heappush(self._due, (at, next(self._numbers), key, check))
        self._news.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._news.clear()
            while self._due and self._due[0][0] <= loop.time() and len(self._running) < AT_ONCE:
                _, _, key, check = heapq.heappop(self._due)
                if self._checks.get(key) is check:  # else it was removed
                    task = loop.create_task(self._check(key, check))
                    self._running[task] = key
                    task.add_done_callback(self._ended)
            pause: float | None = None
            if self._due and len(self._running) < AT_ONCE:
                pause = max(0.0, self._due[0][0] - loop.time())
            try:
                async with asyncio.timeout(pause):
                    await self._news.wait()
            except TimeoutError:
                pass

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._news.set()

    async def _check(self, key: object, check: Check) -> None:
        seconds = 60.0
        try:
            seconds = await check()
        except Exception as exc:  # one check must not end those of all others
            log.error("A health check failed", exc)
        if self._checks.get(key) is check:
            self._schedule(key, check, seconds * random.uniform(1 - JITTER, 1 + JITTER))


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, HealthChecks] = WeakKeyDictionary()


def health_checks() -> HealthChecks:
    """Returns the scheduler of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _of_loop.get(loop)
    if found is None:
        found = _of_loop[loop] = HealthChecks()
    return found
