"""The statements for the table `task`, and the conversion between its rows and `Row`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from typing import Any

from dragoman.core.events import Ask, Stamped
from dragoman.core.lifecycle import FINAL, added_up
from dragoman.core.model import State, Task

from ..codec import BRIEF, unpack_piece, unpack_task
from ..task_row import Idempotency, Row

# The columns are the fields of `Row`, in its order, which is the order in which rows are read.
_COLUMNS = Row.__struct_fields__
_FIXED = ("task_id", "context_id", "tenant", "principal", "agent", "skill", "dialect", "created_at")
_FLAGS = ("runnable", "cancel", "hidden")
_PLAIN = tuple(name for name in _COLUMNS if name not in ("state", "asking", *_FLAGS))
_CHANGING = tuple(name for name in _PLAIN if name not in (*_FIXED, "priority"))

# The names of the columns are our own; every value from outside is bound.
_STATUS = ("state", "asking", "runnable", "cancel", "hidden", "ended")
_INSERTED = (*_PLAIN, *_STATUS, "key", "digest", "log", "last_piece")
INSERT = (
    f"INSERT INTO task ({', '.join(_INSERTED)}) "  # noqa: S608
    f"VALUES ({', '.join('?' * len(_INSERTED))})"
)
_SET = ", ".join(f"{name} = ?" for name in (*_CHANGING, *_STATUS))
UPDATE = (
    f"UPDATE task SET {_SET}, last_piece = coalesce(?, last_piece) "  # noqa: S608
    "WHERE task_id = ?"
)
# Most writes only continue the log of a task. SQLite rewrites the entries in all indexes whose
# columns an UPDATE names, whether they change or not, so this names none of them.
LENGTHEN = "UPDATE task SET last_seq = ?, last_piece = coalesce(?, last_piece) WHERE task_id = ?"
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM task "  # noqa: S608

ALL = _SELECT
BY_ID = _SELECT + "WHERE task_id = ?"
BY_WORKER = _SELECT + "WHERE worker = ? AND worker <> ''"
# The queue is searched lane by lane (`limits/run_limits.py`). The index has these very expressions.
NEXT_LANE = """
SELECT tenant, skill FROM task WHERE runnable = 1 AND agent = ? AND (tenant, skill) >= (?, ?)
ORDER BY tenant, skill LIMIT 1"""
HEADS = """
SELECT run_at - priority * 600000, task_id FROM task
WHERE runnable = 1 AND agent = ? AND tenant = ? AND skill = ? AND run_at <= ?
ORDER BY run_at - priority * 600000, task_id LIMIT ?"""
# The plus keeps SQLite from a look at every task of the agent.
RUNNING = """
SELECT agent, tenant, skill, count(*) FROM task WHERE worker <> '' AND +ended = 0
AND NOT (state IN ('input-required', 'auth-required') AND inputs = heard)
GROUP BY agent, tenant, skill"""
EXPIRED = (
    _SELECT
    + """WHERE expires_at > 0 AND expires_at <= ? AND agent = ? AND ended = 0
AND state IN ('input-required', 'auth-required') AND inputs = heard
ORDER BY expires_at, task_id LIMIT ?"""
)
# The query jumps from one agent to the next in the index, so a long queue of one agent costs no
# more than a short one.
AGENTS_DUE = """
WITH RECURSIVE
queued(agent) AS (
  SELECT min(agent) FROM task WHERE runnable = 1
  UNION ALL
  SELECT (SELECT min(agent) FROM task WHERE runnable = 1 AND agent > queued.agent)
  FROM queued WHERE queued.agent IS NOT NULL),
told(agent) AS (
  SELECT min(agent) FROM hook WHERE due_at > 0
  UNION ALL
  SELECT (SELECT min(agent) FROM hook WHERE due_at > 0 AND agent > told.agent)
  FROM told WHERE told.agent IS NOT NULL)
SELECT agent FROM queued WHERE EXISTS
  (SELECT 1 FROM task WHERE runnable = 1 AND task.agent = queued.agent AND run_at <= :now)
UNION
SELECT agent FROM told WHERE EXISTS
  (SELECT 1 FROM hook WHERE hook.agent = told.agent AND due_at > 0 AND due_at <= :now)
