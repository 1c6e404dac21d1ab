"""Reads tasks. Each function is one statement, and thereby one snapshot, unless it says more."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dragoman.core.errors import Fenced, TaskNotFound
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import State, Task

from .. import rules
from ..codec import unpack_input
from ..interface import Filter, Listing, Page
from ..task_row import Claim, HeldTask, Row, Scope
from ..writes import Input, Record
from . import statements as sql
from .pool import Database

_INPUTS = "SELECT body FROM dragoman.input WHERE task_id = $1 ORDER BY n"
_RECORDS = "SELECT key, value, seq FROM dragoman.record WHERE task_id = $1 ORDER BY n"
_FINISHED = """
SELECT state, sum(n)::bigint FROM dragoman.tally WHERE agent = $1 GROUP BY state"""
_LIVE = """
SELECT state, count(*) FROM dragoman.task WHERE ended = 0 AND NOT hidden AND agent = $1
GROUP BY state"""
_OF_OWNER = " AND tenant = $2 AND principal = $3 GROUP BY"
_ORDER = "ORDER BY status_at DESC, task_id DESC LIMIT {limit}"
_OWN = """
FROM dragoman.task t WHERE NOT hidden AND tenant = $1 AND principal = $2 AND agent = $3"""
_IN_CONTEXT = f"SELECT task_id, status_at {_OWN} AND state = ANY($4::text[]){{more}} {_ORDER}"
# The index has the tasks of each state in their order.
_IN_LIST = f"""
SELECT found.task_id, found.status_at FROM unnest($4::text[]) AS wanted(state) CROSS JOIN LATERAL (
  SELECT task_id, status_at {_OWN} AND t.state = wanted.state{{more}} {_ORDER}) AS found
{_ORDER}"""  # noqa: S608
_COUNT = f"SELECT count(*) {_OWN} AND state = ANY($4::text[])"
_RUNNABLE = """
SELECT count(*) FROM dragoman.task WHERE runnable AND agent = $1 AND NOT hidden"""


async def row(db: Database, scope: Scope, task_id: str) -> Row:
    """Returns the row of a task."""
    return _own(await db.fetchrow(sql.BY_ID, task_id), scope, task_id)


async def load(db: Database, scope: Scope, task_id: str) -> tuple[Row, Task]:
    """Returns the row and the whole task."""
    found = await db.fetchrow(sql.LOAD_ONE, task_id)
    return _own(found, scope, task_id), sql.task_in(found)


async def read(db: Database, scope: Scope, task_id: str, after: int, limit: int) -> Page:
    """Returns the row and the events after the seq `after`."""
    found = await db.fetchrow(sql.READ, task_id, after, limit)
    return Page(_own(found, scope, task_id), sql.entries_in(found, after, limit))


def _own(found: Any, scope: Scope, task_id: str) -> Row:
    row = sql.row_in(found) if found is not None else None
    if row is None or not row.belongs_to(scope):
        raise TaskNotFound(task_id=task_id)
    return row


async def find_key(db: Database, scope: Scope, key: str) -> tuple[str, bytes] | None:
    """Returns the task of an idempotency key, and the digest of its message."""
    found = await db.fetchrow(sql.BY_KEY, scope.agent, scope.tenant, scope.principal, key)
    return None if found is None else (found[0], found[1])


async def find(db: Database, scope: Scope, which: Filter, limit: int) -> Listing:
    """Returns a page of a list. Its count, its order and its tasks are three statements: a task
    that changes meanwhile is shown as it is then."""
    states = [state.value for state in (State if which.state is None else (which.state,))]
    given: list[Any] = [scope.tenant, scope.principal, scope.agent, states]
    more = ""
    if which.context_id:
        given.append(which.context_id)
        more += " AND " + sql.IN_CONTEXT.format(f"${len(given)}::text")
    if which.since is not None:
        given.append(which.since)
        more += f" AND status_at >= ${len(given)}"
    if more:
        total = int(await db.fetchval(_COUNT + more, *given))
    else:
        total = sum(n for state, n in await _of_owner(db, scope) if state in states)
    if which.before is not None:
        given += which.before
        more += f" AND (status_at, task_id) < (${len(given) - 1}, ${len(given)})"
    # PostgreSQL keeps a plan only if it knows the limit, so there are a few limits.
    few = 1 << (limit - 1).bit_length()
    query = _IN_CONTEXT if which.context_id else _IN_LIST
    places = (await db.fetch(query.format(more=more, limit=few), *given))[:limit]
    loaded = await db.fetch(sql.LOAD_MANY, [task_id for task_id, _ in places]) if places else []
    tasks = {found[0]: sql.task_in(found) for found in loaded}
    shown = [(at, task_id) for task_id, at in places if task_id in tasks]
    return Listing([tasks[task_id] for _, task_id in shown], shown, total)


async def _of_owner(db: Database, scope: Scope) -> list[tuple[str, int]]:
    """Returns how many tasks of a caller are in each state."""
    owner = (scope.agent, scope.tenant, scope.principal)
    finished = await db.fetch(_FINISHED.replace(" GROUP BY", _OF_OWNER), *owner)
    return [*finished, *await db.fetch(_LIVE.replace("\nGROUP BY", _OF_OWNER), *owner)]


async def count_unfinished(db: Database, scope: Scope) -> int:
    """Returns how many tasks of a caller are not finished."""
    return sum(n for state, n in await _of_owner(db, scope) if state not in FINAL)


async def count_by_state(db: Database, agent: str) -> dict[str, int]:
    """Returns how many tasks of an agent are in each state, and how many are runnable."""
    counted: Counter[str] = Counter()
    for state, n in [*await db.fetch(_FINISHED, agent), *await db.fetch(_LIVE, agent)]:
        if n:
            counted[state] += n
    counted["runnable"] = int(await db.fetchval(_RUNNABLE, agent))
    return dict(counted)


async def list_held_tasks(db: Database, worker: str) -> list[HeldTask]:
    """Returns the tasks that a worker holds."""
    rows = [sql.row_in(found) for found in await db.fetch(sql.HELD, worker)]
    return [HeldTask(row.claim, row.inputs, row.cancel) for row in rows]


async def inputs(db: Database, claim: Claim) -> list[Input]:
    """Returns every message that the caller sent to the task, in order."""
    await _check(db, claim)
    return [unpack_input(body) for (body,) in await db.fetch(_INPUTS, claim.task_id)]


async def records(db: Database, claim: Claim) -> list[Record]:
    """Returns every call that the run has recorded, in order."""
    await _check(db, claim)
    return await _recorded(db, claim.task_id)


async def records_of(db: Database, scope: Scope, task_id: str) -> list[Record]:
    """Returns every call that the run of the caller's task has recorded, in order."""
    await row(db, scope, task_id)
    return await _recorded(db, task_id)


async def _recorded(db: Database, task_id: str) -> list[Record]:
    found = await db.fetch(_RECORDS, task_id)
    return [Record(key=key, value=value, seq=seq) for key, value, seq in found]


async def _check(db: Database, claim: Claim) -> None:
    found = await db.fetchrow(sql.BY_ID, claim.task_id)
    if found is None or not rules.holds(sql.row_in(found), claim):
        raise Fenced(task_id=claim.task_id)


async def list_expired_tasks(db: Database, now: int, agent: str, limit: int) -> list[Row]:
    """Returns the tasks of an agent that have waited for their caller for too long."""
    return [sql.row_in(found) for found in await db.fetch(sql.EXPIRED, now, agent, limit)]


async def agents_due(db: Database, now: int) -> set[str]:
    """Returns the names of the agents that have something to do."""
    return {name for (name,) in await db.fetch(sql.AGENTS_DUE, now)}
