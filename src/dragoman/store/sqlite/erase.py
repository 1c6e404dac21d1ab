"""The operator's side of a SQLite file: finding tasks of any caller, and erasing them for good."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from dragoman.core.lifecycle import FINAL

from ..interface import AdminFilter
from ..task_row import Row
from . import statements as sql

_NAMED = ("tenant", "principal", "task_id", "agent", "dialect")
# Every part of this has an index. Unfinished tasks are found by the callers that have any; those
# that no list shows are held by a worker, due, or wait for a time.
_ACTIVE = """task_id IN (
  SELECT task_id FROM task WHERE ended > 0 AND ended IN (1, 2) AND agent IN ({agents})
    AND status_at >= ?
  UNION ALL SELECT task_id FROM tally CROSS JOIN task USING (agent, tenant, principal, state)
    WHERE agent IN ({agents}) AND n > 0 AND state NOT IN ({final}) AND hidden = 0
  UNION ALL SELECT task_id FROM task WHERE worker <> ''
  UNION ALL SELECT task_id FROM task WHERE runnable = 1
  UNION ALL SELECT task_id FROM task WHERE expires_at > 0
) AND (ended = 0 OR status_at >= ?)"""
# The finished tasks of a tenant: those of its callers, in each state, and those that no list shows.
_OF_TENANT = """task_id IN (
  SELECT task_id FROM tally CROSS JOIN task USING (agent, tenant, principal, state)
    WHERE agent = {agent} AND tenant = {tenant} AND n > 0 AND state IN ({final}) AND hidden = 0
    AND status_at < {before}
  UNION ALL SELECT task_id FROM task WHERE hidden = 1 AND ended > 0
    AND agent = {agent} AND tenant = {tenant} AND status_at < {before})"""
_FINAL = ", ".join(f"'{each.value}'" for each in FINAL)
_AGENTS = "SELECT DISTINCT agent FROM tally"
_STATE = "SELECT task_id, hidden, agent, tenant, principal, state FROM task WHERE task_id = ?"


def find_in_all_scopes(db: sqlite3.Connection, which: AdminFilter, limit: int) -> list[Row]:
    """Returns the tasks of all callers that match a filter, oldest first."""
    wanted = [(name, value) for name in _NAMED if (value := getattr(which, name)) is not None]
    tests = [f"{name} = ?" for name, _ in wanted]
    values: list[object] = [value for _, value in wanted]
    if which.context_id is not None:
        values.append(which.context_id)
        tests.append(sql.IN_CONTEXT.format(f"?{len(values)}"))
    if which.active_since is not None:
        agents, named = ("?", [which.agent]) if which.agent is not None else (_AGENTS, [])
        tests.append(_ACTIVE.format(agents=agents, final=_FINAL))
        values += [*named, which.active_since, *named, which.active_since]
    if which.ended_before is not None:
        values.append(which.ended_before)
        before = f"?{len(values)}"
        if which.agent is not None and which.tenant is not None:
            places = {name: f"?{place}" for place, (name, _) in enumerate(wanted, start=1)}
            tests.append(_OF_TENANT.format(**places, final=_FINAL, before=before))
        else:
            tests.append(f"ended > 0 AND ended IN (1, 2) AND status_at < {before}")
    where = f"WHERE {' AND '.join(tests)} " if tests else ""
    # The text of the query comes from this file alone; the values of the filter are bound.
    query = f"{sql.ALL}{where}ORDER BY created_at, task_id LIMIT ?"
    found = db.execute(query, (*values, limit)).fetchall()
    return [sql.row_in(row) for row in found]


def erase(db: sqlite3.Connection, task_ids: list[str]) -> list[tuple[str, int, str, str, str, str]]:
    """Deletes tasks without a trace. Returns what `delete` does."""
    with without_trace(db):
        return delete(db, task_ids)


def delete(
    db: sqlite3.Connection, task_ids: list[str]
) -> list[tuple[str, int, str, str, str, str]]:
    """Deletes tasks and everything that belongs to them. Returns those that existed, as `Gone` in
    `batch.py` describes them."""
    found = [
        row
        for task_id in task_ids
        if (row := db.execute(_STATE, (task_id,)).fetchone()) is not None
    ]
    for statement in sql.DELETE_TASK:
        db.executemany(statement, [(task_id,) for task_id, *_ in found])
    return found


@contextmanager
def without_trace(db: sqlite3.Connection) -> Iterator[None]:
    """Makes SQLite overwrite everything that is deleted in this block, including freed pages."""
    db.execute("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        db.execute("PRAGMA secure_delete = FAST")


def wipe_log(path: Path, seconds: float = 1.0) -> bool:
    """Empties the write-ahead log, which still holds what was deleted, as the database itself does
    until then. Waits at most so many seconds for others that read. Returns whether it is empty; if
    not, it is emptied later."""
    with closing(sqlite3.connect(path, timeout=seconds)) as db:
        (blocked, *_) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not blocked
