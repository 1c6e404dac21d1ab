"""The committed end of a task's log in memory, and the readers that follow it in this process.

Theory. A live reader must not cost a query per event, and must not see an event that a crash could
take back. So the latest events stay here, and they come here from the confirmed commit only. A
reader that has seen everything leaves a future behind and is woken by the next commit; one that
can take events without being woken (`Tap.sink`) is handed them on the spot. The log holds at most
`RING` events: a reader that falls further behind goes on in the store, where it finds them all.
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
"""Committed events kept for live readers."""


class LiveLog:
    """The latest committed events of one task, and its readers in this process."""

    ring: deque[Stamped] | tuple[Stamped, ...] = ()
    """The latest committed events, without a gap up to `committed`."""
    _readers: dict[asyncio.Future[bool], Tap] | None = None
    """Readers that have seen everything, each by the future that wakes it."""

    def __init__(self, shared: RunContext, task_id: str, committed: int) -> None:
        self._shared = shared
        self._task_id = task_id
        self.committed = committed
        """The seq of the last event that is on the disk; 0 while the task is being created."""

    def add(self, entries: tuple[Stamped, ...]) -> None:
        """Takes the events of a confirmed commit."""
        self.committed = entries[-1].seq
        ring = self.ring
        if not ring:
            # Most tasks are one write: its own tuple will do, and costs nothing.
            self.ring = entries if len(entries) <= RING else deque(entries, RING)
        elif type(ring) is deque:
            ring.extend(entries)
        else:
            self.ring = deque(ring, RING)
            self.ring.extend(entries)

    def since(self, after: int) -> list[Stamped] | None:
        """The committed events behind `after`; None if the ring does not reach back that far."""
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
        """Done, and true, when there is more to see or the task is let go of. What is handed to
        the tap's sink meanwhile counts as seen."""
        future: asyncio.Future[bool] = self._shared.loop.create_future()
        if self._readers is None:
            self._readers = {future: tap}
        else:
            self._readers[future] = tap
        return future

    def hush(self, future: asyncio.Future[bool]) -> None:
        """The reader stops waiting."""
        if self._readers is not None:
            self._readers.pop(future, None)

    def notify(self, *, working: bool) -> None:
        """Wakes or feeds the readers here, and rings the bell for those elsewhere. Only a task
        that goes on `working` feeds sinks: where a stream ends is for its reader to decide."""
        readers = self._readers
        if readers:
            for future, tap in tuple(readers.items()):
                if not working or tap.sink is None or not self._feed(tap):
                    readers.pop(future, None)
                    if not future.done():
                        future.set_result(True)
        self._shared.bell.ring(self._task_id)

    def _feed(self, tap: Tap) -> bool:
        """Hands a sink what is new; false if its reader has to look for itself."""
        entries = self.since(tap.after)
        if entries is None or tap.sink is None:
            return False
        if entries:
            try:
                tap.sink(entries)
            except Exception as exc:
                # A failing sink must not fail the commit. Its reader meets the same error when it
                # sends these events itself, and there it can be answered.
                log.debug("A live reader failed", exc, task=self._task_id)
                tap.sink = None
                return False
            tap.after = entries[-1].seq
        return True
