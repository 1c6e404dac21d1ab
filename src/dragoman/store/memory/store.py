"""`memory:` keeps tasks as long as the process lives."""

from __future__ import annotations

from dragoman.core.model import Hook, Task

from .. import outbox as post
from ..bulkheads import Bulkheads
from ..codec import cut
from ..interface import (
    AdminFilter,
    Claim,
    Delivery,
    Done,
    Draft,
    Filter,
    HeldTask,
    Input,
    Listing,
    Page,
    Record,
    Row,
    Scope,
    Write,
)
from ..sessions import SessionBook
from .ledger import Clock, Ledger
from .sessions import MemorySessions

FINISHED_LIMIT = 250_000
"""Finished tasks kept; the oldest go first."""


class MemoryStore:
    """See `Store`. Everything happens at once; `done` is called before the method returns."""

    shared = False

    def __init__(self, clock: Clock, *, limit: int = FINISHED_LIMIT) -> None:
        self._ledger = Ledger(clock, limit)
        self.sessions: SessionBook = MemorySessions(clock)

    async def open(self) -> None:
        """See `Store`."""

    async def close(self) -> None:
        """See `Store`."""

    async def enlist(self, worker: str, lease_ms: int) -> None:
        """See `Store`."""
        self._ledger.enlist(worker, lease_ms)

    async def beat(self, worker: str, lease_ms: int) -> bool:
        """See `Store`."""
        return self._ledger.beat(worker, lease_ms)

    async def held(self, worker: str) -> list[HeldTask]:
        """See `Store`."""
        rows = [live.row for live in self._ledger.held(worker)]
        return [HeldTask(row.claim, row.inputs, row.cancel) for row in rows]

    async def retire(self, worker: str) -> None:
        """See `Store`."""
        self._ledger.retire(worker)

    async def reap(self) -> list[str]:
        """See `Store`."""
        return [live.row.task_id for live in self._ledger.reap()]

    def create(self, draft: Draft, done: Done) -> None:
        """See `Store`."""
        error = self._ledger.create(draft)
        if error is None and draft.hook is not None:
            row, now = draft.row, self._ledger.clock()
            self._ledger.post.set(row.scope, draft.hook, sent=0, last=row.last_seq, now=now)
        done(error)

    def append(self, write: Write, done: Done) -> None:
        """See `Store`."""
        error = self._ledger.append(write)
        task_id = write.claim.task_id
        if error is None and task_id in self._ledger.post:
            last = write.base + len(write.entries)
            self._ledger.post.grown(task_id, last, self._ledger.clock())
        done(error)

    async def claim(self, worker: str, agent: str, limit: int) -> list[Row]:
        """See `Store`."""
        return [live.row for live in self._ledger.claim(worker, agent, limit)]

    async def seize(self, worker: str, task_id: str, epoch: int) -> Row | None:
        """See `Store`."""
        live = self._ledger.seize(worker, task_id, epoch)
        return live.row if live is not None else None

    async def release(self, claim: Claim, *, runnable: bool) -> None:
        """See `Store`."""
        self._ledger.release(claim, runnable=runnable)

    async def add_input(self, scope: Scope, task_id: str, said: Input, question: str | None) -> Row:
        """See `Store`."""
        return self._ledger.add_input(scope, task_id, said, question)[0]

    async def find_key(self, scope: Scope, key: str) -> tuple[str, bytes] | None:
        """See `Store`."""
        return self._ledger.find_key(scope, key)

    async def ask_cancel(self, scope: Scope, task_id: str) -> Row:
        """See `Store`."""
        return self._ledger.ask_cancel(scope, task_id)

    async def row(self, scope: Scope, task_id: str) -> Row:
        """See `Store`."""
        return self._ledger.row(scope, task_id)

    async def load(self, scope: Scope, task_id: str) -> tuple[Row, Task]:
        """See `Store`."""
        return self._ledger.row(scope, task_id), self._task(task_id)

    async def read(self, scope: Scope, task_id: str, after: int, limit: int) -> Page:
        """See `Store`."""
        row = self._ledger.row(scope, task_id)
        live = self._ledger.live.get(task_id)
        if live is not None:
            return Page(row, cut(live.log, after, limit))
        frozen = self._ledger.finished[task_id]
        return Page(row, cut(frozen.pieces, after, limit))

    async def find(self, scope: Scope, which: Filter, limit: int) -> Listing:
        """See `Store`."""
        places, total = self._ledger.find(scope, which, limit)
        return Listing([self._task(task_id) for _, task_id in places], places, total)

    async def inputs(self, claim: Claim) -> list[Input]:
        """See `Store`."""
        return list(self._ledger.mine(claim).inputs or ())

    async def records(self, claim: Claim) -> list[Record]:
        """See `Store`."""
        return list((self._ledger.mine(claim).records or {}).values())

    async def set_hook(self, scope: Scope, hook: Hook) -> None:
        """See `Store`."""
        self._ledger.set_hook(scope, hook)

    async def hooks(self, scope: Scope, task_id: str) -> list[Hook]:
        """See `Store`."""
        return self._ledger.hooks(scope, task_id)

    async def delete_hook(self, scope: Scope, task_id: str, hook_id: str) -> None:
        """See `Store`."""
        self._ledger.delete_hook(scope, task_id, hook_id)

    async def due(
        self, agent: str, limit: int, hold_ms: int, bulkheads: Bulkheads | None = None
    ) -> list[Delivery]:
        """See `Store`."""
        return self._ledger.post.due(agent, limit, self._ledger.clock(), hold_ms, bulkheads)

    async def delivered(self, id: int, through: int = 0) -> None:
        """See `Store`."""
        self._ledger.settle(id, post.arrived(through))

    async def retry(
        self, id: int, wait_ms: int, status: int, error: str, *, tried: bool = True
    ) -> None:
        """See `Store`."""
        self._ledger.settle(id, post.later(wait_ms, (status, error), tried=tried))

    async def mark_dead(self, id: int, status: int, error: str, through: int = 0) -> None:
        """See `Store`."""
        self._ledger.settle(id, post.given_up((status, error), through))

    async def outbox(self, *, dead: bool, limit: int, agent: str | None = None) -> list[Delivery]:
        """See `Store`."""
        return self._ledger.post.outbox(dead_ones=dead, limit=limit, agent=agent)

    async def redeliver(self, id: int) -> bool:
        """See `Store`."""
        return bool(self._ledger.settle(id, post.again))

    async def expired(self, agent: str, limit: int) -> list[Row]:
        """See `Store`."""
        return self._ledger.expired(agent, limit)

    async def sweep(self, agent: str, events_ms: int, tasks_ms: int, limit: int) -> int:
        """See `Store`."""
        shrink, go = self._ledger.old(agent, events_ms, tasks_ms, limit)
        for task_id in shrink:
            self._ledger.finished[task_id].drop_log()
        for task_id in go:
            self._ledger.drop(task_id)
            self._ledger.post.drop(task_id)
        return len(shrink) + len(go)

    async def counts(self, agent: str) -> dict[str, int]:
        """See `Store`."""
        return self._ledger.counts(agent)

    async def live(self, scope: Scope) -> int:
        """See `Store`."""
        return self._ledger.count_live(scope)

    async def probe(self) -> None:
        """See `Store`."""

    async def changed(self) -> int:
        """See `Store`."""
        return 0

    async def owned(self, which: AdminFilter, limit: int) -> list[Row]:
        """See `Store`."""
        return self._ledger.owned(which, limit)

    async def erase(self, task_ids: list[str]) -> int:
        """See `Store`."""
        known = [task_id for task_id in task_ids if task_id in self._ledger]
        for task_id in known:
            self._ledger.drop(task_id)
            self._ledger.post.drop(task_id)
        return len(known)

    def _task(self, task_id: str) -> Task:
        live = self._ledger.live.get(task_id)
        return live.task() if live else self._ledger.finished[task_id].thawed()
