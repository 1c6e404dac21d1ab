"""`sqlite:///path` keeps tasks in a SQLite file, the default.

One thread writes and a few read (`writer.py`, `reader.py`). Many changes share one commit, and a
change is reported as done only when it is on the disk. Several processes may use one file, which
must be on a local disk: the write-ahead log needs memory that its processes share.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dragoman.core.errors import ConfigError
from dragoman.core.events import ArtifactChunk
from dragoman.core.log import Logger
from dragoman.core.model import Hook, Task
from dragoman.core.outage import Outage

from ..bulkheads import Bulkheads
from ..clock import Clock, steady_of
from ..interface import AdminFilter, Delivery, Filter, Listing, Page
from ..limits.budgets import BudgetStore
from ..limits.run_limits import NO_LIMITS, RunLimits
from ..link_keys import LinkKeyStore
from ..link_status import LinkStatusStore
from ..local.worker_locks import WorkerLocks
from ..local.worker_thread import WorkerThread
from ..outbox import OutboxCalls, Rule
from ..registry import RegistryStore
from ..replicas import ReplicaStore
from ..sessions import SessionStore
from ..task_row import Claim, HeldTask, Row, Scope
from ..transfer.sqlite import SqliteTransfer
from ..transfer.stored_task import StoredTask, TransferStore
from ..writes import Done, Draft, Input, Record, Write
from .budgets import SqliteBudgets
from .database_file import FOLDED, PAGE, DiskFile, make_private
from .erase import wipe_log
from .link_keys import SqliteLinkKeys
from .migrations import migrate, scripts
from .outbox import SqliteOutbox
from .reader import SqliteReader
from .registry import SqliteRegistry
from .reports import SqliteLinkStatus, SqliteReplicas
from .sessions import Job, SqliteSessions
from .workers import is_enlisted, list_workers
from .writer import BUSY, SqliteWriter

log = Logger("store")

R = TypeVar("R")

BATCH = 512
"""The maximum number of changes that share one commit."""
COMMIT_DELAY = 0.002
"""The seconds between two commits of nothing but chunks. Without it, many slow streams would commit
almost every chunk alone, and a commit costs more than ten chunks; readers see them 1 ms later on
average. The first chunk after a pause, and everything else, is committed at once."""
READERS = 2
"""The number of threads that read single tasks. Lists may take long, so they have a thread of their
own."""

_SETUP = (
    "PRAGMA synchronous = FULL",
    f"PRAGMA wal_autocheckpoint = {FOLDED}",
    f"PRAGMA journal_size_limit = {FOLDED * PAGE}",
    "PRAGMA secure_delete = FAST",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA temp_store = MEMORY",
)


class SqliteStore(OutboxCalls):
    """Implements `Store`: each method is a job for one of its threads."""

    shared = True

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self.outage = Outage(f"The store {path.name}", clock, log)
        self._locks: WorkerLocks
        self._writes: WorkerThread[SqliteWriter]
        self._reads: WorkerThread[SqliteReader]
        self._lists: WorkerThread[SqliteReader]
        self.sessions: SessionStore = SqliteSessions(self._write, self._read, clock)
        self.registry: RegistryStore = SqliteRegistry(self._write, self._read, clock)
        self.link_keys: LinkKeyStore = SqliteLinkKeys(self._write, self._read, clock)
        self.link_status: LinkStatusStore = SqliteLinkStatus(self._write, self._read, clock)
        self.budgets: BudgetStore = SqliteBudgets(self._write_flushed, self._read, clock)
        self.replicas: ReplicaStore = SqliteReplicas(self._write, self._read, clock)
        self.transfer: TransferStore = SqliteTransfer(
            self, self._write, self._list, self._import_tasks, clock
        )

    async def open(self) -> None:
        folder = self._path.with_name(self._path.name + "-workers")
        self._locks = WorkerLocks(folder, steady_of(self._clock))
        write, reads = await asyncio.to_thread(self._connect)
        writer = SqliteWriter(write, self._clock, self._locks, DiskFile(self._path), self.outage)
        self._writes = WorkerThread(
            "write", [writer], limit=BATCH, patient=True, delay=COMMIT_DELAY
        )
        readers = [SqliteReader(read, self._clock, self.outage) for read in reads]
        self._reads = WorkerThread("read", [*readers[1:]], limit=BATCH)
        self._lists = WorkerThread("list", [readers[0]], limit=BATCH)

    async def close(self) -> None:
        await self._lists.close()
        await self._reads.close()
        await self._writes.close()

    def _connect(self) -> tuple[sqlite3.Connection, list[sqlite3.Connection]]:
        if not self._path.parent.is_dir():
            raise ConfigError(f"There is no folder {self._path.parent} for the store.")
        opened: list[sqlite3.Connection] = []
        try:
            make_private(self._path)
            write = _connection(self._path)
            opened.append(write)
            _write_ahead(write, self._path)
            migrate(write, str(self._path), scripts())
            for _ in range(1 + READERS):
                opened.append(_connection(self._path))
                opened[-1].execute("PRAGMA query_only = ON")
        except (OSError, sqlite3.Error, ConfigError) as error:
            for connection in opened:
                connection.close()
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{self._path} cannot be used as a store: {error}.") from error
        return write, opened[1:]

    def create(self, draft: Draft, done: Done) -> None:
        self._writes.submit(SqliteWriter.create, draft, done, whole=draft.ended is not None)

    def append(self, write: Write, done: Done) -> None:
        # A chunk waits only for its readers, unlike the end of a task, a question or a record.
        may_wait = (
            write.ended is None
            and not write.records
            and bool(write.entries)
            and type(write.entries[-1].event) is ArtifactChunk
        )
        self._writes.submit(SqliteWriter.append, write, done, may_wait=may_wait)

    async def enlist(self, worker: str, lease_ms: int) -> None:
        await self._writes.ask(SqliteWriter.enlist, (worker, lease_ms))

    async def beat(self, worker: str, lease_ms: int) -> bool:
        # The lease is not in the database. If renewing it had to wait for the writer, a slow disk
        # or a long transaction of another process would cost live workers their leases.
        def job(db: sqlite3.Connection) -> bool:
            return is_enlisted(db, worker) and self._locks.beat(worker, lease_ms)

        return await self._read(job)

    async def list_held_tasks(self, worker: str) -> list[HeldTask]:
        return await self._reads.ask(SqliteReader.list_held_tasks, worker)

    async def list_workers(self) -> list[str]:
        def job(db: sqlite3.Connection) -> list[str]:
            return [name for name in list_workers(db) if self._locks.alive(name)]

        return await self._read(job)

    async def retire(self, worker: str) -> None:
        await self._writes.ask(SqliteWriter.retire, worker)

    async def reap(self) -> list[str]:
        return await self._writes.ask(SqliteWriter.reap, None)

    async def claim(
        self, worker: str, agent: str, limit: int, limits: RunLimits = NO_LIMITS
    ) -> list[Row]:
        return await self._writes.ask(SqliteWriter.claim, (worker, agent, limit, limits))

    async def seize(self, worker: str, task_id: str, epoch: int) -> Row | None:
        return await self._writes.ask(SqliteWriter.seize, (worker, task_id, epoch))

    async def release(self, claim: Claim, *, runnable: bool) -> None:
        await self._writes.ask(SqliteWriter.release, (claim, runnable))

    async def discard(self, claim: Claim) -> None:
        await self._writes.ask(SqliteWriter.discard, claim)

    async def add_input(self, scope: Scope, task_id: str, said: Input, question: str | None) -> Row:
        return await self._writes.ask(SqliteWriter.add_input, (scope, task_id, said, question))

    async def find_key(self, scope: Scope, key: str) -> tuple[str, bytes] | None:
        return await self._reads.ask(SqliteReader.find_key, (scope, key))

    async def ask_cancel(self, scope: Scope, task_id: str) -> Row:
        return await self._writes.ask(SqliteWriter.ask_cancel, (scope, task_id))

    async def row(self, scope: Scope, task_id: str) -> Row:
        return await self._reads.ask(SqliteReader.row, (scope, task_id))

    async def load(self, scope: Scope, task_id: str) -> tuple[Row, Task]:
        return await self._reads.ask(SqliteReader.load, (scope, task_id))

    async def read(self, scope: Scope, task_id: str, after: int, limit: int) -> Page:
        return await self._reads.ask(SqliteReader.read, (scope, task_id, after, limit))

    async def find(self, scope: Scope, which: Filter, limit: int) -> Listing:
        return await self._lists.ask(SqliteReader.find, (scope, which, limit))

    async def inputs(self, claim: Claim) -> list[Input]:
        return await self._reads.ask(SqliteReader.inputs, claim)

    async def records(self, claim: Claim) -> list[Record]:
        return await self._reads.ask(SqliteReader.records, claim)

    async def records_of(self, scope: Scope, task_id: str) -> list[Record]:
        return await self._reads.ask(SqliteReader.records_of, (scope, task_id))

    async def set_hook(self, scope: Scope, hook: Hook) -> None:
        await self._write_outbox(lambda outbox: outbox.set_hook(scope, hook))

    async def hooks(self, scope: Scope, task_id: str) -> list[Hook]:
        return await self._read_outbox(lambda outbox: outbox.hooks(scope, task_id))

    async def delete_hook(self, scope: Scope, task_id: str, hook_id: str) -> None:
        await self._write_outbox(lambda outbox: outbox.delete_hook(scope, task_id, hook_id))

    async def claim_deliveries(
        self, agent: str, limit: int, hold_ms: int, bulkheads: Bulkheads | None = None
    ) -> list[Delivery]:
        return await self._write_outbox(
            lambda outbox: outbox.claim_deliveries(agent, limit, hold_ms, bulkheads)
        )

    async def _settle(self, id: int, rule: Rule) -> bool:
        return await self._write_outbox(lambda outbox: outbox.settle(id, rule))

    async def outbox(self, *, dead: bool, limit: int, agent: str | None = None) -> list[Delivery]:
        return await self._read_outbox(
            lambda outbox: outbox.outbox(dead=dead, limit=limit, agent=agent)
        )

    async def _write_outbox(self, job: Callable[[SqliteOutbox], R]) -> R:
        return await self._writes.ask(SqliteWriter.use_outbox, job)

    async def _read_outbox(self, job: Callable[[SqliteOutbox], R]) -> R:
        return await self._reads.ask(SqliteReader.use_outbox, job)

    async def _write(self, job: Job[R]) -> R:
        return await self._writes.ask(SqliteWriter.do, job)

    async def _write_flushed(self, job: Job[R]) -> R:
        return await self._writes.ask(SqliteWriter.do_flushed, job)

    async def _read(self, job: Job[R]) -> R:
        return await self._reads.ask(SqliteReader.do, job)

    async def _list(self, job: Job[R]) -> R:
        return await self._lists.ask(SqliteReader.do, job)

    async def _import_tasks(self, tasks: list[StoredTask]) -> None:
        await self._writes.ask(SqliteWriter.import_tasks, tasks)

    async def count_unfinished(self, scope: Scope) -> int:
        return await self._reads.ask(SqliteReader.count_unfinished, scope)

    async def count_queued(self, agent: str, limit: int) -> int:
        return await self._reads.ask(SqliteReader.count_queued, (agent, limit))

    async def probe(self) -> None:
        await self._writes.ask(SqliteWriter.probe, None)

    async def list_expired_tasks(self, agent: str, limit: int) -> list[Row]:
        return await self._lists.ask(SqliteReader.list_expired_tasks, (agent, limit))

    async def agents_due(self) -> set[str]:
        return await self._reads.ask(SqliteReader.agents_due, None)

    async def sweep(self, agent: str, events_ms: int, tasks_ms: int, limit: int) -> int:
        return await self._writes.ask(SqliteWriter.sweep, (agent, events_ms, tasks_ms, limit))

    async def count_by_state(self, agent: str) -> dict[str, int]:
        return await self._lists.ask(SqliteReader.count_by_state, agent)

    async def data_version(self) -> int:
        return await self._writes.ask(SqliteWriter.data_version, None)

    async def find_in_all_scopes(self, which: AdminFilter, limit: int) -> list[Row]:
        return await self._lists.ask(SqliteReader.find_in_all_scopes, (which, limit))

    async def erase(self, task_ids: list[str]) -> int:
        gone = await self._writes.ask(SqliteWriter.erase, task_ids)
        await asyncio.to_thread(wipe_log, self._path)
        return gone

    async def remove_traces(self, seconds: float) -> bool:
        return await asyncio.to_thread(wipe_log, self._path, seconds)


def _connection(path: Path) -> sqlite3.Connection:
    # Only one thread uses the connection, but it is not the thread that creates it.
    connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False)
    for pragma in _SETUP:
        connection.execute(pragma)
    return connection


def _write_ahead(connection: sqlite3.Connection, path: Path) -> None:
    """Turns on the write-ahead log. SQLite fails at once if another process does so at the same
    moment, so we try again."""
    until = time.monotonic() + BUSY
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.02)
            continue
        if mode != "wal":
            raise ConfigError(f"{path} cannot have a write-ahead log here; use a local disk.")
        return
