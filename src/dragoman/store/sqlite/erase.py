"""The operator's look at a SQLite file, and how tasks leave it without a trace."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ..interface import AdminFilter
from ..task_row import Row
from . import statements as rows

_NAMED = ("tenant", "principal", "task_id", "agent")
_STATE = "SELECT task_id, hidden, agent, tenant, principal, state FROM task WHERE task_id = ?"


def owned(db: sqlite3.Connection, which: AdminFilter, limit: int) -> list[Row]:
    """See `Store.owned`."""
    wanted = [(name, value) for name in _NAMED if (value := getattr(which, name)) is not None]
    tests = [f"{name} = ?" for name, _ in wanted]
    values: list[object] = [value for _, value in wanted]
    if which.context_id is not None:
        tests.append(rows.IN_CONTEXT)
        values += [which.context_id] * 3
    if which.ended_before is not None:
        tests.append("ended > 0 AND status_at < ?")
        values.append(which.ended_before)
    where = f"WHERE {' AND '.join(tests)} " if tests else ""
    # Only names of this file stand in it; what was asked for is bound.
    query = f"{rows.ALL}{where}ORDER BY created_at, task_id LIMIT ?"
    found = db.execute(query, (*values, limit)).fetchall()
    return [rows.row_in(row) for row in found]


def erase(db: sqlite3.Connection, task_ids: list[str]) -> list[tuple[str, int, str, str, str, str]]:
    """Drops tasks and all that hangs on them; tells which there were, and as what they counted."""
    found = [
        row
        for task_id in task_ids
        if (row := db.execute(_STATE, (task_id,)).fetchone()) is not None
    ]
    with without_trace(db):
        for statement in rows.DELETE_TASK:
            db.executemany(statement, [(task_id,) for task_id, *_ in found])
    return found


@contextmanager
def without_trace(db: sqlite3.Connection) -> Iterator[None]:
    """What is dropped meanwhile is overwritten, freed pages too."""
    db.execute("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        db.execute("PRAGMA secure_delete = FAST")


def wipe_log(path: Path) -> None:
    """Empties the write-ahead log, unless another process reads it now: then it does so later."""
    with closing(sqlite3.connect(path, timeout=1.0)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
