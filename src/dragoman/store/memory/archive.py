"""The finished tasks in memory."""

from __future__ import annotations

from collections import Counter
from heapq import heappush, heappushpop

from dragoman.core.model import State

from ..interface import Filter
from ..task_row import Row, Scope
from .outbox import MemoryOutbox
from .records import FrozenTask

Group = tuple[str, str, str, State]
"""Tenant, principal, agent and state."""

Place = tuple[int, str]
"""The position of a task in a list: the time of its status, and its id."""


class Archive:
    """Finished tasks in the order of their end."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.tasks: dict[str, FrozenTask] = {}
        self._groups: dict[Group, int] = {}
        """The number of tasks in each group."""
        self._newest = 0
        self._disorder = 0
        """By how many milliseconds at most the status time of a task may be later than that of a
        task added after it. It is zero as long as the clock only goes forward."""

    def add(self, frozen: FrozenTask) -> None:
        """Adds a task that has ended."""
        row = frozen.row
        self.tasks[row.task_id] = frozen
        if row.status_at >= self._newest:
            self._newest = row.status_at
        elif self._newest - row.status_at > self._disorder:
            self._disorder = self._newest - row.status_at
        if not row.hidden:
            group = (row.tenant, row.principal, row.agent, row.state)
            self._groups[group] = self._groups.get(group, 0) + 1

    def remove(self, task_id: str) -> FrozenTask | None:
        """Removes a task, and returns it if there was one."""
        frozen = self.tasks.pop(task_id, None)
        if frozen is not None and not frozen.row.hidden:
            row = frozen.row
            group = (row.tenant, row.principal, row.agent, row.state)
            self._groups[group] -= 1
            if not self._groups[group]:
                del self._groups[group]
        return frozen

    def find(self, scope: Scope, which: Filter, limit: int) -> tuple[list[Place], int]:
        """Returns the places of the newest tasks that match, in any order, and how many match in
        all. It goes back from the newest task, and no further than necessary."""
        fitting = sum(
            count
            for (tenant, principal, agent, state), count in self._groups.items()
            if principal == scope.principal
            and tenant == scope.tenant
            and agent == scope.agent
            and (which.state is None or state is which.state)
        )
        page: list[Place] = []
        seen = 0
        for frozen in reversed(self.tasks.values()):
            # Tasks further back cannot be newer than this.
            newest = frozen.row.status_at + self._disorder
            if seen == fitting or (which.since is not None and newest < which.since):
                break
            if which.since is None and len(page) == limit and newest < page[0][0]:
                break
            if not fits(frozen.row, scope, which):
                continue
            seen += 1
            place = (frozen.row.status_at, frozen.row.task_id)
            if which.before is None or place < which.before:
                if len(page) < limit:
                    heappush(page, place)
                else:
                    heappushpop(page, place)
        return page, fitting if which.since is None else seen

    def old(
        self, agent: str, events_before: int, tasks_before: int, limit: int, outbox: MemoryOutbox
    ) -> tuple[list[str], list[str]]:
        """Returns the tasks of an agent whose logs must be deleted, and those that must be deleted
        altogether, oldest first. A task with undelivered events for a webhook stays."""
        shrink: list[str] = []
        go: list[str] = []
        for task_id, frozen in self.tasks.items():
            if len(shrink) + len(go) >= limit:
                break
            if frozen.row.agent != agent:
                continue
            if frozen.row.status_at <= tasks_before and not outbox.holds_task(task_id):
                go.append(task_id)
            elif (
                frozen.row.status_at <= events_before
                and frozen.whole
                and not outbox.holds_log(task_id)
            ):
                shrink.append(task_id)
        return shrink, go

    def count_by_state(self, agent: str) -> Counter[str]:
        """Returns how many tasks of an agent are in each state."""
        counted: Counter[str] = Counter()
        for (_, _, name, state), count in self._groups.items():
            if name == agent:
                counted[state.value] += count
        return counted


def fits(row: Row, scope: Scope, which: Filter) -> bool:
    """Returns whether a task belongs in a list, on any page of it."""
    return (
        row.belongs_to(scope)
        and not row.hidden
        and (not which.context_id or row.context_id == which.context_id)
        and (which.state is None or row.state is which.state)
        and (which.since is None or row.status_at >= which.since)
    )
