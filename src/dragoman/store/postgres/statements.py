"""The statements for the table `task`, and the conversion between its rows and `Row`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec

from dragoman.core.events import Ask, Stamped
from dragoman.core.lifecycle import FINAL, added_up
from dragoman.core.model import State, Task

from ..codec import unpack_piece, unpack_task
from ..task_row import Row
from .pool import Database

# The columns are the fields of `Row`, in its order, which is the order in which rows are read.
COLUMNS = Row.__struct_fields__
TYPES = {
    field.name: {int: "bigint", bool: "boolean"}.get(field.type, "text")
    for field in msgspec.structs.fields(Row)
}
"""The type of each column."""
_FIXED = ("task_id", "context_id", "tenant", "principal", "agent", "skill", "dialect", "created_at")
_CHANGING = tuple(name for name in COLUMNS if name not in (*_FIXED, "hidden", "priority"))

# The names of the columns are our own; every value from outside is bound.
_NAMES = ", ".join(f"t.{name}" for name in COLUMNS)
_SELECT = f"SELECT {_NAMES} FROM dragoman.task t "  # noqa: S608

ALL = _SELECT
BY_ID = _SELECT + "WHERE task_id = $1"
LOCKED = BY_ID + " FOR UPDATE"
HELD = _SELECT + "WHERE worker = $1 AND worker <> ''"
LOCK_HELD = HELD + " ORDER BY task_id FOR UPDATE"
# The queue is searched lane by lane (`limits/run_limits.py`): the query jumps from one lane to the
# next in the index, and returns the first tasks of each.
LANES = """
WITH RECURSIVE lane(tenant, skill, n) AS (
  (SELECT tenant, skill, 1 FROM dragoman.task
   WHERE runnable AND agent = $1 AND (tenant, skill) >= ($2, $3)
   ORDER BY tenant, skill LIMIT 1)
  UNION ALL
  SELECT following.tenant, following.skill, lane.n + 1 FROM lane CROSS JOIN LATERAL (
    SELECT t.tenant, t.skill FROM dragoman.task t
    WHERE runnable AND t.agent = $1 AND (t.tenant, t.skill) > (lane.tenant, lane.skill)
    ORDER BY t.tenant, t.skill LIMIT 1) following
  WHERE lane.n < $4)
SELECT lane.tenant, lane.skill, head.turn, head.task_id FROM lane LEFT JOIN LATERAL (
  SELECT run_at - priority * 600000 AS turn, task_id FROM dragoman.task t
  WHERE runnable AND t.agent = $1 AND t.tenant = lane.tenant AND t.skill = lane.skill
    AND run_at <= $6
  ORDER BY run_at - priority * 600000, task_id
  LIMIT least($5::bigint, 2 * $5 / (SELECT count(*) FROM lane) + 1)) head ON true
ORDER BY lane.n, head.turn, head.task_id"""
# As many tasks of each lane as were chosen, without those that another worker is claiming.
CLAIMABLE = f"""
SELECT {_NAMES} FROM unnest($2::text[], $3::text[], $4::bigint[]) AS lane(tenant, skill, most)
CROSS JOIN LATERAL (
  SELECT * FROM dragoman.task q
  WHERE runnable AND agent = $1 AND q.tenant = lane.tenant AND q.skill = lane.skill
    AND run_at <= $5
  ORDER BY run_at - priority * 600000, task_id LIMIT lane.most FOR UPDATE SKIP LOCKED) t"""  # noqa: S608
RUNNING = """
SELECT agent, tenant, skill, count(*) FROM dragoman.task t
WHERE worker <> '' AND NOT (state IN ('input-required', 'auth-required') AND inputs = heard)
GROUP BY agent, tenant, skill"""
ORPHANED = f"""{_SELECT}WHERE worker <> '' AND NOT EXISTS (
  SELECT 1 FROM dragoman.worker w WHERE w.worker = t.worker)
ORDER BY task_id FOR UPDATE SKIP LOCKED"""  # noqa: S608
_WAITS = "t.ended = 0 AND t.state IN ('input-required', 'auth-required') AND t.inputs = t.heard"
EXPIRED = (
    _SELECT
    + f"""WHERE expires_at > 0 AND expires_at <= $1 AND agent = $2 AND {_WAITS}
ORDER BY expires_at, task_id LIMIT $3"""
)
# The query jumps from one agent to the next in the index, so a long queue of one agent costs no
# more than a short one.
AGENTS_DUE = f"""
WITH RECURSIVE
queued(agent) AS (
  SELECT min(agent) FROM dragoman.task WHERE runnable
  UNION ALL
  SELECT (SELECT min(agent) FROM dragoman.task WHERE runnable AND agent > queued.agent)
  FROM queued WHERE queued.agent IS NOT NULL),
told(agent) AS (
  SELECT min(agent) FROM dragoman.hook WHERE due_at > 0
  UNION ALL
  SELECT (SELECT min(agent) FROM dragoman.hook WHERE due_at > 0 AND agent > told.agent)
  FROM told WHERE told.agent IS NOT NULL)
SELECT agent FROM queued WHERE EXISTS
  (SELECT 1 FROM dragoman.task t WHERE runnable AND t.agent = queued.agent AND run_at <= $1)
