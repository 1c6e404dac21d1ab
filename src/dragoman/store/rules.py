"""The rules for changes of a row, which all stores share, without any I/O.

A rule takes the current row and returns the new one, or raises an error. Nothing is changed before
every check has passed, so a refused operation leaves no trace.
"""

from __future__ import annotations

from uuid import uuid4

from msgspec.structs import replace

from dragoman.core.errors import Conflict, Fenced, StoreError, TaskFinished
from dragoman.core.events import Ask
from dragoman.core.lifecycle import WAITING
from dragoman.core.model import Message

from .interface import SILENCE, AdminFilter
from .task_row import Claim, Row
from .writes import Draft, Input, Unheard, Write

BACKOFF_LIMIT = 30_000
"""The longest pause between two attempts, in milliseconds."""


HEAD_START = 600_000
"""How long a task of one priority has to wait until a new one of the next higher priority no longer
overtakes it, in milliseconds. Therefore a task of low priority is claimed at last, however many
others come."""


def turn(row: Row) -> int:
    """Returns the time by which tasks that are due are claimed, the earliest first. Stores that
    search by an index compute it there."""
    return row.run_at - row.priority * HEAD_START


def backoff(attempt: int) -> int:
    """Returns the pause before the next attempt in milliseconds: 1, 2, 4... 30 s."""
    return int(min(BACKOFF_LIMIT, 1000 * 2 ** max(0, attempt - 1)))


def open_task(draft: Draft) -> Row:
    """Checks a new task and returns its row. A task that ends with its first events is held by no
    worker."""
    row, entries = draft.row, draft.entries
    if not entries or entries[0].seq != 1 or row.last_seq != len(entries):
        raise StoreError("The log of a new task must begin at 1 and have no gaps.")
    if draft.ended is not None and (row.token or row.runnable or row.question):
        return replace(row, worker="", token="", runnable=False, question="", asking=None)
    return row


def append(row: Row, write: Write) -> Row:
    """Continues the log. This is the hot path: one comparison for each check, one new row."""
    claim, over = write.claim, write.ended is not None
    if not holds(row, claim):
        raise Fenced(task_id=row.task_id)
    # The claim alone is not enough: a write that is repeated because its answer was lost would
    # be appended twice.
    if row.last_seq != write.base:
        raise Fenced("The log has grown since.", task_id=row.task_id)
    last = write.base + len(write.entries)
    if write.entries and write.entries[-1].seq != last:
        raise StoreError("The events do not continue the log.")
    if over and not write.entries:
        raise StoreError("A task must end with an event.")
    if over and row.inputs > write.heard:
        raise Unheard(row.task_id)
    grown = replace(
        row, state=write.state, last_seq=last, status_at=write.status_at, heard=write.heard
    )
    if write.shown:
        grown = replace(grown, hidden=False)
    if not (over or write.fresh or write.question or row.question or row.expires_at):
        return grown
    return replace(
        grown,
        question="" if over else write.question,
        asking=None if over else write.asking,
        expires_at=0 if over else write.expires_at,
        attempt=1 if write.fresh else row.attempt,
        worker="" if over else row.worker,
        token="" if over else row.token,
    )


def holds(row: Row, claim: Claim) -> bool:
    """Returns whether this claim is the one in force."""
    # A task that no worker holds has no token, and an empty token must not match it.
    return bool(row.token) and row.token == claim.token and row.epoch == claim.epoch


def claim(row: Row, worker: str) -> Row:
    """Gives the task to a worker, with a new token, the next epoch and one more attempt."""
    return replace(
        row,
        worker=worker,
        token=uuid4().hex,
        epoch=row.epoch + 1,
        attempt=row.attempt + 1,
        runnable=False,
    )


def release(row: Row, now: int, *, runnable: bool) -> Row:
    """Takes the task back from its worker; the attempt does not count.

    A message or a cancel may have come while the run was on its way out. Such a task is runnable
    whatever the worker says, because otherwise nobody would ever react."""
    return replace(
        row,
        worker="",
        token="",
        attempt=max(0, row.attempt - 1),
        runnable=runnable or row.cancel or (row.state in WAITING and not row.resting),
        run_at=now,
    )


def reap(row: Row, now: int) -> Row:
    """Takes the task from a dead worker. It runs again after a pause, unless it only waits for
    its caller."""
    if row.cancel:
        return replace(row, worker="", token="", runnable=True, run_at=now)
    if row.resting:
        return replace(row, worker="", token="", runnable=False)
    return replace(row, worker="", token="", runnable=True, run_at=now + backoff(row.attempt))


def unclaim(row: Row) -> Row:
    """Returns the row as another store imports it, in which no worker holds the task."""
    if not row.worker:
        return row
    return replace(row, worker="", token="", runnable=row.cancel or not row.resting)


def set_back(row: Row, by: int) -> Row:
    """Moves a due time back with the clock, so that a task does not wait longer because someone
    set the clock back."""
    return replace(row, run_at=row.run_at - by) if row.runnable else row


def add_input(row: Row, now: int, question: str | None, by: str = "") -> tuple[Row, str]:
    """Takes a message of the caller. Returns the row after it, and the question that it answers.

    A question is open until it is answered, whether the run has received the answer or not. Of two
    answers the first counts, and the second is refused: it must not be taken for the answer to the
    next question."""
    if row.final:
        raise TaskFinished(task_id=row.task_id)
    open_question = row.question if row.inputs == row.heard else ""
    if open_question and row.asking is Ask.APPROVAL and 0 < row.expires_at <= now and by != SILENCE:
        # Maintenance may not have sent the denial yet, but a late approval must not overtake it.
        raise Conflict("This approval has expired.", task_id=row.task_id, question=row.question)
    if question is not None and (not question or question != open_question):
        raise Conflict("This question is not open.", task_id=row.task_id, question=question)
    inputs = row.inputs + 1
    if row.worker or row.runnable:
        return replace(row, inputs=inputs), open_question
    return replace(row, inputs=inputs, runnable=True, run_at=now), open_question


def request_cancel(row: Row, now: int) -> Row:
    """Marks the task for cancellation. A task that no worker holds is due at once, so that one
    takes it up and ends it."""
    if row.worker:
        return replace(row, cancel=True)
    return replace(row, cancel=True, runnable=True, run_at=now)


def is_expired(row: Row, now: int) -> bool:
    """Returns whether a task has waited for its caller for too long."""
    return 0 < row.expires_at <= now and row.state in WAITING and row.resting


def wipe(said: Input) -> Input:
    """Removes the content of an input; its number and its question stay."""
    bare = Message(message_id=said.message.message_id, role=said.message.role, parts=())
    return Input(message=bare, question=said.question, key=said.key, n=said.n)


def matches(row: Row, which: AdminFilter) -> bool:
    """Returns whether a task is one of those that the operator asks for."""
    named = ("tenant", "principal", "context_id", "task_id", "agent", "dialect")
    before, since = which.ended_before, which.active_since
    return (
        all(getattr(which, name) in (None, getattr(row, name)) for name in named)
        and (before is None or (row.final and row.status_at < before))
        and (since is None or not row.final or row.status_at >= since)
    )
