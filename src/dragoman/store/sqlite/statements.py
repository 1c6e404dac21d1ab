"""The statements around the `task` table, and the way of a row in and out of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import chain
from typing import Any

from dragoman.core.events import Ask, Stamped
from dragoman.core.lifecycle import FINAL, added_up
from dragoman.core.model import State, Task

from ..codec import unpack_piece, unpack_task
from ..interface import Idempotency, Row

# One order of columns for all: `row_in` reads by place, which is several times faster than by name.
_COLUMNS = """task_id, context_id, tenant, principal, agent, skill, dialect, state, last_seq,
created_at, status_at, worker, token, epoch, attempt, runnable, run_at, inputs, heard, question,
asking, expires_at, cancel"""

_INSERTED = f"{_COLUMNS}, ended, key, digest, log"
_MARKS = ", ".join("?" * len(_INSERTED.split(",")))
INSERT = f"INSERT INTO task ({_INSERTED}) VALUES ({_MARKS})"  # noqa: S608 (constants of this file)

UPDATE = """
UPDATE task SET state = ?, last_seq = ?, status_at = ?, worker = ?, token = ?, epoch = ?,
  attempt = ?, runnable = ?, run_at = ?, inputs = ?, heard = ?, question = ?, asking = ?,
  expires_at = ?, cancel = ?, ended = ?
WHERE task_id = ?"""

_SELECT = f"SELECT {_COLUMNS} FROM task "  # noqa: S608 (a constant of this file)

ALL = _SELECT
BY_ID = _SELECT + "WHERE task_id = ?"
BY_WORKER = _SELECT + "WHERE worker = ? AND worker <> ''"
DUE = _SELECT + "WHERE runnable = 1 AND agent = ? AND run_at <= ? ORDER BY run_at, task_id LIMIT ?"
EXPIRED = (
    _SELECT
    + """WHERE expires_at > 0 AND expires_at <= ? AND agent = ? AND ended = 0
AND state IN ('input-required', 'auth-required') AND inputs = heard
ORDER BY expires_at, task_id LIMIT ?"""
)
BY_KEY = """
SELECT task_id, digest FROM task WHERE tenant = ?1 AND principal = ?2 AND key = ?3
UNION ALL SELECT task_id, input.digest FROM input JOIN task USING (task_id)
WHERE input.key = ?3 AND input.key IS NOT NULL AND tenant = ?1 AND principal = ?2"""
IN_CONTEXT = """task_id IN (
SELECT task_id FROM task WHERE context_id = ? AND context_id <> task_id UNION ALL SELECT ?)
AND context_id = ?"""  # three times the same
HOLDERS = "SELECT DISTINCT worker FROM task WHERE worker <> ''"

INPUT = "SELECT body FROM input WHERE task_id = ? AND n = ?"

# SQLite uses a partial index only if its condition stands in the query word for word.
GONE = """
SELECT task_id, agent, tenant, principal, state FROM task
WHERE ended > 0 AND ended IN (1, 2) AND status_at <= ?
AND NOT EXISTS (SELECT 1 FROM hook WHERE hook.task_id = task.task_id AND hook.due_at > 0)
LIMIT ?"""
OLD = """
SELECT task_id FROM task
WHERE ended > 0 AND ended = 1 AND status_at <= ?
AND NOT EXISTS (SELECT 1 FROM hook WHERE hook.task_id = task.task_id AND (hook.due_at > 0
  OR EXISTS (SELECT 1 FROM letter WHERE letter.n = hook.n)))
ORDER BY status_at LIMIT ?"""
FROZEN = "SELECT body FROM frozen WHERE task_id = ?"
_LOG = "SELECT log FROM task WHERE task_id = ?"
# The piece that holds the first event behind the cursor may begin before it.
_PIECES = """
SELECT body FROM piece WHERE task_id = ?1 AND seq >= coalesce(
  (SELECT max(seq) FROM piece WHERE task_id = ?1 AND seq <= ?2), 0)
