"""Keeps the latest committed events of a task in memory, for the readers in this process.

Theory. A live reader must not cost a query per event, and must not see an event that a crash could
take back. So the latest events stay in a ring in memory, and an event enters the ring only after
its commit. A reader that has seen everything registers a future, and the next commit completes it.
A reader that can take events without being woken (`Tap.sink`) receives them directly in the commit
callback, which saves it a loop iteration per event. The ring holds at most `RING` events: a reader
that falls further behind continues in the store, which has them all, so a slow reader never makes
the ring grow and never delays the run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice

from dragoman.core.events import Stamped
from dragoman.core.log import Logger
from dragoman.core.peer import Tap

from .run_context import RunContext

log = Logger("run")

RING = 512
"""The number of committed events that are kept for live readers."""


class LiveLog:
    """The latest committed events of one task, and its readers in this process."""

    ring: deque[Stamped] | tuple[Stamped, ...]
    """The latest committed events, without gaps, up to `committed`."""
    _readers: dict[asyncio.Future[bool], Tap] | None
    """The readers that have seen everything, each under the future that wakes it."""

    def __init__(self, shared: RunContext, task_id: str, committed: int) -> None:
        self._shared = shared
        self._task_id = task_id
        self.committed = committed
        """The seq of the last committed event; 0 while the task is being created."""
        self.ring, self._readers = (), None

    def add(self, entries: tuple[Stamped, ...]) -> None:
        """Adds the events of a commit."""
        self.committed = entries[-1].seq
        ring = self.ring
        if not ring:
            # Most tasks are a single write. Its own tuple serves as the ring and costs nothing.
            self.ring = entries if len(entries) <= RING else deque(entries, RING)
        elif type(ring) is deque:
            ring.extend(entries)
        else:
            self.ring = deque(ring, RING)
            self.ring.extend(entries)

    def since(self, after: int) -> list[Stamped] | None:
        """Returns the committed events after `after`, or None if the ring no longer has them."""
        ring = self.ring
        ahead = self.committed - after
        if ahead <= 0:
            return []
        if ahead == 1 and ring:
            return [ring[-1]]
        if not ring or after + 1 < ring[0].seq:
            return None
        return list(islice(ring, after + 1 - ring[0].seq, None))

    def listen(self, tap: Tap) -> asyncio.Future[bool]:
        """Returns a future that becomes true when there are new events or the run ends. Events
        that were passed to the tap's sink in the meantime do not complete it."""
        future: asyncio.Future[bool] = self._shared.loop.create_future()
        if self._readers is None:
            self._readers = {future: tap}
        else:
            self._readers[future] = tap
        return future

    def hush(self, future: asyncio.Future[bool]) -> None:
        """Removes a reader that no longer waits."""
        if self._readers is not None:
            self._readers.pop(future, None)

    def notify(self, *, working: bool) -> None:
        """Wakes or feeds the readers in this run, and rings the bell for all others. Sinks are fed
        only while the task is `working`, because the reader itself must decide where its stream
        ends."""
        readers = self._readers
        if readers:
            for future, tap in tuple(readers.items()):
                if not working or tap.sink is None or not self._feed(tap):
                    readers.pop(future, None)
                    if not future.done():
                        future.set_result(True)
        self._shared.bell.ring(self._task_id)

    def _feed(self, tap: Tap) -> bool:
        """Passes new events to a sink; returns False if its reader has to fetch them itself."""
        entries = self.since(tap.after)
        if entries is None or tap.sink is None:
            return False
        if entries:
            try:
                tap.sink(entries)
            except Exception as exc:
                # A failing sink must not fail the commit. Its reader gets the same error when it
                # sends these events itself, and can handle it there.
                log.debug("A live reader failed", exc, task=self._task_id)
                tap.sink = None
                return False
            tap.after = entries[-1].seq
        return True
