"""Reads from a SQLite file. Each job sees one snapshot, and none waits for the writer."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from dragoman.core.errors import DragomanError, Fenced, TaskNotFound
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import State, Task
from dragoman.core.outage import Outage

from .. import rules
from ..clock import Clock
from ..codec import unpack_input
from ..interface import AdminFilter, Filter, Listing, Page
from ..local.worker_thread import UNREADABLE, Job, Outcome, report_unavailable
from ..task_row import Claim, HeldTask, Row, Scope
from ..writes import Input, Record
from . import erase
from . import statements as sql
from .outbox import SqliteOutbox

R = TypeVar("R")

_INPUTS = "SELECT body FROM input WHERE task_id = ? ORDER BY n"
_RECORDS = "SELECT key, value, seq FROM record WHERE task_id = ? ORDER BY n"
_TALLY = "SELECT state, n FROM tally WHERE agent = ? AND n > 0"
_OF_OWNER = "SELECT state, n FROM tally WHERE agent = ? AND tenant = ? AND principal = ?"
_RUNNABLE = "SELECT count(*) FROM task WHERE runnable = 1 AND agent = ? AND hidden = 0"
_QUEUED = """
SELECT count(*) FROM (SELECT 1 FROM task WHERE runnable = 1 AND agent = ? LIMIT ?)"""

# Without statistics SQLite cannot know that a context has far fewer tasks than a caller. A plus in
# front of a column keeps it from choosing the index of that column.
_IN_LIST = """FROM task INDEXED BY task_list
WHERE hidden = 0 AND tenant = :tenant AND principal = :principal AND agent = :agent AND state = """
_IN_CONTEXT = f"""FROM task
WHERE +hidden = 0 AND +tenant = :tenant AND +principal = :principal AND +agent = :agent
AND {sql.IN_CONTEXT.format(":context")}"""


class SqliteReader:
    """Owns a read connection. A job that is named like a method of `Store` keeps its promise."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock, outage: Outage) -> None:
        self._db = connection
        self._clock, self._outage = clock, outage
        self._outbox = SqliteOutbox(connection, clock)

    def run(self, jobs: list[Job]) -> list[Outcome]:
        """Does each job in a transaction of its own."""
        return [self._one(job) for job in jobs]

    def _one(self, job: Job) -> Outcome:
        try:
            self._db.execute("BEGIN")
            try:
                outcome: Outcome = (job, job.apply(self, job.argument), None)
            finally:
                self._db.execute("COMMIT")
            self._outage.end(UNREADABLE)
            return outcome
        except DragomanError as error:
            return job, None, error
        except Exception as error:
            # No error may end the thread: every caller that waits for it would wait forever.
            return job, None, report_unavailable(self._outage, UNREADABLE, error)

    def _rows(self, query: str, *arguments: object) -> list[Row]:
        return [sql.row_in(found) for found in self._db.execute(query, arguments)]

    def row(self, argument: tuple[Scope, str]) -> Row:
        scope, task_id = argument
        found = self._db.execute(sql.BY_ID, (task_id,)).fetchone()
        return _own(found, scope, task_id)

    def find_key(self, argument: tuple[Scope, str]) -> tuple[str, bytes] | None:
        scope, key = argument
        place = (scope.agent, scope.tenant, scope.principal, key)
        found = self._db.execute(sql.BY_KEY, place).fetchone()
        return None if found is None else (found[0], found[1])

    def load(self, argument: tuple[Scope, str]) -> tuple[Row, Task]:
        scope, task_id = argument
        found = self._db.execute(sql.LOAD, (task_id,)).fetchone()
        row = _own(found and found[:-2], scope, task_id)
        return row, sql.whole_task(self._db, task_id, *found[-2:])

    def read(self, argument: tuple[Scope, str, int, int]) -> Page:
        scope, task_id, after, limit = argument
        row = self.row((scope, task_id))
        page = Page(row, [])
        if after >= row.last_seq:
            return page
        for piece in sql.log_in(self._db, task_id, after + 1, after + limit):
            page.entries.extend(entry for entry in piece if entry.seq > after)
            if len(page.entries) >= limit:
                del page.entries[limit:]
                break
        return page

    def find(self, argument: tuple[Scope, Filter, int]) -> Listing:
        scope, which, limit = argument
        # The index has the tasks of each state in their order, and SQLite merges them.
        states = tuple(State) if which.state is None else (which.state,)
        parts = [f"{_IN_LIST}'{state.value}'" for state in states]
        if which.context_id:
            names = ", ".join(f"'{state.value}'" for state in states)
            parts = [f"{_IN_CONTEXT} AND state IN ({names})"]
        more = "" if which.since is None else " AND status_at >= :since"
        at, task_id = which.before or (0, "")
        values = {
            "tenant": scope.tenant,
            "principal": scope.principal,
            "agent": scope.agent,
            "context": which.context_id,
            "since": which.since,
            "at": at,
            "task_id": task_id,
            "limit": limit,
        }
        if which.context_id or more:
            counts = [f"SELECT count(*) {part}{more}" for part in parts]
            total = sum(self._db.execute(each, values).fetchone()[0] for each in counts)
        else:
            total = sum(n for state, n in self._owner(scope) if state in states)
        if which.before is not None:
            more += " AND (status_at, task_id) < (:at, :task_id)"
        merged = " UNION ALL ".join(f"SELECT task_id, status_at {part}{more}" for part in parts)
        query = f"{merged} ORDER BY status_at DESC, task_id DESC LIMIT :limit"
        found = self._db.execute(query, values).fetchall()
        tasks = [sql.task_in(self._db, task_id) for task_id, _ in found]
        return Listing(tasks, [(at, task_id) for task_id, at in found], total)

    def count_unfinished(self, scope: Scope) -> int:
        return sum(n for state, n in self._owner(scope) if state not in FINAL)

    def count_queued(self, argument: tuple[str, int]) -> int:
        (found,) = self._db.execute(_QUEUED, argument).fetchone()
        return int(found)

    def _owner(self, scope: Scope) -> list[tuple[str, int]]:
        """Returns how many tasks of a caller are in each state."""
        owner = (scope.agent, scope.tenant, scope.principal)
        return self._db.execute(_OF_OWNER, owner).fetchall()

    def list_held_tasks(self, worker: str) -> list[HeldTask]:
        found = self._rows(sql.BY_WORKER, worker)
        return [HeldTask(row.claim, row.inputs, row.cancel) for row in found]

    def inputs(self, claim: Claim) -> list[Input]:
        self._check(claim)
        return [unpack_input(body) for (body,) in self._db.execute(_INPUTS, (claim.task_id,))]

    def records(self, claim: Claim) -> list[Record]:
        self._check(claim)
        return self._recorded(claim.task_id)

    def records_of(self, argument: tuple[Scope, str]) -> list[Record]:
        self.row(argument)
        return self._recorded(argument[1])

    def _recorded(self, task_id: str) -> list[Record]:
        found = self._db.execute(_RECORDS, (task_id,))
        return [Record(key=key, value=value, seq=seq) for key, value, seq in found]

    def _check(self, claim: Claim) -> None:
        found = self._rows(sql.BY_ID, claim.task_id)
        if not found or not rules.holds(found[0], claim):
            raise Fenced(task_id=claim.task_id)

    def list_expired_tasks(self, argument: tuple[str, int]) -> list[Row]:
        agent, limit = argument
        return self._rows(sql.EXPIRED, self._clock(), agent, limit)

    def agents_due(self, _: None) -> set[str]:
        now = self._clock()
        return {name for (name,) in self._db.execute(sql.AGENTS_DUE, {"now": now})}

    def find_in_all_scopes(self, argument: tuple[AdminFilter, int]) -> list[Row]:
        return erase.find_in_all_scopes(self._db, *argument)

    def count_by_state(self, agent: str) -> dict[str, int]:
        counted: Counter[str] = Counter()
        for state, n in self._db.execute(_TALLY, (agent,)):
            counted[state] += n
        (counted["runnable"],) = self._db.execute(_RUNNABLE, (agent,)).fetchone()
        return dict(counted)

    def use_outbox(self, job: Callable[[SqliteOutbox], R]) -> R:
        """Does a job that reads from the outbox."""
        return job(self._outbox)

    def do(self, job: Callable[[sqlite3.Connection], R]) -> R:
        """Does a job that reads something other than tasks."""
        return job(self._db)

    def maintain(self) -> None:
        """Does nothing, because a read connection needs no maintenance."""

    def close(self) -> None:
        """Closes the connection."""
        self._db.close()


def _own(found: tuple[Any, ...] | None, scope: Scope, task_id: str) -> Row:
    row = sql.row_in(found) if found is not None else None
    if row is None or not row.belongs_to(scope):
        raise TaskNotFound(task_id=task_id)
    return row
