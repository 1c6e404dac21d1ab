"""All tasks in memory, and the indexes by which they are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import nlargest
from itertools import islice

from dragoman.core.errors import TaskNotFound
from dragoman.core.lifecycle import WAITING

from .. import rules
from ..interface import Filter
from ..limits.run_limits import Running
from ..task_row import Row, Scope
from .archive import Archive, Place, fits
from .records import FrozenTask, Key, LiveTask
from .run_queue import RunQueue


class ContextIndex:
    """Finds the tasks of a context. A context that began with a task has the id of that task
    (ADR 0012), so the first task needs no entry, and most contexts never have another one."""

    def __init__(self) -> None:
        # The value is a bare id if there is only one, as in most contexts: unlike a dict, it costs
        # the garbage collector nothing.
        self._tasks: dict[str, str | dict[str, None]] = {}

    def add(self, row: Row) -> None:
        """Adds a new task that did not begin its context."""
        known = self._tasks.get(row.context_id)
        if known is None:
            self._tasks[row.context_id] = row.task_id
        elif isinstance(known, str):
            self._tasks[row.context_id] = {known: None, row.task_id: None}
        else:
            known[row.task_id] = None

    def remove(self, row: Row) -> None:
        """Removes a task that was dropped."""
        if row.context_id == row.task_id:
            return
        known = self._tasks.get(row.context_id)
        if isinstance(known, dict):
            known.pop(row.task_id, None)
        if not isinstance(known, dict) or not known:
            self._tasks.pop(row.context_id, None)

    def later_tasks(self, context_id: str) -> Iterable[str]:
        """Returns the ids of the tasks of a context, without a task that has its id."""
        known = self._tasks.get(context_id, ())
        return (known,) if isinstance(known, str) else known


class TaskTable:
    """The unfinished tasks, the finished ones, and the idempotency keys of both."""

    def __init__(self, limit: int) -> None:
        self.live: dict[str, LiveTask] = {}
        self.archive = Archive(limit)
        self.finished = self.archive.tasks
        self.keys: dict[Key, tuple[str, bytes]] = {}
        """The task and the digest of the message that belong to each key."""
        self._contexts = ContextIndex()
        self.queue = RunQueue(self._live_row)

    def _live_row(self, task_id: str) -> Row | None:
        live = self.live.get(task_id)
        return None if live is None else live.row

    def __contains__(self, task_id: object) -> bool:
        """Returns whether there is such a task, in any scope."""
        return task_id in self.live or task_id in self.finished

    def row_of(self, task_id: str) -> Row:
        """Returns the row of a task, in any scope."""
        return (self.live.get(task_id) or self.finished[task_id]).row

    def row(self, scope: Scope, task_id: str) -> Row:
        """Returns the row of a task. Raises `TaskNotFound` if it does not exist in this scope."""
        kept = self.live.get(task_id) or self.finished.get(task_id)
        if kept is None or not kept.row.belongs_to(scope):
            raise TaskNotFound(task_id=task_id)
        return kept.row

    def add(self, kept: LiveTask | FrozenTask, digest: bytes | None) -> str:
        """Adds a task and the digest that belongs to its key. Returns the id of the finished task
        that was dropped to make room for it, or an empty text."""
        row = kept.row
        task_id = row.task_id
        if kept.key is not None and digest is not None:
            self.keys[kept.key] = (task_id, digest)
        if row.context_id != task_id:  # most tasks need no entry, and this is the hot path
            self._contexts.add(row)
        if isinstance(kept, LiveTask):
            self.live[task_id] = kept
            if row.runnable:
                self.queue.add(row)
            return ""
        return self.finish(kept)

    def finish(self, frozen: FrozenTask) -> str:
        """Moves a task that has ended to the finished ones. Returns the id of the task that was
        dropped to make room for it, or an empty text."""
        self.live.pop(frozen.row.task_id, None)
        self.archive.add(frozen)
        full = len(self.finished) > self.archive.limit
        return next(iter(self.finished)) if full else ""

    def forget(self, task_id: str) -> None:
        """Removes a task and its keys."""
        kept = self.live.pop(task_id, None) or self.archive.remove(task_id)
        if kept is not None:
            for key in (kept.key, *kept.keys):
                if key is not None:
                    self.keys.pop(key, None)
            self._contexts.remove(kept.row)

    def set_back(self, by: int) -> None:
        """Moves the times for which tasks wait back with the clock."""
        for live in self.live.values():
            live.row = rules.set_back(live.row, by)
            if live.row.runnable:
                self.queue.add(live.row)

    def rows(self, context_id: str | None = None) -> Iterator[Row]:
        """Yields the rows of all tasks, or of those in a context."""
        if not context_id:
            for live in self.live.values():
                yield live.row
            for frozen in self.finished.values():
                yield frozen.row
            return
        if context_id in self and (first := self.row_of(context_id)).context_id == context_id:
            yield first
        for task_id in self._contexts.later_tasks(context_id):
            yield self.row_of(task_id)

    def find(self, scope: Scope, which: Filter, limit: int) -> tuple[list[Place], int]:
        """Returns the places of the tasks that match, newest first, and how many match in all."""
        if which.context_id:
            rows = [row for row in self.rows(which.context_id) if fits(row, scope, which)]
        else:
            rows = [live.row for live in self.live.values() if fits(live.row, scope, which)]
        places = [(row.status_at, row.task_id) for row in rows]
        total = len(places)
        if which.before is not None:
            places = [place for place in places if place < which.before]
        if not which.context_id:
            more, count = self.archive.find(scope, which, limit)
            places += more
            total += count
        return nlargest(limit, places), total

    def count_unfinished(self, scope: Scope) -> int:
        """Returns how many tasks of a caller have not ended."""
        return sum(fits(live.row, scope, Filter()) for live in self.live.values())

    def expired(self, agent: str, now: int) -> list[Row]:
        """Returns the tasks of an agent that have waited for their caller for too long."""
        rows = (live.row for live in self.live.values() if live.row.agent == agent)
        over = [row for row in rows if _is_expired(row, now)]
        return sorted(over, key=lambda row: (row.expires_at, row.task_id))

    def agents_due(self, now: int) -> set[str]:
        """Returns the agents that have queued tasks which are due, or tasks that have expired."""
        rows = (live.row for live in self.live.values())
        return {
            row.agent
            for row in rows
            if (row.runnable and row.run_at <= now) or _is_expired(row, now)
        }

    def count_queued(self, agent: str, limit: int) -> int:
        """Returns how many tasks of an agent wait for a worker, and counts up to this number."""
        rows = (live.row for live in self.live.values())
        queued = (row for row in rows if row.runnable and row.agent == agent)
        return sum(1 for _ in islice(queued, limit))

    def running(self, agent: str) -> Running:
        """Counts the tasks that run: those of each tenant, and of each skill of this agent."""
        held = [live.row for live in self.live.values() if live.row.worker]
        rows = [row for row in held if not row.resting]
        tenants = Counter(row.tenant for row in rows)
        return Running(tenants, Counter(row.skill for row in rows if row.agent == agent))

    def count_by_state(self, agent: str) -> dict[str, int]:
        """Returns how many tasks of an agent are in each state, and how many are runnable."""
        counted = self.archive.count_by_state(agent)
        counted["runnable"] = 0
        for live in self.live.values():
            if live.row.agent == agent and not live.row.hidden:
                counted[live.row.state.value] += 1
                counted["runnable"] += live.row.runnable
        return dict(counted)


def _is_expired(row: Row, now: int) -> bool:
    """Returns whether a task has waited for its caller for too long."""
    return 0 < row.expires_at <= now and row.state in WAITING and row.resting
