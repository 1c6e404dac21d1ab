"""The outbox: how much of a task's log has been delivered to each of its webhooks.

The rules are in `store/outbox.py`. Each function runs in the transaction of its caller, which has
locked the row of the webhook before it applies a rule to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from dragoman.core.errors import TaskNotFound
from dragoman.core.model import Hook

from .. import outbox as rules
from ..bulkheads import Bulkheads, host_of
from ..codec import Unpacker, pack
from ..interface import Delivery
from ..outbox import LETTER, MOVING, HookCursor, Letter, Rule
from ..task_row import Scope
from .pool import Database

# The names of the columns are our own; every value from outside is bound.
_SELECT = f"""
SELECT h.n, h.body, h.tenant, h.principal, h.agent, t.last_seq,
  {", ".join(f"h.{name}" for name in MOVING)}
FROM dragoman.hook h JOIN dragoman.task t USING (task_id) """  # noqa: S608
_BY_N = _SELECT + "WHERE h.n = $1"
_BY_NS = _SELECT + "WHERE h.n = ANY($1::bigint[])"
# The task is locked first, as by those who write it, so that the two cannot wait for each other. It
# must not grow between the look at its length and the note that nothing is due.
_LOCK_TASK_OF = """
SELECT 1 FROM dragoman.task WHERE task_id = (SELECT task_id FROM dragoman.hook WHERE n = $1)
FOR UPDATE"""
_LOCK_BY_N = _BY_N + " FOR UPDATE OF h"
_BY_TASK = _SELECT + "WHERE h.task_id = $1 ORDER BY h.n"
_LOCK_BY_ID = _SELECT + "WHERE h.task_id = $1 AND h.hook_id = $2 FOR UPDATE OF h"
_READY = """
SELECT n, task_id, tenant, principal, host FROM dragoman.hook
WHERE agent = $1 AND due_at > 0 AND due_at <= $2
  AND NOT EXISTS (SELECT 1 FROM unnest($3::text[], $4::text[]) AS full_one(tenant, principal)
    WHERE full_one.tenant = hook.tenant AND full_one.principal = hook.principal)
  AND NOT EXISTS (SELECT 1 FROM unnest($5::text[], $6::text[], $7::text[])
      AS full_one(tenant, principal, host)
    WHERE full_one.tenant = hook.tenant AND full_one.principal = hook.principal
      AND full_one.host = hook.host)
ORDER BY due_at, n LIMIT $8"""
_LOCK_TASKS = """
SELECT task_id FROM dragoman.task WHERE task_id = ANY($1::text[])
ORDER BY task_id FOR UPDATE SKIP LOCKED"""
_LOCK_DUE = """
SELECT n FROM dragoman.hook WHERE n = ANY($1::bigint[]) AND task_id = ANY($2::text[])
  AND due_at > 0 AND due_at <= $3 ORDER BY due_at, n FOR UPDATE SKIP LOCKED"""
_WAITING = _SELECT + "WHERE h.due_at > 0 AND h.agent = coalesce($1, h.agent) ORDER BY h.n"
_LETTERS = f"""
SELECT n, {", ".join(LETTER)} FROM dragoman.letter WHERE n = ANY($1::bigint[])
ORDER BY seq"""  # noqa: S608
_DEAD_LETTERS = f"""
SELECT n, {", ".join(f"l.{name}" for name in LETTER)}
FROM dragoman.letter l JOIN dragoman.hook h USING (n)
WHERE dead_at > 0 AND agent = coalesce($1, agent) ORDER BY dead_at, n, seq LIMIT $2"""  # noqa: S608
_INSERT_LETTER = f"""
INSERT INTO dragoman.letter (n, {", ".join(LETTER)})
VALUES ($1, {", ".join(f"${place}" for place in range(2, len(LETTER) + 2))})"""  # noqa: S608
_DELETE_LETTER = "DELETE FROM dragoman.letter WHERE n = $1 AND seq = $2"
_TASK = """
SELECT last_seq, ended FROM dragoman.task
WHERE task_id = $1 AND tenant = $2 AND principal = $3 AND agent = $4"""
_INSERT = """
INSERT INTO dragoman.hook (task_id, hook_id, tenant, principal, agent, body, host, sent, due_at,
  taken, attempt, status, error) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, 0, 0, '')"""
_COUNT = "UPDATE dragoman.task SET hooks = hooks + $2 WHERE task_id = $1"
_UPDATE = f"""
UPDATE dragoman.hook SET body = $2, host = $3,
  {", ".join(f"{name} = ${place}" for place, name in enumerate(MOVING, start=4))}