UNION
SELECT DISTINCT agent FROM task WHERE expires_at > 0 AND expires_at <= :now AND ended = 0
  AND state IN ('input-required', 'auth-required') AND inputs = heard"""
BY_KEY = """
SELECT task_id, digest FROM task WHERE agent = ?1 AND tenant = ?2 AND principal = ?3 AND key = ?4
UNION ALL SELECT task_id, input.digest FROM input JOIN task USING (task_id)
WHERE input.key = ?4 AND input.key IS NOT NULL AND agent = ?1 AND tenant = ?2 AND principal = ?3"""
IN_CONTEXT = """task_id IN (
SELECT task_id FROM task WHERE context_id = {0} AND context_id <> task_id UNION ALL SELECT {0})
AND context_id = {0}"""
"""The condition of tasks in a context, whose place among the values is filled in. The task that
opened a context has the id of the context (ADR 0012), so the index on contexts leaves that task
out."""
HOLDERS = "SELECT DISTINCT worker FROM task WHERE worker <> ''"

INPUT = "SELECT body FROM input WHERE task_id = ? AND n = ?"

# SQLite uses a partial index only if the query repeats its condition word for word.
GONE = """
SELECT task_id, hidden, agent, tenant, principal, state FROM task
WHERE ended > 0 AND agent = ? AND ended IN (1, 2) AND status_at <= ?
AND NOT EXISTS (SELECT 1 FROM hook WHERE hook.task_id = task.task_id AND hook.due_at > 0)
LIMIT ?"""
OLD = """
SELECT task_id FROM task
WHERE ended > 0 AND agent = ? AND ended = 1 AND status_at <= ?
AND NOT EXISTS (SELECT 1 FROM hook WHERE hook.task_id = task.task_id AND (hook.due_at > 0
  OR EXISTS (SELECT 1 FROM letter WHERE letter.n = hook.n)))
ORDER BY status_at LIMIT ?"""
FROZEN = "SELECT body FROM frozen WHERE task_id = ?"
# A brief task has nothing but its log, which is in its row (ADR 0012).
_WHOLE = f"""log, CASE WHEN log IS NULL OR last_seq > {BRIEF} THEN
  (SELECT body FROM frozen WHERE frozen.task_id = task.task_id) END
FROM task WHERE task_id = ?"""  # noqa: S608
LOAD = f"SELECT {', '.join(_COLUMNS)}, {_WHOLE}"
_TASK = f"SELECT {_WHOLE}"
_LOG = "SELECT log FROM task WHERE task_id = ?"
NEWEST_PIECE = "SELECT coalesce(max(n), 0) FROM piece"
PATH = """
WITH RECURSIVE path(n, place, jump) AS (
  SELECT n, place, jump FROM piece WHERE n = (SELECT last_piece FROM task WHERE task_id = ?)
  UNION ALL
  SELECT piece.n, piece.place, piece.jump FROM path JOIN piece ON piece.n = path.jump)
SELECT place, n FROM path ORDER BY place"""
"""The pieces to which the next pieces of a task may jump; the last one is the last of the task."""
# From the last piece, jumps lead down to the one that holds the event ?3, which few steps find in
# the longest log. From there the pieces are read back to the one that holds the event ?2.
_PIECES = """
WITH RECURSIVE
down(n, seq, previous, jump) AS (
  SELECT n, seq, previous, jump FROM piece
  WHERE n = (SELECT last_piece FROM task WHERE task_id = ?1)
  UNION ALL
  SELECT piece.n, piece.seq, piece.previous, piece.jump FROM down JOIN piece ON piece.n =
    CASE WHEN (SELECT seq FROM piece WHERE n = down.jump) > ?3 THEN down.jump ELSE down.previous END
  WHERE down.seq > ?3),
chain(n, seq, previous) AS (
  SELECT n, seq, previous FROM down WHERE seq <= ?3
  UNION ALL
  SELECT piece.n, piece.seq, piece.previous FROM chain JOIN piece ON piece.n = chain.previous
  WHERE chain.seq > ?2)
