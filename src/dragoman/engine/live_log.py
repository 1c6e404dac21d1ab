"""What of a task is committed, and who follows it from here."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice

from dragoman.core.events import Stamped
from dragoman.core.lifecycle import Fold
from dragoman.core.log import Logger
from dragoman.core.model import State
from dragoman.core.peer import Tap

from .run_context import RunContext

log = Logger("run")

RING = 512
"""Committed events kept for live readers."""


class LiveLog:
    """The committed end of a task's log. Its readers see nothing that a crash could take back."""

    works: RunContext
    task_id: str
    fold: Fold
    committed: int
    """The last event that is on the disk."""
    closed = False
    """The task is not ours any more, or over."""
    ring: deque[Stamped] | tuple[Stamped, ...] = ()
    """The latest committed events, for live readers."""
    _readers: dict[asyncio.Future[bool], Tap] | None = None
    """Who follows the task and has seen all there is."""

    def _keep(self, entries: tuple[Stamped, ...]) -> None:
        self.committed = entries[-1].seq
        if not self.ring:
            # Most tasks are one write: its own tuple will do.
            self.ring = entries if len(entries) <= RING else deque(entries, RING)
        else:
            self.ring = self.ring if type(self.ring) is deque else deque(self.ring, RING)
            self.ring.extend(entries)

    def news(self, tap: Tap) -> asyncio.Future[bool]:
        """Done, and true, when there is more to see, or the task is let go of. What goes to the
        tap's sink meanwhile counts as seen."""
        future: asyncio.Future[bool] = self.works.loop.create_future()
        if self._readers is None:
            self._readers = {future: tap}
        else:
            self._readers[future] = tap
        return future

    def hush(self, news: asyncio.Future[bool]) -> None:
        """The reader stops waiting."""
        if self._readers is not None:
            self._readers.pop(news, None)

    def _tell(self) -> None:
        """Tells those who follow the task, here and elsewhere."""
        if self._readers:
            for news, tap in tuple(self._readers.items()):
                if tap.sink is None or not self._poured(tap):
                    self._readers.pop(news, None)
                    if not news.done():
                        news.set_result(True)
        self.works.bell.ring(self.task_id)

    def _poured(self, tap: Tap) -> bool:
        """Whether the reader has all there is without being woken. Only while the task works:
        where a stream ends is for the reader to see."""
        if self.closed or self.fold.status.state is not State.WORKING:
            return False
        entries = self.since(tap.after)
        if entries is None or tap.sink is None:
            return False
        if entries:
            try:
                tap.sink(entries)
            except Exception as exc:  # the reader will meet it again, where it can be told
                log.debug("A live reader failed", exc, task=self.task_id)
                tap.sink = None
                return False
            tap.after = entries[-1].seq
        return True

    def since(self, after: int) -> list[Stamped] | None:
        """Committed events behind `after`; None if the ring does not reach back that far."""
        ring = self.ring
        ahead = self.committed - after
        if ahead <= 0:
            return []
        if ahead == 1 and ring:
            return [ring[-1]]
        if not ring or after + 1 < ring[0].seq:
            return None
        return list(islice(ring, after + 1 - ring[0].seq, None))