WHERE n = $1"""  # noqa: S608
_DELETE = """
DELETE FROM dragoman.hook
WHERE task_id = $1 AND hook_id = $2 AND tenant = $3 AND principal = $4 AND agent = $5
RETURNING n"""

_hook_in = Unpacker(Hook)
_moving_of = attrgetter(*MOVING)
_letter_of = attrgetter(*LETTER)


async def set_hook(db: Database, scope: Scope, hook: Hook, now: int) -> None:
    """Stores a webhook."""
    last, ended = await _task(db, scope, hook.task_id, lock=True)
    found = await db.fetchrow(_LOCK_BY_ID, hook.task_id, hook.hook_id)
    if found is not None:
        cursor = await _cursor_in(db, found)
        await _save(db, cursor, rules.move(cursor, hook, now))
        return
    sent = last - 1 if ended else last
    place = (hook.task_id, hook.hook_id, *_owner(scope), pack(hook), host_of(hook.url))
    await db.execute(_INSERT, *place, sent, now if sent < last else 0)
    await db.execute(_COUNT, hook.task_id, 1)


async def hooks(db: Database, scope: Scope, task_id: str) -> list[Hook]:
    """Returns the webhooks of a task, oldest first."""
    await _task(db, scope, task_id, lock=False)
    return [_hook_in(found[1]) for found in await db.fetch(_BY_TASK, task_id)]


async def cursors(db: Database, task_id: str) -> list[HookCursor]:
    """Returns the webhooks of a task in any scope, oldest first, with what is due to them."""
    return await _cursors_in(db, await db.fetch(_BY_TASK, task_id))


async def delete_hook(db: Database, scope: Scope, task_id: str, hook_id: str) -> None:
    """Deletes a webhook and everything that is still due to it."""
    try:
        await _task(db, scope, task_id, lock=True)
    except TaskNotFound:
        return
    for (n,) in await db.fetch(_DELETE, task_id, hook_id, *_owner(scope)):
        await db.execute("DELETE FROM dragoman.letter WHERE n = $1", n)
        await db.execute(_COUNT, task_id, -1)


async def _task(db: Database, scope: Scope, task_id: str, *, lock: bool) -> tuple[int, int]:
    """Returns the length of a task's log, and whether the task has ended."""
    query = _TASK + " FOR UPDATE" if lock else _TASK
    found = await db.fetchrow(query, task_id, *_owner(scope))
    if found is None:
        raise TaskNotFound(task_id=task_id)
    return found[0], found[1]


async def claim_deliveries(
    db: Database, agent: str, limit: int, now: int, hold_ms: int, bulkheads: Bulkheads | None
) -> list[Delivery]:
    """Claims the deliveries that are due, oldest first."""
    deliveries: list[Delivery] = []
    looking = True
    while looking and len(deliveries) < limit:
        # The query leaves out full bulkheads, but one may fill up among its results. We then query
        # again, for later deliveries to other hosts, unless there are none. A query of which
        # nothing was taken is the last one, because the next would return the same.
        most = limit - len(deliveries)
        found = await _ready(db, agent, now, most, bulkheads)
        admitted = [
            (n, task_id)
            for n, task_id, tenant, principal, host in found
            if bulkheads is None or bulkheads.admit((tenant, principal), host)
        ]
        taken = await _lock(db, admitted, now)
        for cursor in taken:
            held, delivery = rules.take(cursor, now, hold_ms)
            await _save(db, cursor, held)
            if delivery is not None:
                deliveries.append(delivery)
        looking = bool(taken) and len(admitted) < len(found) == most
    return deliveries