ORDER BY seq"""
NOTHING_LEFT = "DELETE FROM tally WHERE n = 0"
DROP_LOG = "DELETE FROM piece WHERE task_id = ?"
MARK_DROPPED = "UPDATE task SET ended = 2, log = NULL WHERE task_id = ?"
DELETE_TASK = (
    "DELETE FROM task WHERE task_id = ?",
    "DELETE FROM piece WHERE task_id = ?",
    "DELETE FROM frozen WHERE task_id = ?",
    "DELETE FROM input WHERE task_id = ?",
    "DELETE FROM record WHERE task_id = ?",
    "DELETE FROM letter WHERE n IN (SELECT n FROM hook WHERE task_id = ?)",
    "DELETE FROM hook WHERE task_id = ?",
)

_STATES: dict[str, State] = {state.value: state for state in State}
_ASKS: dict[str, Ask | None] = {"": None, **{ask.value: ask for ask in Ask}}


def task_in(db: sqlite3.Connection, task_id: str) -> Task:
    """The task as it stands: as it was frozen at its end, else what its log adds up to."""
    frozen = db.execute(FROZEN, (task_id,)).fetchone()
    if frozen is not None:
        return unpack_task(frozen[0])
    return added_up(chain.from_iterable(log_in(db, task_id)))


def log_in(db: sqlite3.Connection, task_id: str, seq: int = 1) -> Iterator[list[Stamped]]:
    """The log of a task, piece by piece, from the piece that holds `seq`."""
    (log,) = db.execute(_LOG, (task_id,)).fetchone()
    if log is not None:
        yield unpack_piece(log)
        return
    for (piece,) in db.execute(_PIECES, (task_id, seq)):
        yield unpack_piece(piece)


def row_in(found: tuple[Any, ...]) -> Row:
    """A row of the table as a `Row`."""
    return Row(
        task_id=found[0],
        context_id=found[1],
        tenant=found[2],
        principal=found[3],
        agent=found[4],
        skill=found[5],
        dialect=found[6],
        state=_STATES[found[7]],
        last_seq=found[8],
        created_at=found[9],
        status_at=found[10],
        worker=found[11],
        token=found[12],
        epoch=found[13],
        attempt=found[14],
        runnable=found[15] == 1,
        run_at=found[16],
        inputs=found[17],
        heard=found[18],
        question=found[19],
        asking=_ASKS[found[20]],
        expires_at=found[21],
        cancel=found[22] == 1,
    )


# Plain str and int only: sqlite3 looks for an adapter for every subclass it meets, which costs
# more than the whole row.


def created(row: Row, key: Idempotency | None, log: bytes | None) -> tuple[Any, ...]:
    """The arguments of `INSERT`."""
    return (
        row.task_id,
        row.context_id,
        row.tenant,
        row.principal,
        row.agent,
        row.skill,
        row.dialect,
        row.state._value_,
        row.last_seq,
        row.created_at,
        row.status_at,
        row.worker,
        row.token,
        row.epoch,
        row.attempt,
        1 if row.runnable else 0,
        row.run_at,
        row.inputs,
        row.heard,
        row.question,
        "" if row.asking is None else row.asking._value_,
        row.expires_at,
        1 if row.cancel else 0,
        1 if row.state in FINAL else 0,
        None if key is None else key.key,
        None if key is None else key.digest,
        log,
    )


def changed(row: Row) -> tuple[Any, ...]:
    """The arguments of `UPDATE`."""
    return (
        row.state._value_,
        row.last_seq,
        row.status_at,
        row.worker,
        row.token,
        row.epoch,
        row.attempt,
        1 if row.runnable else 0,
        row.run_at,
        row.inputs,
        row.heard,
        row.question,
        "" if row.asking is None else row.asking._value_,
        row.expires_at,
        1 if row.cancel else 0,
        1 if row.state in FINAL else 0,
        row.task_id,
    )
