"""Workers and their claims on tasks. Each function runs in the transaction of its caller.

The rows that a rule changes are locked first (`FOR UPDATE`), so what the rule has checked is still
true when the transaction commits. Several workers that claim at a time skip the rows that others
have locked, so none waits for another.
"""

from __future__ import annotations

from msgspec.structs import replace

from dragoman.core.errors import StoreUnavailable, TaskNotFound

from .. import rules
from ..codec import pack
from ..task_row import Claim, Row, Scope
from ..writes import Existing, Input
from . import retention
from . import statements as sql
from .pool import Database, drop_marks

JUMPED = 1000
"""The smallest step back in milliseconds that counts as setting a clock. The clocks of two machines
differ by less, and so does a measured difference between ours and that of the database."""

_ENLIST = """
INSERT INTO dragoman.worker (worker, lease_until, layout) VALUES ($1, $2, $3)
ON CONFLICT (worker) DO UPDATE SET lease_until = excluded.lease_until, layout = excluded.layout"""
_BEAT = "UPDATE dragoman.worker SET lease_until = $2 WHERE worker = $1"
_LIVE = "SELECT worker FROM dragoman.worker WHERE lease_until > $1 ORDER BY worker"
_END_LEASES = "UPDATE dragoman.worker SET lease_until = 0 WHERE worker = ANY($1::text[])"
_DISMISS = "DELETE FROM dragoman.worker WHERE worker = $1"
_DISMISS_DEAD = "DELETE FROM dragoman.worker WHERE lease_until <= $1"
# A worker that is being declared dead must not get another task: the deletion of its row waits.
ENLISTED = "SELECT 1 FROM dragoman.worker WHERE worker = $1 FOR KEY SHARE"
_LATEST = "SELECT latest FROM dragoman.clock FOR UPDATE"
_NOTE = "UPDATE dragoman.clock SET latest = $1"
_LATER = """
UPDATE dragoman.task SET run_at = run_at - $1 WHERE runnable AND run_at > $2"""
_LATER_HOOKS = """
UPDATE dragoman.hook SET due_at =
  greatest(due_at - $1, CASE taken WHEN 0 THEN 1 ELSE least(due_at, $2 + $3) END)
WHERE due_at > 0 AND due_at > $2"""
_INSERT_INPUT = "INSERT INTO dragoman.input (task_id, n, body) VALUES ($1, $2, $3)"
_INSERT_KEY = """
INSERT INTO dragoman.idempotency (agent, tenant, principal, key, task_id, digest)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (agent, tenant, principal, key) DO NOTHING"""


# Workers.


async def enlist(db: Database, worker: str, until: int, layout: int) -> None:
    """Adds a worker whose lease ends at this time."""
    await db.execute(_ENLIST, worker, until, layout)


async def beat(db: Database, worker: str, until: int) -> bool:
    """Renews a lease. Returns False if the worker has been declared dead."""
    return await db.execute(_BEAT, worker, until) == 1


async def list_workers(db: Database, now: int) -> list[str]:
    """Returns the workers whose leases have not ended."""
    return [name for (name,) in await db.fetch(_LIVE, now)]


async def end_leases(db: Database, workers: list[str]) -> None:
    """Ends the leases of workers whose process leaves."""
    await db.execute(_END_LEASES, workers)


async def retire(db: Database, worker: str, now: int, hold: int) -> None:
    """Removes a worker and gives back the tasks that it holds."""
    await note_time(db, now, hold)
    await db.execute(_DISMISS, worker)
    held = [sql.row_in(found) for found in await db.fetch(sql.LOCK_HELD, worker)]
    await sql.put(db, (rules.release(row, now, runnable=not row.resting) for row in held))


async def reap(db: Database, now: int, lease_now: int, hold: int) -> list[str]:
    """Takes the tasks of dead workers away from them, and returns their ids."""
    await note_time(db, now, hold)
    await db.execute(_DISMISS_DEAD, lease_now)
    # A task may also be held by a worker that was never enlisted.
    lost = [sql.row_in(found) for found in await db.fetch(sql.ORPHANED)]
    await sql.put(db, (rules.reap(row, now) for row in lost))
    await drop_marks(db)
    return [row.task_id for row in lost]


async def note_time(db: Database, now: int, hold: int) -> None:
    """Notes the time of day. If the clock was set back since the last note, moves everything back
    that waits for a time of day: it would otherwise wait longer.

    A delivery may have been taken since the clock was set. It stays hidden for up to `hold`
    milliseconds from now, or a second worker would take it while the first one calls."""
    latest = await db.fetchval(_LATEST)
    if 0 <= latest - now < JUMPED:
        return
    await db.execute(_NOTE, now)
    if latest > now:
        await db.execute(_LATER, latest - now, now)
        await db.execute(_LATER_HOOKS, latest - now, now, hold)


# Tasks.


async def seize(db: Database, worker: str, task_id: str, epoch: int) -> Row | None:
    """Claims one unfinished task, if its epoch is still this one."""
    if not await db.fetch(ENLISTED, worker):
        return None
    row = await _locked(db, task_id)
    if row is None or row.final or row.epoch != epoch:
        return None
    row = rules.claim(row, worker)
    await sql.put(db, [row])
    return row


async def release(db: Database, claim: Claim, now: int, *, runnable: bool) -> None:
    """Gives a task back, if the claim is in force."""
    row = await _locked(db, claim.task_id)
    if row is not None and rules.holds(row, claim):
        await sql.put(db, [rules.release(row, now, runnable=runnable)])


async def discard(db: Database, claim: Claim) -> None:
    """Drops a task, if the claim is in force."""
    row = await _locked(db, claim.task_id)
    if row is not None and rules.holds(row, claim):
        await retention.erase(db, [claim.task_id])


async def add_input(
    db: Database, scope: Scope, task_id: str, said: Input, question: str | None, now: int
) -> Row:
    """Stores a message of the caller."""
    key = said.key
    if key is not None:
        # A second message with this key waits here until the first one is committed.
        place = (scope.agent, scope.tenant, scope.principal, key.key)
        if not await db.execute(_INSERT_KEY, *place, task_id, key.digest):
            found = await db.fetchrow(sql.BY_KEY, *place)
            if found is None:  # its task was deleted in this moment
                raise StoreUnavailable
            raise Existing(found[0], same=found[1] == key.digest)
    row, answers = rules.add_input(await _scoped(db, scope, task_id), now, question, said.by)
    body = pack(_numbered(said, answers, row.inputs))
    await db.execute(_INSERT_INPUT, task_id, row.inputs, body)
    await sql.put(db, [row])
    return row


async def ask_cancel(db: Database, scope: Scope, task_id: str, now: int) -> Row:
    """Marks an unfinished task for cancellation."""
    row = await _scoped(db, scope, task_id)
    if not row.final and not row.cancel:
        row = rules.request_cancel(row, now)
        await sql.put(db, [row])
    return row


async def _locked(db: Database, task_id: str) -> Row | None:
    found = await db.fetchrow(sql.LOCKED, task_id)
    return None if found is None else sql.row_in(found)


async def _scoped(db: Database, scope: Scope, task_id: str) -> Row:
    row = await _locked(db, task_id)
    if row is None or not row.belongs_to(scope):
        raise TaskNotFound(task_id=task_id)
    return row


def _numbered(said: Input, answers: str, n: int) -> Input:
    return replace(said, question=answers, n=n)
