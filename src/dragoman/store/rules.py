"""What each operation makes of a row: the rules every store shares, without any I/O.

A rule takes the row as it is and gives the row as it will be, or raises. Nothing is changed before
every check has passed, so a refused operation leaves no trace.
"""

from __future__ import annotations

from uuid import uuid4

from msgspec.structs import replace

from dragoman.core.errors import Conflict, Fenced, StoreError, TaskFinished
from dragoman.core.events import Ask
from dragoman.core.lifecycle import WAITING
from dragoman.core.model import Message

from .interface import SILENCE, AdminFilter, Claim, Draft, Input, Row, Unheard, Write, backoff


def opened(draft: Draft) -> Row:
    """A new task. One that is born finished is held by nobody."""
    row, entries = draft.row, draft.entries
    if not entries or entries[0].seq != 1 or row.last_seq != len(entries):
        raise StoreError("The log of a new task begins at 1 and has no gaps.")
    if draft.ended is not None and (row.token or row.runnable or row.question):
        return replace(row, worker="", token="", runnable=False, question="", asking=None)
    return row


def appended(row: Row, write: Write) -> Row:
    """The log goes on. The hot path: one comparison each, one new row."""
    claim, ended = write.claim, write.ended
    # An unheld or finished task has no token: nobody holds an empty claim.
    if not row.token or row.token != claim.token or row.epoch != claim.epoch:
        raise Fenced(task_id=row.task_id)
    if row.last_seq != write.base:
        raise Fenced("The log has grown since.", task_id=row.task_id)
    last = write.base + len(write.entries)
    if write.entries and write.entries[-1].seq != last:
        raise StoreError("The events do not continue the log.")
    if ended is not None and not write.entries:
        raise StoreError("A task ends with an event.")
    attempt = 1 if write.fresh else row.attempt
    if ended is None:
        return replace(
            row,
            state=write.state,
            last_seq=last,
            status_at=write.status_at,
            heard=write.heard,
            question=write.question,
            asking=write.asking,
            expires_at=write.expires_at,
            attempt=attempt,
        )
    if row.inputs > write.heard:
        raise Unheard(row.task_id)
    return replace(
        row,
        state=write.state,
        last_seq=last,
        status_at=write.status_at,
        heard=write.heard,
        question="",
        asking=None,
        expires_at=0,
        attempt=attempt,
        worker="",
        token="",
    )


def held(row: Row, claim: Claim) -> bool:
    """Whether this claim is the one in force."""
    return bool(row.token) and row.token == claim.token and row.epoch == claim.epoch


def claim(row: Row, worker: str) -> Row:
    """A worker takes the task: new token, next epoch, one more attempt."""
    return replace(
        row,
        worker=worker,
        token=uuid4().hex,
        epoch=row.epoch + 1,
        attempt=row.attempt + 1,
        runnable=False,
    )


def released(row: Row, now: int, *, runnable: bool) -> Row:
    """A worker gives the task back; the attempt does not count.

    What came for the run while it was on its way out (a message, a cancel) must not be left
    lying, so such a task is runnable whatever the worker believed."""
    return replace(
        row,
        worker="",
        token="",
        attempt=max(0, row.attempt - 1),
        runnable=runnable or row.cancel or (row.state in WAITING and not row.resting),
        run_at=now,
    )


def reaped(row: Row, now: int) -> Row:
    """The worker died: the task runs again after a pause, unless it only waits for its caller."""
    if row.cancel:
        return replace(row, worker="", token="", runnable=True, run_at=now)
    if row.resting:
        return replace(row, worker="", token="", runnable=False)
    return replace(row, worker="", token="", runnable=True, run_at=now + backoff(row.attempt))


def set_back(row: Row, by: int) -> Row:
    """The clock was set back: what waits for its time must not wait longer for that."""
    return replace(row, run_at=row.run_at - by) if row.runnable else row


def add_input(row: Row, now: int, question: str | None, by: str = "") -> tuple[Row, str]:
    """The caller says something: the row after it, and the question it answers.

    A question is open until something answers it, heard or not: of two answers the first counts,
    and the second is refused instead of being taken for the answer to what comes next."""
    if row.final:
        raise TaskFinished(task_id=row.task_id)
    open_question = row.question if row.inputs == row.heard else ""
    if open_question and row.asking is Ask.APPROVAL and 0 < row.expires_at <= now and by != SILENCE:
        # The no may not be said yet, but a late yes must not come before it.
        raise Conflict("This approval has expired.", task_id=row.task_id, question=row.question)
    if question is not None and (not question or question != open_question):
        raise Conflict("This question is not open.", task_id=row.task_id, question=question)
    inputs = row.inputs + 1
    if row.worker or row.runnable:
        return replace(row, inputs=inputs), open_question
    return replace(row, inputs=inputs, runnable=True, run_at=now), open_question


def request_cancel(row: Row, now: int) -> Row:
    """The caller wants it stopped. What nobody holds is due at once, for whoever comes first."""
    if row.worker:
        return replace(row, cancel=True)
    return replace(row, cancel=True, runnable=True, run_at=now)


def wiped(said: Input) -> Input:
    """An input of which only the number and the question are left."""
    bare = Message(message_id=said.message.message_id, role=said.message.role, parts=())
    return Input(message=bare, question=said.question, key=said.key, n=said.n)


def owned(row: Row, which: AdminFilter) -> bool:
    """Whether a task is among those the operator means."""
    named = ("tenant", "principal", "context_id", "task_id", "agent")
    return all(getattr(which, name) in (None, getattr(row, name)) for name in named) and (
        which.ended_before is None or (row.final and row.status_at < which.ended_before)
    )