async def _ready(
    db: Database, agent: str, now: int, limit: int, bulkheads: Bulkheads | None
) -> list[Any]:
    """Returns the webhooks that are due, as far as their bulkheads are not full."""
    principals = bulkheads.full_principals if bulkheads is not None else []
    destinations = bulkheads.full_destinations if bulkheads is not None else []
    return await db.fetch(
        _READY,
        agent,
        now,
        [tenant for tenant, _ in principals],
        [principal for _, principal in principals],
        [tenant for tenant, _, _ in destinations],
        [principal for _, principal, _ in destinations],
        [host for _, _, host in destinations],
        limit,
    )


async def _lock(db: Database, admitted: list[tuple[int, str]], now: int) -> list[HookCursor]:
    """Locks webhooks and their tasks, and returns those that are due. Those that another process
    has locked are left to it."""
    if not admitted:
        return []
    numbers, tasks = [n for n, _ in admitted], [task_id for _, task_id in admitted]
    locked = [task_id for (task_id,) in await db.fetch(_LOCK_TASKS, tasks)]
    due = [n for (n,) in await db.fetch(_LOCK_DUE, numbers, locked, now)]
    cursors = {cursor.n: cursor for cursor in await _cursors_in(db, await db.fetch(_BY_NS, due))}
    return [cursors[n] for n in due if n in cursors]


async def settle(db: Database, id: int, rule: Rule, now: int) -> bool:
    """Applies a rule to the webhook of a delivery. Returns whether that changed anything."""
    n, seq = rules.split_id(id)
    await db.fetch(_LOCK_TASK_OF, n)
    found = await db.fetchrow(_LOCK_BY_N, n)
    if found is None:
        return False
    before = await _cursor_in(db, found)
    after = rule(before, seq, now)
    if after is None or after is before:
        return False
    await _save(db, before, after)
    return True


async def outbox(db: Database, *, dead: bool, limit: int, agent: str | None) -> list[Delivery]:
    """Returns the deliveries on their way, or the dead letters, oldest first."""
    if not dead:
        cursors = await _cursors_in(db, await db.fetch(_WAITING, agent))
        return list(islice(chain.from_iterable(map(rules.waiting, cursors)), limit))
    letters = []
    for n, *letter in await db.fetch(_DEAD_LETTERS, agent, limit):
        found = await db.fetchrow(_BY_N, n)
        if found is not None:
            letters.append(rules.delivery_of(await _cursor_in(db, found), _letter_in(letter)))
    return letters


async def _cursor_in(db: Database, found: Sequence[Any]) -> HookCursor:
    (cursor,) = await _cursors_in(db, [found])
    return cursor


async def _cursors_in(db: Database, rows: Sequence[Sequence[Any]]) -> list[HookCursor]:
    letters: dict[int, list[Letter]] = {found[0]: [] for found in rows}
    for n, *letter in await db.fetch(_LETTERS, list(letters)) if rows else ():
        letters[n].append(_letter_in(letter))
    return [
        HookCursor(
            n=n,
            hook=_hook_in(body),
            scope=Scope(tenant, principal, agent),
            last=last,
            letters=tuple(letters[n]),
            **dict(zip(MOVING, moving, strict=True)),
        )
        for n, body, tenant, principal, agent, last, *moving in rows
    ]


async def _save(db: Database, before: HookCursor, after: HookCursor) -> None:
    place = (pack(after.hook), host_of(after.hook.url))
    await db.execute(_UPDATE, after.n, *place, *_moving_of(after))
    for gone in set(before.letters) - set(after.letters):
        await db.execute(_DELETE_LETTER, after.n, gone.seq)
    for new in set(after.letters) - set(before.letters):
        await db.execute(_INSERT_LETTER, after.n, *_letter_of(new))


def _owner(scope: Scope) -> tuple[str, str, str]:
    return scope.tenant, scope.principal, scope.agent


def _letter_in(found: Iterable[Any]) -> Letter:
    return Letter(**dict(zip(LETTER, found, strict=True)))
