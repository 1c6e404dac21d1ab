"""`postgresql://...` keeps tasks on PostgreSQL 15 or newer, for any number of processes.

Changes of tasks share statements (`commit_queue.py`), everything else is a transaction of its own
(`claims.py`, `outbox.py`, `retention.py`) or a read (`reader.py`). What a process knows about the
database is in `pool.py`: how it is reached, and what becomes of work whose connection is
lost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import asyncpg
from msgspec.structs import replace

from dragoman.core.errors import ConfigError, StoreUnavailable, TaskNotFound
from dragoman.core.model import Hook, Task

from ..bulkheads import Bulkheads
from ..clock import Clock
from ..interface import AdminFilter, Delivery, Filter, Listing, Page
from ..limits.budgets import BudgetStore
from ..limits.run_limits import NO_LIMITS, FairTurns, RunLimits
from ..link_keys import LinkKeyStore
from ..link_status import LinkStatusStore
from ..outbox import OutboxCalls, Rule
from ..registry import RegistryStore
from ..replicas import ReplicaStore
from ..sessions import SessionStore
from ..task_row import Claim, HeldTask, Row, Scope
from ..transfer.postgres import PostgresTransfer
from ..transfer.stored_task import TransferStore
from ..writes import Done, Draft, Input, Record, Write
from . import claims, outbox, reader, retention
from .address import parse_address
from .commit_queue import CommitQueue
from .database_clock import DatabaseClock
from .limits import run_queue
from .limits.budgets import PostgresBudgets
from .link_keys import PostgresLinkKeys
from .migrations import migrate, newest, scripts
from .pool import STATEMENT, Database, DatabasePool, Job
from .registry import PostgresRegistry
from .reports import PostgresLinkStatus, PostgresReplicas
from .sessions import PostgresSessions

R = TypeVar("R")

LEAVING = 2.0
"""Seconds for which a store that is closed waits for a database that is away."""
LOOK = 1000
"""Milliseconds after which readers look again, whether or not they were told of a change."""
PROBE = 2.0
"""Seconds for which a probe waits for a database that is away."""

_PROBE = "UPDATE dragoman.clock SET probes = probes + 1"
_WATCH = """
UPDATE dragoman.task SET watched = true
WHERE task_id = ANY($1::text[]) AND ended = 0 AND NOT watched RETURNING task_id"""


class PostgresStore(OutboxCalls):
    """Implements `WatchedStore`."""

    shared = True

    def __init__(self, url: str, clock: Clock) -> None:
        self._pool = DatabasePool(parse_address(url), clock)
        self.outage = self._pool.outage
        self._time = DatabaseClock(clock)
        self._layouts = scripts()
        self._queue: CommitQueue
        self._workers: set[str] = set()
        """The workers of this process."""
        self._turns = FairTurns()
        self._hold = 0
        """The longest time in milliseconds for which a delivery was taken."""
        self.on_news: Callable[[list[str]], None] = lambda task_ids: None
        """Called with the tasks that have news for other processes, after the commit."""
        self.sessions: SessionStore = PostgresSessions(self._pool, self._time)
        self.registry: RegistryStore = PostgresRegistry(self._pool, self._time)
        self.link_keys: LinkKeyStore = PostgresLinkKeys(self._pool, self._time)
        self.link_status: LinkStatusStore = PostgresLinkStatus(self._pool, self._time)
        self.budgets: BudgetStore = PostgresBudgets(self._pool, self._time)
        self.replicas: ReplicaStore = PostgresReplicas(self._pool, self._time)
        self.transfer: TransferStore = PostgresTransfer(self, self._pool)

    async def open(self) -> None:
        await self._pool.open()

        async def prepare(db: Database) -> None:
            await migrate(db, self._layouts)
            await self._time.ask(db)

        try:
            await self._pool.write(prepare, STATEMENT)
        except (asyncpg.PostgresError, ConfigError) as error:
            await self._pool.close()
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"The tables of the store cannot be made: {error}.") from error
        self._queue = CommitQueue(self._pool, self._time, lambda task_ids: self.on_news(task_ids))

    async def close(self) -> None:
        await self._queue.close()
        workers = list(self._workers)
        if workers:
            with suppress(StoreUnavailable):  # their leases run out by themselves
                await self._pool.read(lambda db: claims.end_leases(db, workers), LEAVING)
        await self._pool.close()

    async def _read(self, job: Job[R]) -> R:
        return await self._pool.read(job)

    async def _write(self, job: Job[R]) -> R:
        """For a change that a caller waits for."""
        return await self._pool.write(job)

    async def _work(self, job: Job[R]) -> R:
        """For a change of our own, which has time to wait for a database that is away."""
        return await self._pool.write(job, STATEMENT)

    # Workers.

    async def enlist(self, worker: str, lease_ms: int) -> None:
        async def job(db: Database) -> None:
            until = await self._time.ask(db) + lease_ms
            await claims.enlist(db, worker, until, newest(self._layouts))

        await self._read(job)
        self._workers.add(worker)

    async def beat(self, worker: str, lease_ms: int) -> bool:
        async def job(db: Database) -> bool:
            return await claims.beat(db, worker, await self._time.ask(db) + lease_ms)

        return await self._read(job)

    async def list_workers(self) -> list[str]:
        async def job(db: Database) -> list[str]:
            return await claims.list_workers(db, await self._time.ask(db))

        return await self._read(job)

    async def list_held_tasks(self, worker: str) -> list[HeldTask]:
        return await self._read(lambda db: reader.list_held_tasks(db, worker))

    async def retire(self, worker: str) -> None:
        await self._work(lambda db: claims.retire(db, worker, self._time(), self._hold))
        self._workers.discard(worker)

    async def reap(self) -> list[str]:
        async def job(db: Database) -> list[str]:
            lease_now = await self._time.ask(db)
            return await claims.reap(db, self._time(), lease_now, self._hold)

        return await self._work(job)

    # Tasks: writing.

    def create(self, draft: Draft, done: Done) -> None:
        row = draft.row
        if row.runnable:
            run_at = self._time.from_ours(row.run_at)
            draft = replace(draft, row=replace(row, run_at=run_at))
        self._queue.submit(draft, row.task_id, done, whole=draft.ended is not None)

    def append(self, write: Write, done: Done) -> None:
        self._queue.submit(write, write.claim.task_id, done)

    async def claim(
        self, worker: str, agent: str, limit: int, limits: RunLimits = NO_LIMITS
    ) -> list[Row]:
        async def job(db: Database) -> list[Row]:
            now = self._time()
            return await run_queue.claim(db, worker, agent, limit, limits, now, self._turns)

        return await self._work(job)

    async def seize(self, worker: str, task_id: str, epoch: int) -> Row | None:
        taken = await self._work(lambda db: claims.seize(db, worker, task_id, epoch))
        if taken is not None:
            self.on_news([task_id])
        return taken

    async def release(self, claim: Claim, *, runnable: bool) -> None:
        await self._work(lambda db: claims.release(db, claim, self._time(), runnable=runnable))

    async def discard(self, claim: Claim) -> None:
        await self._write(lambda db: claims.discard(db, claim))

    # Tasks: the caller's side.

    async def add_input(self, scope: Scope, task_id: str, said: Input, question: str | None) -> Row:
        _check_task_id(task_id)
        row = await self._write(
            lambda db: claims.add_input(db, scope, task_id, said, question, self._time())
        )
        self._tell_worker(row)
        return row

    async def ask_cancel(self, scope: Scope, task_id: str) -> Row:
        _check_task_id(task_id)
        row = await self._write(lambda db: claims.ask_cancel(db, scope, task_id, self._time()))
        self._tell_worker(row)
        return row

    def _tell_worker(self, row: Row) -> None:
        if row.worker and row.worker not in self._workers:
            self.on_news([row.task_id])

    async def watch(self, task_ids: list[str]) -> list[str]:
        return [task_id for (task_id,) in await self._read(lambda db: db.fetch(_WATCH, task_ids))]

    async def find_key(self, scope: Scope, key: str) -> tuple[str, bytes] | None:
        return await self._read(lambda db: reader.find_key(db, scope, key))

    async def row(self, scope: Scope, task_id: str) -> Row:
        return await self._read_task(task_id, lambda db: reader.row(db, scope, task_id))

    async def load(self, scope: Scope, task_id: str) -> tuple[Row, Task]:
        return await self._read_task(task_id, lambda db: reader.load(db, scope, task_id))

    async def read(self, scope: Scope, task_id: str, after: int, limit: int) -> Page:
        return await self._read_task(
            task_id, lambda db: reader.read(db, scope, task_id, after, limit)
        )

    async def _read_task(self, task_id: str, job: Job[R]) -> R:
        _check_task_id(task_id)
        return await self._read(job)

    async def find(self, scope: Scope, which: Filter, limit: int) -> Listing:
        if "\0" in which.context_id:
            return Listing([], [], 0)
        return await self._read(lambda db: reader.find(db, scope, which, limit))

    # Runs.

    async def inputs(self, claim: Claim) -> list[Input]:
        return await self._read(lambda db: reader.inputs(db, claim))

    async def records(self, claim: Claim) -> list[Record]:
        return await self._read(lambda db: reader.records(db, claim))

    async def records_of(self, scope: Scope, task_id: str) -> list[Record]:
        return await self._read_task(task_id, lambda db: reader.records_of(db, scope, task_id))

    # Webhooks.

    async def set_hook(self, scope: Scope, hook: Hook) -> None:
        _check_task_id(hook.task_id)
        await self._write(lambda db: outbox.set_hook(db, scope, hook, self._time()))

    async def hooks(self, scope: Scope, task_id: str) -> list[Hook]:
        return await self._read_task(task_id, lambda db: outbox.hooks(db, scope, task_id))

    async def delete_hook(self, scope: Scope, task_id: str, hook_id: str) -> None:
        _check_task_id(task_id)
        if "\0" not in hook_id:
            await self._write(lambda db: outbox.delete_hook(db, scope, task_id, hook_id))

    async def claim_deliveries(
        self, agent: str, limit: int, hold_ms: int, bulkheads: Bulkheads | None = None
    ) -> list[Delivery]:
        self._hold = max(self._hold, hold_ms)
        return await self._work(
            lambda db: outbox.claim_deliveries(db, agent, limit, self._time(), hold_ms, bulkheads)
        )

    async def _settle(self, id: int, rule: Rule) -> bool:
        return await self._work(lambda db: outbox.settle(db, id, rule, self._time()))

    async def outbox(self, *, dead: bool, limit: int, agent: str | None = None) -> list[Delivery]:
        return await self._read(lambda db: outbox.outbox(db, dead=dead, limit=limit, agent=agent))

    # Housekeeping.

    async def list_expired_tasks(self, agent: str, limit: int) -> list[Row]:
        return await self._read(
            lambda db: reader.list_expired_tasks(db, self._time(), agent, limit)
        )

    async def agents_due(self) -> set[str]:
        return await self._read(lambda db: reader.agents_due(db, self._time()))

    async def sweep(self, agent: str, events_ms: int, tasks_ms: int, limit: int) -> int:
        now = self._time()
        return await self._work(
            lambda db: retention.sweep(db, agent, now - events_ms, now - tasks_ms, limit)
        )

    async def count_by_state(self, agent: str) -> dict[str, int]:
        return await self._read(lambda db: reader.count_by_state(db, agent))

    async def count_unfinished(self, scope: Scope) -> int:
        return await self._read(lambda db: reader.count_unfinished(db, scope))

    async def count_queued(self, agent: str, limit: int) -> int:
        return await self._read(lambda db: run_queue.count_queued(db, agent, limit))

    async def probe(self) -> None:
        await self._pool.read(lambda db: db.execute(_PROBE), PROBE)
        self.outage.end()

    async def data_version(self) -> int:
        # Other processes tell what they change, but a message may be lost. What waits for one looks
        # again every second.
        return self._time() // LOOK

    async def find_in_all_scopes(self, which: AdminFilter, limit: int) -> list[Row]:
        return await self._read(lambda db: retention.find_in_all_scopes(db, which, limit))

    async def erase(self, task_ids: list[str]) -> int:
        return await self._work(lambda db: retention.erase(db, task_ids))

    async def remove_traces(self, seconds: float) -> bool:
        return True


def _check_task_id(task_id: str) -> None:
    """Raises `TaskNotFound` for an id that no task here has: no text in PostgreSQL contains NUL."""
    if "\0" in task_id:
        raise TaskNotFound(task_id=task_id)