SELECT body FROM chain JOIN piece USING (n) ORDER BY chain.seq"""
_ENDLESS = (1 << 63) - 1
NOTHING_LEFT = "DELETE FROM tally WHERE n = 0"
DROP_LOG = """
WITH RECURSIVE chain(n) AS (
  SELECT last_piece FROM task WHERE task_id = ?
  UNION ALL
  SELECT previous FROM chain JOIN piece USING (n))
DELETE FROM piece WHERE n IN (SELECT n FROM chain)"""
# The number of a piece that was dropped may be used again.
MARK_DROPPED = "UPDATE task SET ended = 2, log = NULL, last_piece = 0 WHERE task_id = ?"
DELETE_TASK = (
    DROP_LOG,
    "DELETE FROM task WHERE task_id = ?",
    "DELETE FROM frozen WHERE task_id = ?",
    "DELETE FROM input WHERE task_id = ?",
    "DELETE FROM record WHERE task_id = ?",
    "DELETE FROM letter WHERE n IN (SELECT n FROM hook WHERE task_id = ?)",
    "DELETE FROM hook WHERE task_id = ?",
)

_STATES: dict[str, State] = {state.value: state for state in State}
_ASKS: dict[str, Ask | None] = {"": None, **{ask.value: ask for ask in Ask}}


def task_in(db: sqlite3.Connection, task_id: str) -> Task:
    """Returns the task as it stands."""
    return whole_task(db, task_id, *db.execute(_TASK, (task_id,)).fetchone())


def whole_task(
    db: sqlite3.Connection, task_id: str, log: bytes | None, frozen: bytes | None
) -> Task:
    """Returns the task of the last two values of `LOAD`: as it was frozen at its end, or else what
    its log adds up to."""
    if frozen is not None:
        return unpack_task(frozen)
    if log is not None:
        return added_up(unpack_piece(log))
    return added_up(chain.from_iterable(log_in(db, task_id)))


def log_in(
    db: sqlite3.Connection, task_id: str, seq: int = 1, last: int = _ENDLESS
) -> Iterator[list[Stamped]]:
    """Yields the log of a task, piece by piece, from the piece that holds the event `seq` to that
    which holds `last`."""
    return map(unpack_piece, pieces_in(db, task_id, seq, last))


def pieces_in(
    db: sqlite3.Connection, task_id: str, seq: int = 1, last: int = _ENDLESS
) -> Iterator[bytes]:
    """Yields the same, as it is stored."""
    (log,) = db.execute(_LOG, (task_id,)).fetchone()
    if log is not None:
        yield log
        return
    for (piece,) in db.execute(_PIECES, (task_id, seq, last)):
        yield piece


def row_in(found: tuple[Any, ...]) -> Row:
    """Returns a row of the table as a `Row`."""
    values = dict(zip(_COLUMNS, found, strict=True))
    values["state"] = _STATES[values["state"]]
    values["asking"] = _ASKS[values["asking"]]
    for name in _FLAGS:
        values[name] = values[name] == 1
    return Row(**values)


def insert_values(
    row: Row, key: Idempotency | None, log: bytes | None, last_piece: int
) -> tuple[Any, ...]:
    """Returns the arguments of `INSERT`."""
    name, digest = (None, None) if key is None else (key.key, key.digest)
    return (*_plain_of(row), *_status_of(row), name, digest, log, last_piece)


def update_values(row: Row, last_piece: int | None) -> tuple[Any, ...]:
    """Returns the arguments of `UPDATE`. `last_piece` is None if the log did not change."""
    return (*_changing_of(row), *_status_of(row), last_piece, row.task_id)


_plain_of = attrgetter(*_PLAIN)
_changing_of = attrgetter(*_CHANGING)


def _status_of(row: Row) -> tuple[str, str, int, int, int, int]:
    """Returns the values of `_STATUS` as plain str and int. sqlite3 looks for an adapter for every
    value of a subclass, and bool is one, which costs more than the rest of the row."""
    state, asking = row.state, row.asking
    return (
        state._value_,
        "" if asking is None else asking._value_,
        1 if row.runnable else 0,
        1 if row.cancel else 0,
        1 if row.hidden else 0,
        1 if state in FINAL else 0,
    )