UNION
SELECT agent FROM told WHERE EXISTS
  (SELECT 1 FROM dragoman.hook h WHERE h.agent = told.agent AND due_at > 0 AND due_at <= $1)
UNION
SELECT DISTINCT agent FROM dragoman.task t
WHERE expires_at > 0 AND expires_at <= $1 AND {_WAITS}"""  # noqa: S608
BY_KEY = """
SELECT task_id, digest FROM dragoman.idempotency
WHERE agent = $1 AND tenant = $2 AND principal = $3 AND key = $4"""
IN_CONTEXT = """task_id IN (
  SELECT task_id FROM dragoman.task WHERE context_id = {0} AND context_id <> task_id
  UNION ALL SELECT {0}) AND context_id = {0}"""
"""The condition of tasks in a context. The task that opened a context has the id of the context
(ADR 0012), so the index on contexts leaves that task out."""

_SET = ", ".join(f"{name} = u.{name}" for name in _CHANGING)
_UNNEST = ", ".join(
    f"${place}::{TYPES[name]}[]" for place, name in enumerate(("task_id", *_CHANGING), start=1)
)
UPDATE = f"""
UPDATE dragoman.task t SET {_SET}
FROM unnest({_UNNEST}) AS u(task_id, {", ".join(_CHANGING)})
WHERE t.task_id = u.task_id"""  # noqa: S608

LOAD = f"""
SELECT {_NAMES}, t.log, t.frozen, CASE WHEN t.log IS NULL AND t.frozen IS NULL THEN
  ARRAY(SELECT body FROM dragoman.piece p WHERE p.task_id = t.task_id ORDER BY seq) END
FROM dragoman.task t """  # noqa: S608
LOAD_ONE = LOAD + "WHERE task_id = $1"
LOAD_MANY = LOAD + "WHERE task_id = ANY($1::text[])"
# The piece that holds the first event after the cursor may begin before the cursor. A piece holds
# at least one event, so no more pieces than events are needed.
READ = f"""
SELECT {_NAMES}, t.log, CASE WHEN t.log IS NULL AND t.last_seq > $2 THEN ARRAY(
  SELECT body FROM dragoman.piece p WHERE p.task_id = t.task_id AND seq >= coalesce(
    (SELECT max(seq) FROM dragoman.piece f WHERE f.task_id = t.task_id AND f.seq <= $2 + 1), 0)
  ORDER BY seq LIMIT $3) END
FROM dragoman.task t WHERE task_id = $1"""  # noqa: S608

_STATES: dict[str, State] = {state.value: state for state in State}
_ASKS: dict[str, Ask | None] = {"": None, **{ask.value: ask for ask in Ask}}
_STATE, _ASKING = COLUMNS.index("state"), COLUMNS.index("asking")
WIDTH = len(COLUMNS)
"""How many columns of a result are those of `Row`."""

_all_of = attrgetter(*COLUMNS)
_changing_of = attrgetter("task_id", *_CHANGING)
_AT_STATE, _AT_ASKING = 1 + _CHANGING.index("state"), 1 + _CHANGING.index("asking")


def row_in(found: Sequence[Any]) -> Row:
    """Returns a row of the table as a `Row`. Columns beyond those of `Row` are left out."""
    values = dict(zip(COLUMNS, found, strict=False))
    values["state"] = _STATES[found[_STATE]]
    values["asking"] = _ASKS[found[_ASKING]]
    return Row(**values)


def values_of(row: Row) -> list[Any]:
    """Returns the values of all columns of a row."""
    values = list(_all_of(row))
    values[_STATE] = values[_STATE]._value_
    values[_ASKING] = "" if values[_ASKING] is None else values[_ASKING]._value_
    return values


async def put(db: Database, rows: Iterable[Row]) -> None:
    """Changes the rows of tasks that this transaction has locked."""
    changed = []
    for row in rows:
        values = list(_changing_of(row))
        values[_AT_STATE] = values[_AT_STATE]._value_
        values[_AT_ASKING] = "" if values[_AT_ASKING] is None else values[_AT_ASKING]._value_
        changed.append(values)
    if changed:
        await db.execute(UPDATE, *map(list, zip(*changed, strict=True)))


def task_in(found: Sequence[Any]) -> Task:
    """Returns the task in a row of `LOAD`: as it was frozen at its end, or else what its log adds
    up to."""
    log, frozen, pieces = found[WIDTH:]
    if frozen is not None:
        return unpack_task(frozen)
    if log is not None:
        return added_up(unpack_piece(log))
    return added_up(chain.from_iterable(map(unpack_piece, pieces)))


def entries_in(found: Sequence[Any], after: int, limit: int) -> list[Stamped]:
    """Returns the events after the seq `after` in a row of `READ`."""
    log, pieces = found[WIDTH:]
    entries: list[Stamped] = []
    for piece in [log] if log is not None else pieces or ():
        entries += (entry for entry in unpack_piece(piece) if entry.seq > after)
        if len(entries) >= limit:
            break
    return entries[:limit]


def has_ended(state: State) -> int:
    """Returns the value of `ended` for a task in this state whose log is kept."""
    return 1 if state in FINAL else 0
