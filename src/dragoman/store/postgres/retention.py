"""Drops old tasks, and erases any. Each function runs in the transaction of its caller."""

from __future__ import annotations

from ..codec import pack
from ..interface import AdminFilter
from ..task_row import Row
from . import statements as sql
from .pool import Database
from .write_statement import COUNT, SHARDS

_GONE = """
SELECT task_id FROM dragoman.task t
WHERE ended > 0 AND agent = $1 AND ended IN (1, 2) AND status_at <= $2
  AND NOT EXISTS (SELECT 1 FROM dragoman.hook h WHERE h.task_id = t.task_id AND h.due_at > 0)
LIMIT $3 FOR UPDATE SKIP LOCKED"""
_OLD = """
SELECT task_id FROM dragoman.task t
WHERE ended > 0 AND agent = $1 AND ended = 1 AND status_at <= $2
  AND NOT EXISTS (SELECT 1 FROM dragoman.hook h WHERE h.task_id = t.task_id AND (h.due_at > 0
    OR EXISTS (SELECT 1 FROM dragoman.letter l WHERE l.n = h.n)))
ORDER BY status_at LIMIT $3 FOR UPDATE SKIP LOCKED"""
# A brief task was never frozen, so its log is added up before it is dropped (ADR 0012).
_SHRINK = """
UPDATE dragoman.task t SET ended = 2, log = NULL, frozen = u.frozen
FROM unnest($1::text[], $2::bytea[]) AS u(task_id, frozen) WHERE t.task_id = u.task_id"""
_DROP_LOG = "DELETE FROM dragoman.piece WHERE task_id = ANY($1::text[])"
_DELETE_PARTS = (
    _DROP_LOG,
    "DELETE FROM dragoman.input WHERE task_id = ANY($1::text[])",
    "DELETE FROM dragoman.record WHERE task_id = ANY($1::text[])",
    "DELETE FROM dragoman.idempotency WHERE task_id = ANY($1::text[])",
    """DELETE FROM dragoman.letter WHERE n IN (
  SELECT n FROM dragoman.hook WHERE task_id = ANY($1::text[]))""",
    "DELETE FROM dragoman.hook WHERE task_id = ANY($1::text[])",
)
_UNCOUNTED = COUNT.format(shards=SHARDS, sign="-", ended="SELECT * FROM gone")
_DELETE = f"""
WITH gone AS (DELETE FROM dragoman.task WHERE task_id = ANY($1::text[])
  RETURNING task_id, agent, tenant, principal, state, hidden, ended),
counted AS ({_UNCOUNTED})
SELECT count(*) FROM gone"""  # noqa: S608

# The finished tasks of a tenant: those of its callers, in each state, and those that no list shows.
_OF_TENANT = """task_id IN (
  SELECT own.task_id FROM (
    SELECT DISTINCT principal, state FROM dragoman.tally
    WHERE agent = {agent} AND tenant = {tenant}) AS counted
  CROSS JOIN LATERAL (
    SELECT task_id FROM dragoman.task o WHERE NOT hidden AND o.tenant = {tenant}
      AND o.principal = counted.principal AND o.agent = {agent} AND o.state = counted.state
      AND o.status_at < {before}) AS own
  UNION ALL SELECT task_id FROM dragoman.task h WHERE hidden AND ended > 0
    AND h.agent = {agent} AND h.tenant = {tenant} AND h.status_at < {before})"""
_NAMED = ("tenant", "principal", "task_id", "agent", "dialect")


async def sweep(db: Database, agent: str, events_before: int, tasks_before: int, limit: int) -> int:
    """Drops tasks and logs that ended before these times. Returns how many were dropped or
    shortened."""
    gone = [name for (name,) in await db.fetch(_GONE, agent, tasks_before, limit)]
    if gone:
        await erase(db, gone)
    old = [name for (name,) in await db.fetch(_OLD, agent, events_before, limit - len(gone))]
    if old:
        loaded = await db.fetch(sql.LOAD_MANY, old)
        names = [found[0] for found in loaded]
        frozen = [found[sql.WIDTH + 1] or pack(sql.task_in(found)) for found in loaded]
        await db.execute(_SHRINK, names, frozen)
        await db.execute(_DROP_LOG, names)
    return len(gone) + len(old)


async def erase(db: Database, task_ids: list[str]) -> int:
    """Deletes tasks and everything that belongs to them. Returns how many there were."""
    # The rows go first: whoever writes one of these tasks has it locked, or waits and then finds
    # nothing, so no part of it comes back.
    count = int(await db.fetchval(_DELETE, task_ids))
    for statement in _DELETE_PARTS:
        await db.execute(statement, task_ids)
    return count


async def find_in_all_scopes(db: Database, which: AdminFilter, limit: int) -> list[Row]:
    """Returns the tasks of all callers that match a filter, oldest first."""
    tests: list[str] = []
    values: list[object] = []
    places: dict[str, str] = {}
    for name in _NAMED:
        value = getattr(which, name)
        if value is not None:
            values.append(value)
            places[name] = f"${len(values)}"
            tests.append(f"{name} = {places[name]}")
    if which.context_id is not None:
        values.append(which.context_id)
        tests.append(sql.IN_CONTEXT.format(f"${len(values)}::text"))
    if which.active_since is not None:
        values.append(which.active_since)
        # Each half has an index: `task_live` and `task_ended`.
        tests.append(f"(ended = 0 OR (ended IN (1, 2) AND status_at >= ${len(values)}))")
    if which.ended_before is not None:
        values.append(which.ended_before)
        before = f"${len(values)}"
        if which.agent is not None and which.tenant is not None:
            tests.append(
                _OF_TENANT.format(agent=places["agent"], tenant=places["tenant"], before=before)
            )
        else:
            tests.append(f"ended > 0 AND ended IN (1, 2) AND status_at < {before}")
    where = f"WHERE {' AND '.join(tests)} " if tests else ""
    values.append(limit)
    # The text of the query comes from this file alone; the values of the filter are bound.
    query = f"{sql.ALL}{where}ORDER BY created_at, task_id LIMIT ${len(values)}"
    return [sql.row_in(found) for found in await db.fetch(query, *values)]
