"""The queued tasks in memory, in the order in which they are claimed."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush

from .. import rules
from ..limits.run_limits import FairTurns, Lane, RunLimits, Running, Turn, after
from ..task_row import Row


class RunQueue:
    """Finds the tasks that a worker claims next, without a look at all others. An entry is not
    removed when its task is claimed, but when it is found to be out of date."""

    def __init__(self, row_of: Callable[[str], Row | None]) -> None:
        """`row_of` returns the row of an unfinished task."""
        self._row_of = row_of
        self._heaps: dict[tuple[str, Lane], list[Turn]] = {}
        self._lanes: dict[str, list[Lane]] = {}
        """The lanes of each agent, in order."""
        self._turns = FairTurns()

    def add(self, row: Row) -> None:
        """Adds a task that waits for a worker, or whose turn has changed."""
        lane = (row.tenant, row.skill)
        heap = self._heaps.get((row.agent, lane))
        if heap is None:
            heap = self._heaps[row.agent, lane] = []
            insort(self._lanes.setdefault(row.agent, []), lane)
        heappush(heap, (rules.turn(row), row.task_id))

    def pick(
        self, agent: str, limit: int, limits: RunLimits, now: int, running: Running | None
    ) -> list[str]:
        """Returns the tasks that a worker claims."""

        def heads(lane: Lane, most: int) -> Sequence[Turn]:
            return self._heads(agent, lane, most, now)

        def lanes(start: Lane) -> Iterator[Lane]:
            known = self._lanes.get(agent, [])
            # A lane may vanish while its tasks are looked at.
            while (place := bisect_left(known, start)) < len(known):
                start = after(known[place])
                yield known[place]

        return self._turns.pick(agent, lanes, heads, limit, limits, running)

    def _heads(self, agent: str, lane: Lane, most: int, now: int) -> list[Turn]:
        """Returns the first tasks of a lane that are due."""
        heap = self._heaps[agent, lane]
        found: list[Turn] = []
        kept: list[Turn] = []
        while heap and len(found) < most:
            entry = heappop(heap)
            row = self._row_of(entry[1])
            if row is None or not row.runnable or rules.turn(row) != entry[0]:
                continue
            if not kept or kept[-1] != entry:  # it may have been added twice
                kept.append(entry)
                if row.run_at <= now:
                    found.append(entry)
        for entry in kept:
            heappush(heap, entry)
        if not heap:
            del self._heaps[agent, lane]
            self._lanes[agent].remove(lane)
        return found
