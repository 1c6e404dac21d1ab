"""Writes to a SQLite file, in one thread.

Theory. A batch of jobs is one transaction, so many changes share the cost of one fsync. Rows are
read through a small cache (`WriteBatch`), the rules make new rows of them in Python, and the result
is written when the batch is over, or before a job that has to search. A rule refuses a job before
the job has changed anything, so a refused job needs no savepoint and disturbs no other.

The cache is valid as long as no other process writes to the file. `BEGIN IMMEDIATE` takes the write
lock before anything is read, and `PRAGMA data_version` then tells whether another process has
committed since the last batch. What a rule checks is therefore still true when the batch commits,
which is all that claims and fencing need: of two processes that claim one task, the second one
reads the row that the first one has written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec.structs import replace

from dragoman.core.errors import Conflict, DragomanError, Fenced, TaskNotFound
from dragoman.core.outage import Outage

from .. import rules
from ..clock import Clock
from ..codec import BRIEF, pack, pack_piece, unpack_input
from ..limits.run_limits import RunLimits
from ..local.worker_locks import WorkerLocks
from ..local.worker_thread import UNWRITABLE, Job, Outcome, report_unavailable
from ..task_row import Claim, Idempotency, Row, Scope
from ..transfer.sqlite import insert_parts, mark_dropped
from ..transfer.stored_task import StoredTask
from ..writes import Draft, Existing, Input, Unheard, Write
from . import erase, workers
from . import statements as sql
from .batch import INSERT_FROZEN, WriteBatch
from .claims import SqliteQueue
from .database_file import DiskFile
from .outbox import SqliteOutbox

BUSY = 5.0
"""Seconds to wait for another process to finish its commit."""

R = TypeVar("R")

_INSERT_INPUT = "INSERT INTO input (task_id, n, body, key, digest) VALUES (?, ?, ?, ?, ?)"
_WIPE_INPUT = "UPDATE input SET body = ? WHERE task_id = ? AND n = ?"


class SqliteWriter:
    """Owns the write connection. Every public method between `maintain` and `close` is a job; one
    that is named like a method of `Store` keeps its promise."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Clock,
        locks: WorkerLocks,
        file: DiskFile,
        outage: Outage,
    ) -> None:
        self._db = connection
        self._outage = outage
        self._file = file
        self._clock = clock
        self._locks = locks
        self._version = -1
        self._changes = 0
        """The number of times that a change by another process was noticed."""
        self._outbox = SqliteOutbox(connection, clock)
        self._batch = WriteBatch(connection, self._outbox)
        self._queue = SqliteQueue(connection)
        self._clean_locks = False
        """Whether the locks of dead workers are to be removed after the commit."""

    # Batches.

    def run(self, jobs: list[Job]) -> list[Outcome]:
        """Does the jobs in one transaction. If it fails, none of them has happened."""
        looks = [job for job in jobs if job.apply is SqliteWriter.data_version]
        if not looks:
            return self._attempt(self._transaction, jobs)
        # `data_version` stays out of the transaction: it must not wait for the lock of another
        # process, and must not itself be a change, which would make the other processes look.
        changes = [job for job in jobs if job.apply is not SqliteWriter.data_version]
        outcomes = self._attempt(self._peek, looks)
        return outcomes + self._attempt(self._transaction, changes) if changes else outcomes

    def _attempt(self, do: Callable[[list[Job]], list[Outcome]], jobs: list[Job]) -> list[Outcome]:
        try:
            return do(jobs)
        except Exception as error:
            # No error may end the thread: every caller that waits for it would wait forever. One
            # bad job must not fail the others of its batch either, so each is tried separately.
            if len(jobs) > 1 and not _concerns_all(error):
                return [outcome for job in jobs for outcome in self._attempt(do, [job])]
            failure = self._failure(error)
        return [(job, None, failure) for job in jobs]

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.IntegrityError) and str(error).endswith(": task.task_id"):
            return Conflict("A task with this id exists.")
        return report_unavailable(self._outage, UNWRITABLE, error)

    def _peek(self, jobs: list[Job]) -> list[Outcome]:
        return [(job, self.data_version(None), None) for job in jobs]

    def _transaction(self, jobs: list[Job]) -> list[Outcome]:
        execute = self._db.execute
        execute("BEGIN IMMEDIATE")
        try:
            # A batch that only creates ended tasks uses nothing of the cache, and need not check
            # it.
            for job in jobs:
                if job.apply is not SqliteWriter.create or job.argument.ended is None:
                    self._look()
                    break
            outcomes: list[Outcome] = []
            for job in jobs:
                try:
                    outcomes.append((job, job.apply(self, job.argument), None))
                except (DragomanError, Existing, Unheard) as error:
                    outcomes.append((job, None, error))
            self._batch.flush()
            execute("COMMIT")
            # A commit to a file that was deleted succeeds, but nobody will ever find it. The jobs
            # must be reported as failed.
            self._file.check()
            self._outage.end(UNWRITABLE)
        except BaseException:
            self._batch.abandon()
            if self._db.in_transaction:
                execute("ROLLBACK")
            raise
        self._batch.shrink()
        if self._clean_locks:
            self._clean_locks = False
            self._locks.clean(workers.list_workers(self._db))
        return outcomes

    def maintain(self) -> None:
        """Maintains the file while no job waits."""
        self._file.look(self._db, BUSY)

    def _look(self) -> None:
        version = self._db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            # The first version has no earlier one to be compared with.
            self._changes += self._version != -1
            self._version = version
            self._batch.forget_rows()

    def _scoped(self, scope: Scope, task_id: str) -> Row:
        row = self._batch.row(task_id)
        if row is None or not row.belongs_to(scope):
            raise TaskNotFound(task_id=task_id)
        return row

    def _search(self, query: str, *arguments: object) -> list[Row]:
        """Returns the rows that a query finds, with the changes of this batch."""
        self._batch.flush()
        return [sql.row_in(found) for found in self._db.execute(query, arguments)]

    # Jobs: tasks.

    def create(self, draft: Draft) -> None:
        row, key = draft.row, draft.idempotency
        if key is not None:
            self._check_key(row.scope, key)
        if self._batch.is_new(row.task_id):
            raise Conflict("A task with this id exists.", task_id=row.task_id)
        row = rules.open_task(draft)
        log = pack_piece(draft.entries)
        if draft.ended is None:
            self._batch.create(row, key, log)
        else:
            frozen = pack(draft.ended) if len(draft.entries) > BRIEF else None
            self._batch.create_ended(row, key, log, frozen)
        if draft.records:
            self._batch.add_records(row.task_id, draft.records)
        if draft.hook is not None:
            self._outbox.begin(row.scope, draft.hook, sent=0, last=row.last_seq)

    def _check_key(self, scope: Scope, key: Idempotency) -> None:
        place = (scope.agent, scope.tenant, scope.principal, key.key)
        found = self._batch.keys.get(place)
        if found is None:
            found = self._db.execute(sql.BY_KEY, place).fetchone()
        if found is not None:
            raise Existing(found[0], same=found[1] == key.digest)

    def append(self, write: Write) -> None:
        task_id = write.claim.task_id
        before = self._batch.row(task_id)
        if before is None:
            raise Fenced(task_id=task_id)
        row = rules.append(before, write)
        # Everything is encoded before anything changes: an event that cannot be encoded must not
        # leave half of its write behind.
        piece = pack_piece(write.entries) if write.entries else b""
        frozen = pack(write.ended) if write.ended is not None else b""
        self._batch.append(row, write, piece, frozen)
        if write.forget:
            self._wipe(task_id, write.forget)
        if task_id in self._outbox.tasks:
            self._outbox.grow(task_id)

    def _wipe(self, task_id: str, numbers: Iterable[int]) -> None:
        self._file.secrets = True
        with erase.without_trace(self._db):
            for n in numbers:
                found = self._db.execute(sql.INPUT, (task_id, n)).fetchone()
                if found is not None:
                    bare = pack(rules.wipe(unpack_input(found[0])))
                    self._db.execute(_WIPE_INPUT, (bare, task_id, n))

    def claim(self, argument: tuple[str, str, int, RunLimits]) -> list[Row]:
        worker, agent, limit, limits = argument
        if not workers.is_enlisted(self._db, worker):
            return []
        self._batch.flush()
        # The write lock is held, so no other process can claim these rows before we commit.
        ids = self._queue.pick(agent, limit, limits, self._clock())
        rows = [row for row in map(self._batch.row, ids) if row is not None]
        taken = [rules.claim(row, worker) for row in rows]
        for row in taken:
            self._batch.put(row)
        return taken

    def seize(self, argument: tuple[str, str, int]) -> Row | None:
        worker, task_id, epoch = argument
        row = self._batch.row(task_id)
        if row is None or row.final or row.epoch != epoch:
            return None
        if not workers.is_enlisted(self._db, worker):
            return None
        row = rules.claim(row, worker)
        self._batch.put(row)
        return row

    def release(self, argument: tuple[Claim, bool]) -> None:
        claim, runnable = argument
        row = self._batch.row(claim.task_id)
        if row is not None and rules.holds(row, claim):
            self._batch.put(rules.release(row, self._clock(), runnable=runnable))

    def discard(self, claim: Claim) -> None:
        row = self._batch.row(claim.task_id)
        if row is not None and rules.holds(row, claim):
            self._batch.flush()
            self._batch.remove(erase.delete(self._db, [claim.task_id]))

    def add_input(self, argument: tuple[Scope, str, Input, str | None]) -> Row:
        scope, task_id, said, question = argument
        key = said.key
        if key is not None:
            self._check_key(scope, key)
        row, answers = rules.add_input(
            self._scoped(scope, task_id), self._clock(), question, said.by
        )
        body = pack(replace(said, question=answers, n=row.inputs))
        mark = (None, None) if key is None else (key.key, key.digest)
        self._db.execute(_INSERT_INPUT, (task_id, row.inputs, body, *mark))
        if key is not None:
            place = (scope.agent, scope.tenant, scope.principal, key.key)
            self._batch.keys[place] = (task_id, key.digest)
        self._batch.put(row)
        return row

    def ask_cancel(self, argument: tuple[Scope, str]) -> Row:
        row = self._scoped(*argument)
        if not row.final and not row.cancel:
            row = rules.request_cancel(row, self._clock())
            self._batch.put(row)
        return row

    # Jobs: workers.

    def enlist(self, argument: tuple[str, int]) -> None:
        # The lock comes first: a worker that is known but not locked would count as dead.
        self._locks.take(*argument)
        workers.enlist(self._db, argument[0])

    def retire(self, worker: str) -> None:
        now = self._clock()
        self._note_time(now)
        workers.dismiss(self._db, [worker])
        for row in self._search(sql.BY_WORKER, worker):
            self._batch.put(rules.release(row, now, runnable=not row.resting))
        self._locks.drop(worker)

    def reap(self, _: None) -> list[str]:
        now = self._clock()
        self._note_time(now)
        known = workers.list_workers(self._db)
        alive = {name for name in known if self._locks.alive(name)}
        workers.dismiss(self._db, (name for name in known if name not in alive))
        # Their locks are removed after the commit: until then they may still be needed.
        self._clean_locks = True
        self._batch.flush()
        # A task may also be held by a worker that was never enlisted.
        holders = [name for (name,) in self._db.execute(sql.HOLDERS)]
        lost: list[str] = []
        for name in holders:
            if name not in alive:
                for row in self._search(sql.BY_WORKER, name):
                    self._batch.put(rules.reap(row, now))
                    lost.append(row.task_id)
        return lost

    def _note_time(self, now: int) -> None:
        self._batch.flush()
        if workers.note_time(self._db, now, self._outbox.hold):
            self._batch.forget_rows()

    # Jobs: webhooks and sessions.

    def use_outbox(self, job: Callable[[SqliteOutbox], R]) -> R:
        """Does a job on the outbox, which sees the changes of this batch."""
        self._batch.flush()
        return job(self._outbox)

    def do(self, job: Callable[[sqlite3.Connection], R]) -> R:
        """Does a job that concerns no task."""
        return job(self._db)

    def do_flushed(self, job: Callable[[sqlite3.Connection], R]) -> R:
        """Does a job that counts tasks, so it has to see the changes of this batch."""
        self._batch.flush()
        return job(self._db)

    # Jobs: housekeeping.

    def sweep(self, argument: tuple[str, int, int, int]) -> int:
        agent, events_ms, tasks_ms, limit = argument
        now = self._clock()
        self._batch.flush()
        gone = self._db.execute(sql.GONE, (agent, now - tasks_ms, limit)).fetchall()
        self._batch.remove(gone)
        names = [(name,) for name, *_ in gone]
        for table in sql.DELETE_TASK:
            self._db.executemany(table, names)
        old = (agent, now - events_ms, limit - len(gone))
        shrink = self._db.execute(sql.OLD, old).fetchall()
        # A brief task was never frozen, so its log is added up before it is dropped (ADR 0012).
        bare = [name for (name,) in shrink if not self._db.execute(sql.FROZEN, (name,)).fetchone()]
        self._db.executemany(
            INSERT_FROZEN, [(name, pack(sql.task_in(self._db, name))) for name in bare]
        )
        self._db.executemany(sql.DROP_LOG, shrink)
        self._db.executemany(sql.MARK_DROPPED, shrink)
        self._db.execute(sql.NOTHING_LEFT)
        return len(gone) + len(shrink)

    def erase(self, task_ids: list[str]) -> int:
        self._batch.flush()
        gone = erase.erase(self._db, task_ids)
        self._batch.remove(gone)
        return len(gone)

    def import_tasks(self, tasks: list[StoredTask]) -> None:
        """Stores tasks as they are, in place of those with the same ids."""
        self.erase([each.row.task_id for each in tasks])
        for each in tasks:
            key, bare = each.split_keys()
            self._batch.restore(each, key)
            insert_parts(self._db, each, bare)
        self._batch.flush()
        mark_dropped(self._db, tasks)
        self._batch.forget_rows()

    def probe(self, _: None) -> None:
        workers.probe(self._db)

    def data_version(self, _: None) -> int:
        self._look()
        return self._changes

    def close(self) -> None:
        """Closes the file and releases the locks of the workers."""
        self._locks.let_go()
        self._db.close()


def _concerns_all(error: Exception) -> bool:
    """Returns whether the file as a whole is in trouble. Otherwise a single job may be the cause:
    one that is too large for the disk, or holds something that SQLite cannot store."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_FULL
