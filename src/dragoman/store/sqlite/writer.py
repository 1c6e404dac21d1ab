"""The one who writes to a SQLite file.

Theory. A batch of jobs is one transaction. Rows are read through a small cache, the rules make new
rows of them in Python, and what came out is written with one `executemany` per table when the batch
is over (or before a job that has to search). A job is refused by its rule before it changed
anything, so it disturbs no other. The cache holds while nobody else wrote to the file, which
`PRAGMA data_version` tells; a task opened and ended in one batch is written once.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec.structs import replace

from dragoman.core.errors import Conflict, DragomanError, Fenced, StoreUnavailable, TaskNotFound
from dragoman.core.log import Logger

from .. import rules
from ..codec import BRIEF, pack, unpack_input
from ..interface import Claim, Draft, Existing, Idempotency, Input, Row, Scope, Unheard, Write
from ..memory.ledger import Clock
from ..memory.records import Key
from ..worker_locks import WorkerLocks
from ..worker_thread import Job, Outcome
from . import erase as sqlite_owned
from . import statements as rows
from . import workers as workers
from .database_file import DiskFile
from .outbox import SqliteOutbox

log = Logger("store")

BUSY = 5.0
"""Seconds to wait for another process to finish its commit."""
CACHE = 8192
"""Rows remembered between two batches at the most."""

R = TypeVar("R")

_INSERT_PIECE = "INSERT INTO piece (task_id, seq, final, body) VALUES (?, ?, ?, ?)"
_INSERT_FROZEN = "INSERT INTO frozen (task_id, body) VALUES (?, ?)"
_INSERT_INPUT = "INSERT INTO input (task_id, n, body, key, digest) VALUES (?, ?, ?, ?, ?)"
_WIPE_INPUT = "UPDATE input SET body = ? WHERE task_id = ? AND n = ?"
_INSERT_RECORD = """
INSERT INTO record (task_id, n, key, value, seq)
SELECT ?1, coalesce(max(n), 0) + 1, ?2, ?3, ?4 FROM record WHERE task_id = ?1
ON CONFLICT (task_id, key) DO NOTHING"""
_TALLY = """
INSERT INTO tally (agent, tenant, principal, state, n) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (agent, tenant, principal, state) DO UPDATE SET n = n + excluded.n"""


class SqliteWriter:
    """Owns the write connection. Lives in its own thread."""

    def __init__(
        self, connection: sqlite3.Connection, clock: Clock, locks: WorkerLocks, file: DiskFile
    ) -> None:
        self._db = connection
        self._file = file
        self._clock = clock
        self._locks = locks
        self._version = -1
        self._changes = 0
        """How often it was seen that someone else has written."""
        self._rows: dict[str, Row] = {}
        self._post = SqliteOutbox(connection, clock)
        # What this batch will write.
        self._new: dict[str, tuple[Idempotency | None, bytes | None]] = {}
        self._keys: dict[Key, tuple[str, bytes]] = {}
        self._touched: dict[str, None] = {}
        self._pieces: list[tuple[str, int, int, bytes]] = []
        self._frozen: list[tuple[str, bytes]] = []
        self._over: list[str] = []
        self._records: list[tuple[str, str, bytes, int]] = []
        self._tally: Counter[tuple[str, str, str, str]] = Counter()
        self._tidy = False

    # Batches.

    def run(self, jobs: list[Job]) -> list[Outcome]:
        """Does the jobs in one transaction. If it fails, nothing of it happened."""
        looks = [job for job in jobs if job.apply is SqliteWriter.changed]
        if not looks:
            return self._attempt(self._transaction, jobs)
        # A look at others' changes waits for no lock, and must not look like a change itself.
        changes = [job for job in jobs if job.apply is not SqliteWriter.changed]
        outcomes = self._attempt(self._peek, looks)
        return outcomes + self._attempt(self._transaction, changes) if changes else outcomes

    def _attempt(self, way: Callable[[list[Job]], list[Outcome]], jobs: list[Job]) -> list[Outcome]:
        try:
            return way(jobs)
        except Exception as error:
            # Whatever it is, it must not end the thread: all who wait would wait for ever.
            if len(jobs) > 1 and not _concerns_all(error):
                return [outcome for job in jobs for outcome in self._attempt(way, [job])]
            failure = _failure(error)
        return [(job, None, failure) for job in jobs]

    def _peek(self, jobs: list[Job]) -> list[Outcome]:
        return [(job, self.changed(None), None) for job in jobs]

    def _transaction(self, jobs: list[Job]) -> list[Outcome]:
        execute = self._db.execute
        execute("BEGIN IMMEDIATE")
        try:
            if any(job.apply is not SqliteWriter.create for job in jobs):
                self._look()  # who only opens tasks relies on nothing that is remembered
            outcomes: list[Outcome] = []
            for job in jobs:
                try:
                    outcomes.append((job, job.apply(self, job.argument), None))
                except (DragomanError, Existing, Unheard) as error:
                    outcomes.append((job, None, error))
            self._flush()
            execute("COMMIT")
            self._file.check()
        except BaseException:
            self._forget_batch()
            if self._db.in_transaction:
                execute("ROLLBACK")
            raise
        if len(self._rows) > CACHE:
            self._forget_rows()
        if self._tidy:
            self._tidy = False
            self._locks.clean(workers.known(self._db))
        return outcomes

    def rest(self) -> None:
        """See `Side`."""
        self._file.look(self._db, BUSY)

    def _look(self) -> None:
        version = self._db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            # The first look tells nothing: there was no earlier one to compare with.
            self._changes += self._version != -1
            self._version = version
            self._forget_rows()

    def _forget_rows(self) -> None:
        self._rows.clear()
        self._post.tasks.clear()

    def _forget_batch(self) -> None:
        self._forget_rows()
        self._clear()

    def _flush(self) -> None:
        """Writes what the jobs so far have changed."""
        many = self._db.executemany
        kept = self._rows
        if self._new:
            many(rows.INSERT, [rows.created(kept[name], *its) for name, its in self._new.items()])
        if self._touched:
            many(rows.UPDATE, [rows.changed(kept[name]) for name in self._touched])
        if self._pieces:
            many(_INSERT_PIECE, self._pieces)
        if self._frozen:
            many(_INSERT_FROZEN, self._frozen)
        for name in self._over:
            del kept[name]
            self._post.tasks.discard(name)
        if self._records:
            many(_INSERT_RECORD, self._records)
        if self._tally:
            many(_TALLY, [(*key, n) for key, n in self._tally.items() if n])
        self._clear()

    def _clear(self) -> None:
        self._new.clear()
        self._keys.clear()
        self._touched.clear()
        self._pieces.clear()
        self._frozen.clear()
        self._over.clear()
        self._records.clear()
        self._tally.clear()

    def _row(self, task_id: str) -> Row | None:
        row = self._rows.get(task_id)
        if row is None:
            found = self._db.execute(rows.BY_ID, (task_id,)).fetchone()
            if found is not None:
                row = self._rows[task_id] = rows.row_in(found)
                self._post.look(task_id)
        return row

    def _scoped(self, scope: Scope, task_id: str) -> Row:
        row = self._row(task_id)
        if row is None or not row.belongs_to(scope):
            raise TaskNotFound(task_id=task_id)
        return row

    def _put(self, row: Row) -> None:
        if row.task_id not in self._rows:
            self._post.look(row.task_id)
        self._rows[row.task_id] = row
        if row.task_id not in self._new:
            self._touched[row.task_id] = None

    def _search(self, sql: str, *arguments: object) -> list[Row]:
        """Rows that fit, this batch's changes included."""
        self._flush()
        return [rows.row_in(found) for found in self._db.execute(sql, arguments)]

    # Jobs: tasks.

    def create(self, draft: Draft) -> None:
        """See `Store.create`."""
        row = draft.row
        task_id = row.task_id
        key = draft.idempotency
        if key is not None:
            self._check_key(row.scope, key)
        if task_id in self._new:
            raise Conflict("A task with this id exists.", task_id=task_id)
        row = rules.opened(draft)
        log = pack(draft.entries)
        self._rows[task_id] = row
        if draft.ended is None:
            self._pieces.append((task_id, 1, 0, log))
            self._new[task_id] = (key, None)
        else:
            self._over.append(task_id)
            if len(draft.entries) > BRIEF:
                self._frozen.append((task_id, pack(draft.ended)))
            self._new[task_id] = (key, log)
        if key is not None:
            self._keys[row.agent, row.tenant, row.principal, key.key] = (task_id, key.digest)
        if not row.hidden:
            self._tally[row.agent, row.tenant, row.principal, row.state._value_] += 1
        if draft.hook is not None:
            self._post.begin(row.scope, draft.hook, sent=0, last=row.last_seq)

    def _check_key(self, scope: Scope, key: Idempotency) -> None:
        place = (scope.agent, scope.tenant, scope.principal, key.key)
        found = self._keys.get(place)
        if found is None:
            found = self._db.execute(rows.BY_KEY, place).fetchone()
        if found is not None:
            raise Existing(found[0], same=found[1] == key.digest)

    def append(self, write: Write) -> None:
        """See `Store.append`."""
        task_id = write.claim.task_id
        before = self._row(task_id)
        if before is None:
            raise Fenced(task_id=task_id)
        row = rules.appended(before, write)
        ended = write.ended
        piece = pack(write.entries) if write.entries else b""
        if ended is not None:
            self._over.append(task_id)
            self._frozen.append((task_id, pack(ended)))
        if piece:
            self._pieces.append((task_id, write.base + 1, 0 if ended is None else 1, piece))
        self._put(row)
        if row.state is not before.state and not row.hidden:
            owner = (row.agent, row.tenant, row.principal)
            self._tally[*owner, before.state._value_] -= 1
            self._tally[*owner, row.state._value_] += 1
        for record in write.records:
            self._records.append((task_id, record.key, record.value, record.seq))
        if write.forget:
            self._wipe(task_id, write.forget)
        if task_id in self._post.tasks:
            self._post.grown(task_id)

    def _wipe(self, task_id: str, numbers: Iterable[int]) -> None:
        self._file.secrets = True
        with sqlite_owned.without_trace(self._db):
            for n in numbers:
                found = self._db.execute(rows.INPUT, (task_id, n)).fetchone()
                if found is not None:
                    bare = pack(rules.wiped(unpack_input(found[0])))
                    self._db.execute(_WIPE_INPUT, (bare, task_id, n))

    def claim(self, argument: tuple[str, str, int]) -> list[Row]:
        """See `Store.claim`."""
        worker, agent, limit = argument
        if not workers.enlisted(self._db, worker):
            return []
        due = self._search(rows.DUE, agent, self._clock(), limit)
        taken = [rules.claim(row, worker) for row in due]
        for row in taken:
            self._put(row)
        return taken

    def seize(self, argument: tuple[str, str, int]) -> Row | None:
        """See `Store.seize`."""
        worker, task_id, epoch = argument
        row = self._row(task_id)
        if row is None or row.final or row.epoch != epoch:
            return None
        if not workers.enlisted(self._db, worker):
            return None
        row = rules.claim(row, worker)
        self._put(row)
        return row

    def release(self, argument: tuple[Claim, bool]) -> None:
        """See `Store.release`."""
        claim, runnable = argument
        row = self._row(claim.task_id)
        if row is not None and rules.held(row, claim):
            self._put(rules.released(row, self._clock(), runnable=runnable))

    def add_input(self, argument: tuple[Scope, str, Input, str | None]) -> Row:
        """See `Store.add_input`."""
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
            self._keys[scope.agent, scope.tenant, scope.principal, key.key] = (task_id, key.digest)
        self._put(row)
        return row

    def ask_cancel(self, argument: tuple[Scope, str]) -> Row:
        """See `Store.ask_cancel`."""
        row = self._scoped(*argument)
        if not row.final and not row.cancel:
            row = rules.request_cancel(row, self._clock())
            self._put(row)
        return row

    # Jobs: workers.

    def enlist(self, argument: tuple[str, int]) -> None:
        """See `Store.enlist`."""
        # The lock comes first: a worker that is known and not locked would count as dead.
        self._locks.take(*argument)
        workers.enlist(self._db, argument[0])

    def retire(self, worker: str) -> None:
        """See `Store.retire`."""
        now = self._clock()
        self._note_time(now)
        workers.dismiss(self._db, [worker])
        for row in self._search(rows.BY_WORKER, worker):
            self._put(rules.released(row, now, runnable=not row.resting))
        self._locks.drop(worker)

    def reap(self, _: None) -> list[str]:
        """See `Store.reap`."""
        now = self._clock()
        self._note_time(now)
        known = workers.known(self._db)
        alive = {name for name in known if self._locks.alive(name)}
        workers.dismiss(self._db, (name for name in known if name not in alive))
        self._tidy = True
        lost: list[str] = []
        for name in self._holders():
            if name not in alive:
                for row in self._search(rows.BY_WORKER, name):
                    self._put(rules.reaped(row, now))
                    lost.append(row.task_id)
        return lost

    def _note_time(self, now: int) -> None:
        self._flush()
        if workers.look_back(self._db, now, self._post.hold):
            self._forget_rows()

    def _holders(self) -> list[str]:
        """Whoever holds a task, known or not."""
        self._flush()
        return [name for (name,) in self._db.execute(rows.HOLDERS)]

    # Jobs: webhooks.

    def post(self, ask: Callable[[SqliteOutbox], R]) -> R:
        """Whatever is asked of the outbox, this batch's changes included."""
        self._flush()
        return ask(self._post)

    # Jobs: sessions.

    def do(self, job: Callable[[sqlite3.Connection], R]) -> R:
        """Whatever touches no task."""
        return job(self._db)

    # Jobs: housekeeping.

    def sweep(self, argument: tuple[str, int, int, int]) -> int:
        """See `Store.sweep`."""
        agent, events_ms, tasks_ms, limit = argument
        now = self._clock()
        self._flush()
        go = self._db.execute(rows.GONE, (agent, now - tasks_ms, limit)).fetchall()
        self._uncount(go)
        names = [(name,) for name, *_ in go]
        for table in rows.DELETE_TASK:
            self._db.executemany(table, names)
        shrink = self._db.execute(rows.OLD, (agent, now - events_ms, limit - len(go))).fetchall()
        bare = [name for (name,) in shrink if not self._db.execute(rows.FROZEN, (name,)).fetchone()]
        self._db.executemany(
            _INSERT_FROZEN, [(name, pack(rows.task_in(self._db, name))) for name in bare]
        )
        self._db.executemany(rows.DROP_LOG, shrink)
        self._db.executemany(rows.MARK_DROPPED, shrink)
        self._db.execute(rows.NOTHING_LEFT)
        return len(go) + len(shrink)

    def erase(self, task_ids: list[str]) -> int:
        """See `Store.erase`."""
        self._flush()
        gone = sqlite_owned.erase(self._db, task_ids)
        self._uncount(gone)
        return len(gone)

    def _uncount(self, gone: Iterable[tuple[str, int, str, str, str, str]]) -> None:
        """Tasks left the file: nothing of them is remembered or counted any more."""
        for name, hidden, *group in gone:
            if not hidden:
                agent, tenant, principal, state = group
                self._tally[agent, tenant, principal, state] -= 1
            self._rows.pop(name, None)
            self._post.tasks.discard(name)

    def probe(self, _: None) -> None:
        """See `Store.probe`."""
        workers.probe(self._db)

    def changed(self, _: None) -> int:
        """See `Store.changed`."""
        self._look()
        return self._changes

    def close(self) -> None:
        """Lets go of the file and of the workers' locks."""
        self._locks.let_go()
        self._db.close()


def _concerns_all(error: Exception) -> bool:
    """Whether the file as a whole is in trouble. Else one job may be the cause: one that is too
    large for the disk, or holds something that SQLite cannot take."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_FULL


def _failure(error: Exception) -> Exception:
    if isinstance(error, sqlite3.IntegrityError) and str(error).endswith(": task.task_id"):
        return Conflict("A task with this id exists.")
    log.error("SQLite failed", error=repr(error))
    failure = StoreUnavailable()
    failure.__cause__ = error
    return failure
