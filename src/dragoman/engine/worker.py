"""What a process is in the store: one worker with one lease, whichever agents it runs. And what it
knows about the tasks that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import ceil, inf
from time import monotonic

from dragoman.agent import Agent
from dragoman.core.errors import TooMany
from dragoman.core.task_size import CallerSizes
from dragoman.settings import EngineSettings
from dragoman.store.interface import RunLimits, Store

from .task_ids import new_id

COUNT = 1.0
"""Seconds for which a count of the queue is used. Counting costs more than a claim."""
PACE = 10.0
"""The seconds over which claims are counted, to say when a caller may try again."""
LONGEST_RETRY = 60
"""The longest time in seconds after which a caller that was refused is asked to try again."""
USUAL_RETRY = 5
"""The same if nothing was claimed for a while."""


class Worker:
    """The worker of a process, which the runners of its agents share. A task is claimed by a worker
    and for an agent, so a process needs one lease and one heartbeat, however many agents it has."""

    def __init__(self) -> None:
        self.id = new_id()
        self.place_free = asyncio.Event()
        """Set when a task that waits for a place may start."""
        self.queues: dict[str, TaskQueue] = {}
        """The queues of its agents, by their names in the store."""
        self.call_others: Callable[[str], None] = lambda agent: None
        """Tells other processes that a task of this agent waits for them; set by the
        maintenance."""
        self.relayed_sizes = CallerSizes()
        """The sizes of the relayed tasks of each caller, of all agents together."""
        self._claims = 0
        self._lease_end = inf

    def renew(self) -> None:
        """Becomes another worker, so that no old claim is mistaken for a new one."""
        self.id = new_id()

    def set_lease(self, began: float, lease: float) -> None:
        """Notes that the store has renewed the lease. `began` is the monotonic time at which it was
        asked: the store may have done it at any time since then."""
        self._lease_end = began + lease

    def lease_is_over(self) -> bool:
        """Returns whether other workers may have taken over our tasks."""
        return monotonic() >= self._lease_end

    def new_token(self) -> str:
        """Returns the token of a new claim, which is never reused."""
        self._claims += 1
        return f"{self.id}.{self._claims}"


class TaskQueue:
    """The tasks of one agent that wait in the store for a free place, as far as this process knows:
    it counts its own, and now and then those of all processes."""

    def __init__(self, name: str, worker: Worker, settings: EngineSettings, agent: Agent) -> None:
        self.length = 0
        self.limits: RunLimits | None = None
        """How many tasks may run at a time, in all processes; None: as many as there are places."""
        self._name, self._worker, self._settings = name, worker, settings
        self._counted_at = -COUNT
        self._claimed, self._since, self._pace = 0, 0.0, 0.0
        self.use(agent)

    def use(self, agent: Agent) -> None:
        """Applies the limits of the agent's skills."""
        skills = {each.id: each.max_runs for each in agent.skills.values() if each.max_runs}
        limits = RunLimits(
            per_tenant=self._settings.runs_per_tenant,
            per_skill=self._settings.runs_per_skill,
            skills=skills,
        )
        self.limits = limits if limits else None

    def open(self) -> None:
        """Counts the queue among those of the process."""
        self._worker.queues[self._name] = self

    def close(self) -> None:
        """Leaves it out again."""
        if self._worker.queues.get(self._name) is self:
            del self._worker.queues[self._name]

    def holds_up(self, skill: str) -> bool:
        """Returns whether a new task of a skill may have to wait although a place is free here."""
        return self.limits is not None and self.limits.concerns(skill)

    def on_place_free(self) -> None:
        """Lets a task start in the place that has become free, if one may wait for it."""
        if self.length or self.limits is not None:
            self._worker.place_free.set()

    def check(self) -> None:
        """Raises `TooMany` if no other task may wait."""
        most, in_all = self._settings.max_queue, self._settings.max_queue_total
        queues = self._worker.queues.values()
        if self.length >= most or sum(each.length for each in queues) >= in_all:
            raise TooMany(
                "The agent has too much to do; try again later", retry_after=str(self.retry_after())
            )

    def retry_after(self) -> int:
        """Returns the seconds in which about a tenth of the queue will have been claimed."""
        if not self._pace:
            return USUAL_RETRY
        return max(1, min(LONGEST_RETRY, ceil(self.length / 10 / self._pace)))

    def claimed(self, count: int, now: float) -> None:
        """Notes that tasks were claimed."""
        self.length = max(0, self.length - count)
        self._claimed += count
        if now - self._since >= PACE:
            self._pace = self._claimed / (now - self._since) if self._since else 0.0
            self._claimed, self._since = 0, now

    async def count(self, store: Store, now: float, *, empty: bool) -> None:
        """Counts the queue, those of other processes included. It is `empty` if everything that was
        due has been claimed."""
        if empty:
            self.length = 0
        elif now - self._counted_at >= COUNT:
            self._counted_at = now
            self.length = await store.count_queued(self._name, self._settings.max_queue)
