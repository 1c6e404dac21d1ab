"""Those who read a SQLite file. Each look is one snapshot, and none waits for the writer."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from dragoman.core.errors import DragomanError, Fenced, StoreUnavailable, TaskNotFound
from dragoman.core.lifecycle import FINAL
from dragoman.core.log import Logger
from dragoman.core.model import Task

from .. import rules
from ..clock import Clock
from ..codec import unpack_input
from ..interface import AdminFilter, Filter, Listing, Page
from ..task_row import Claim, HeldTask, Row, Scope
from ..worker_thread import Job, Outcome
from ..writes import Input, Record
from . import erase
from . import statements as rows
from .outbox import SqliteOutbox

log = Logger("store")

R = TypeVar("R")

_INPUTS = "SELECT body FROM input WHERE task_id = ? ORDER BY n"
_RECORDS = "SELECT key, value, seq FROM record WHERE task_id = ? ORDER BY n"
_TALLY = "SELECT state, n FROM tally WHERE agent = ? AND n > 0"
_OF_OWNER = "SELECT state, n FROM tally WHERE agent = ? AND tenant = ? AND principal = ?"
_RUNNABLE = "SELECT count(*) FROM task WHERE runnable = 1 AND agent = ? AND hidden = 0"

# Without statistics SQLite cannot know that a context is the smaller half of the search; a plus
# keeps it from looking for the other.
_IN_LIST = """FROM task INDEXED BY task_list
WHERE hidden = 0 AND tenant = ? AND principal = ? AND agent = ?"""
_IN_CONTEXT = f"""FROM task
WHERE +hidden = 0 AND +tenant = ? AND +principal = ? AND +agent = ? AND {rows.IN_CONTEXT}"""


class SqliteReader:
    """Owns a read connection. Lives in a thread."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._db = connection
        self._clock = clock
        self._post = SqliteOutbox(connection, clock)

    def run(self, jobs: list[Job]) -> list[Outcome]:
        """Does the jobs, each by itself."""
        return [self._one(job) for job in jobs]

    def _one(self, job: Job) -> Outcome:
        try:
            self._db.execute("BEGIN")
            try:
                return job, job.apply(self, job.argument), None
            finally:
                self._db.execute("COMMIT")
        except DragomanError as error:
            return job, None, error
        except Exception as error:
            # As in the writer: whatever it is, it must not end the thread.
            log.error("SQLite failed", error=repr(error))
            failure = StoreUnavailable()
            failure.__cause__ = error
            return job, None, failure

    def _rows(self, sql: str, *arguments: object) -> list[Row]:
        return [rows.row_in(found) for found in self._db.execute(sql, arguments)]

    def row(self, argument: tuple[Scope, str]) -> Row:
        """See `Store.row`."""
        scope, task_id = argument
        found = self._db.execute(rows.BY_ID, (task_id,)).fetchone()
        row = rows.row_in(found) if found is not None else None
        if row is None or not row.belongs_to(scope):
            raise TaskNotFound(task_id=task_id)
        return row

    def find_key(self, argument: tuple[Scope, str]) -> tuple[str, bytes] | None:
        """See `Store.find_key`."""
        scope, key = argument
        place = (scope.agent, scope.tenant, scope.principal, key)
        found = self._db.execute(rows.BY_KEY, place).fetchone()
        return None if found is None else (found[0], found[1])

    def load(self, argument: tuple[Scope, str]) -> tuple[Row, Task]:
        """See `Store.load`."""
        row = self.row(argument)
        return row, rows.task_in(self._db, row.task_id)

    def read(self, argument: tuple[Scope, str, int, int]) -> Page:
        """See `Store.read`."""
        scope, task_id, after, limit = argument
        row = self.row((scope, task_id))
        page = Page(row, [])
        if after >= row.last_seq:
            return page
        for piece in rows.log_in(self._db, task_id, after + 1):
            page.entries.extend(entry for entry in piece if entry.seq > after)
            if len(page.entries) >= limit:
                del page.entries[limit:]
                break
        return page

    def find(self, argument: tuple[Scope, Filter, int]) -> Listing:
        """See `Store.find`."""
        scope, which, limit = argument
        where, given = _where(scope, which)
        if which.context_id or which.since is not None:
            (total,) = self._db.execute("SELECT count(*) " + where, given).fetchone()
        else:
            total = sum(
                n for state, n in self._owner(scope) if which.state is None or state == which.state
            )
        if which.before is not None:
            where += " AND (status_at, task_id) < (?, ?)"
            given = [*given, *which.before]
        where += " ORDER BY status_at DESC, task_id DESC LIMIT ?"
        found = self._db.execute("SELECT task_id, status_at " + where, [*given, limit]).fetchall()
        tasks = [rows.task_in(self._db, task_id) for task_id, _ in found]
        return Listing(tasks, [(at, task_id) for task_id, at in found], total)

    def live(self, scope: Scope) -> int:
        """See `Store.live`."""
        return sum(n for state, n in self._owner(scope) if state not in FINAL)

    def _owner(self, scope: Scope) -> list[tuple[str, int]]:
        """How many tasks of a caller are in each state."""
        owner = (scope.agent, scope.tenant, scope.principal)
        return self._db.execute(_OF_OWNER, owner).fetchall()

    def held(self, worker: str) -> list[HeldTask]:
        """See `Store.held`."""
        found = self._rows(rows.BY_WORKER, worker)
        return [HeldTask(row.claim, row.inputs, row.cancel) for row in found]

    def inputs(self, claim: Claim) -> list[Input]:
        """See `Store.inputs`."""
        self._check(claim)
        return [unpack_input(body) for (body,) in self._db.execute(_INPUTS, (claim.task_id,))]

    def records(self, claim: Claim) -> list[Record]:
        """See `Store.records`."""
        self._check(claim)
        found = self._db.execute(_RECORDS, (claim.task_id,))
        return [Record(key=key, value=value, seq=seq) for key, value, seq in found]

    def _check(self, claim: Claim) -> None:
        found = self._rows(rows.BY_ID, claim.task_id)
        if not found or not rules.holds(found[0], claim):
            raise Fenced(task_id=claim.task_id)

    def expired(self, argument: tuple[str, int]) -> list[Row]:
        """See `Store.expired`."""
        agent, limit = argument
        return self._rows(rows.EXPIRED, self._clock(), agent, limit)

    def owned(self, argument: tuple[AdminFilter, int]) -> list[Row]:
        """See `Store.owned`."""
        return erase.owned(self._db, *argument)

    def counts(self, agent: str) -> dict[str, int]:
        """See `Store.counts`."""
        counted: Counter[str] = Counter()
        for state, n in self._db.execute(_TALLY, (agent,)):
            counted[state] += n
        (counted["runnable"],) = self._db.execute(_RUNNABLE, (agent,)).fetchone()
        return dict(counted)

    def post(self, ask: Callable[[SqliteOutbox], R]) -> R:
        """Whatever is asked of the outbox without changing it."""
        return ask(self._post)

    def do(self, job: Callable[[sqlite3.Connection], R]) -> R:
        """Whatever touches no task."""
        return job(self._db)

    def rest(self) -> None:
        """See `Side`."""

    def close(self) -> None:
        """Lets go of the file."""
        self._db.close()


def _where(scope: Scope, which: Filter) -> tuple[str, list[Any]]:
    """The search of a list, without its place on a page."""
    given: list[Any] = [scope.tenant, scope.principal, scope.agent]
    where = _IN_LIST
    if which.context_id:
        where = _IN_CONTEXT
        given += [which.context_id] * 3
    if which.state is not None:
        where += " AND state = ?"
        given.append(which.state.value)
    if which.since is not None:
        where += " AND status_at >= ?"
        given.append(which.since)
    return where, given
