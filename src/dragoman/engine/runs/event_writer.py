"""Writes the events of a run to the log of its task.

Theory. A run is the only writer of its task. `stamp` gives an event its position in the log, folds
it into the task and queues it. At the end of the loop iteration, all queued events go to the store
as one write, and while that write is in flight the next one collects. So a run never waits for the
disk (unless it is far ahead of it), events that are ready together share one commit, and a task
that ends in its first iteration is created and finished in a single write. Only committed events
reach the live log and the readers, so nobody sees an event that a crash could take back.

At most one write of a task is in flight. The store refuses a write that does not continue the log
exactly where it ends, so if the first of two writes failed, the second would fail too, and the
recovery would have to handle both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from msgspec.structs import replace

from dragoman.core.errors import Fenced, StoreUnavailable
from dragoman.core.events import AnyEvent, ArtifactChunk, Asked, Opened, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL, Fold
from dragoman.core.model import Artifact, Hook, Message, Role, State, Task, Text
from dragoman.core.task_size import task_weight, weight
from dragoman.store.interface import Claim, Draft, Idempotency, Record, Row, Write

from .live_log import LiveLog
from .open_question import NO_QUESTION, OpenQuestion
from .run_context import RunContext

TURN_LIMIT = 64
"""Events that a run may queue before it yields to other tasks of the loop."""
QUEUE_LIMIT = 256
"""Queued events at which a run waits for the disk."""
WEIGHT_LIMIT = 1 << 20
"""Queued characters and bytes at which a run waits for the disk."""
MAX_RETRIES = 30
"""How often a write is retried while the store is unavailable: about as long as a lease lasts."""
MAX_RETRY_PAUSE_SECONDS = 1.0
"""The longest pause before a retry. Callers of the task are refused until one succeeds."""
STALL_SECONDS = 1.5
"""How long a store may be away before those that wait for the task are told. A moment costs
nothing."""

WORKING = StateChanged(state=State.WORKING)


class Owner(Protocol):
    """The callbacks of a writer, implemented by its run."""

    def on_committed(self) -> None:
        """Called when all stamped events are committed and the task continues."""

    def close(self, error: Exception | None) -> None:
        """Called when the final event of the task is committed."""

    def lose(self, error: Exception) -> None:
        """Called when the task cannot be written any more: another worker has claimed it, or the
        store is unavailable."""

    def stop_code(self) -> None:
        """Stops the author's code; its further events are ignored."""

    def on_stalled(self) -> None:
        """Called when a write has to be retried, because the store is unavailable."""

    def on_refused(self, write: Write, error: Exception) -> None:
        """Called when the store refuses a write because of its content. Nothing is written until
        the run calls `resume`."""


class EventWriter:
    """Stamps the events of one claimed task, folds them and commits them in order. Only fields that
    a short task does not touch have their defaults in the class: in Python 3.11, to read one there
    costs ten times as much as to set it."""

    closed: bool
    """Whether writing has ended: the task is finished, or another worker has it."""
    error: Exception | None
    """The reason, if the task was lost."""
    final_task: Task | None
    """The complete task, once an event has ended it."""
    unopened: bool
    """Whether nobody can see the task yet, because a skill that may reply directly has done nothing
    else so far. It may be in the store all the same, hidden (`commit_unseen`)."""
    unseen: bool
    """Whether the task is hidden in the store, or is by the next write."""
    _keeps_unseen: bool
    """Whether the next write leaves the task hidden."""
    _shows: bool
    """Whether the next write makes the task visible, even if it writes nothing else."""
    question: OpenQuestion
    """The open question of the task."""
    heard: int
    """The number of the caller's inputs that are in the log or queued for it."""
    reset_attempts = False
    """Whether an answer was received, so that attempts count from one again."""
    idempotency: Idempotency | None
    """The idempotency key of the send that creates the task."""
    hook: Hook | None
    """The webhook that is registered together with the task."""
    records: tuple[Record, ...]
    """Journal records that the next write commits."""
    forget: tuple[int, ...] = ()
    """Inputs whose content the next write deletes from the store."""
    stalled = False
    """Whether the store did not take a write, which is being retried."""
    has_webhooks: bool
    """Whether a commit creates deliveries for webhooks."""
    size: int
    """The size of the task's artifacts and messages, in characters and bytes."""
    _weight: int
    """The part of `size` that is still queued."""
    _in_flight: Write | Draft | None
    _departed_at = 0.0
    """The loop time at which the write in flight was handed over first."""
    _recovering: bool
    """Whether a write was refused because of its content; nothing is written until `resume`."""
    _claim: Claim | None
    _queue_waiters: tuple[asyncio.Future[None], ...]
    """Futures that complete when the queued events are committed."""
    _flight_waiters: tuple[asyncio.Future[None], ...]
    """Futures that complete when the write in flight is committed."""
    _impatient: tuple[asyncio.Future[None], ...] = ()
    """Those of them that fail when a write has to be retried."""

    def __init__(self, shared: RunContext, owner: Owner, row: Row, log: LiveLog) -> None:
        self.shared = shared
        self.row = row
        self.log = log
        self.fold = Fold(row.task_id, row.context_id)
        self._owner: Owner | None = owner
        self._queue: list[Stamped] = []
        self.closed = self.unopened = self.unseen = self.has_webhooks = False
        self._keeps_unseen = self._shows = False
        self._recovering = self._scheduled = False
        self.error = self.final_task = self.idempotency = self.hook = self._in_flight = None
        self._claim, self.question = None, NO_QUESTION
        self.heard = self.size = self._weight = self._retries = 0
        self.records = self._queue_waiters = self._flight_waiters = ()

    @property
    def claim(self) -> Claim:
        """The claim under which this process writes the task."""
        # Made when it is needed: a task that is created and finished in one write needs none.
        if self._claim is None:
            self._claim = self.row.claim
        return self._claim

    def load(self, task: Task) -> None:
        """Continues an existing task from its stored state."""
        row = self.row
        self.fold = Fold.of(task, row.last_seq)
        self.size = task_weight(task)
        self.heard = row.heard
        self.unopened = self.unseen = row.hidden  # the next write shows it
        if row.question:
            self.question = OpenQuestion(row.question, row.asking, row.expires_at)

    # From the run to the queue.

    def open(self, opened: Opened, *, working: bool) -> None:
        """Stamps the first events of a new task: submitted and, if it runs here, working. Both are
        part of the write that creates the task."""
        # Every task has these two, so they do without the questions that `stamp` asks of an event.
        row, fold = self.row, self.fold
        first = Stamped(row.task_id, row.context_id, 1, row.created_at, opened)
        fold.add(first)
        self._queue.append(first)
        if working:
            second = Stamped(row.task_id, row.context_id, 2, row.created_at, WORKING)
            fold.add(second)
            self._queue.append(second)

    def stamp(self, event: AnyEvent, at: int = 0) -> None:
        """Gives an event its position in the log, folds it and queues it, without scheduling a
        write."""
        fold = self.fold
        at = at or self.shared.clock()
        entry = Stamped(fold.task_id, fold.context_id, fold.seq + 1, at, event)
        fold.add(entry)
        self._queue.append(entry)
        if type(event) is ArtifactChunk:
            self._grow(event.artifact)
        elif type(event) is StateChanged:
            if event.message is not None:
                self._grow(event.message)
            elif event.heard is not None:
                self._grow(event.heard)
        elif type(event) is Asked:
            self._grow(event.message)

    def closing_message(self, text: str) -> Message:
        """Returns the status message of a task whose end does not come from its code."""
        row = self.row
        return Message(
            message_id=f"{row.task_id}.end",
            role=Role.AGENT,
            parts=(Text(text),),
            context_id=row.context_id,
            task_id=row.task_id,
        )

    def _grow(self, by: Artifact | Message) -> None:
        added = weight(by.parts)
        self._weight += added
        self.size += added

    # From the queue to the store.

    def schedule(self) -> None:
        """Schedules a flush for the end of this loop iteration."""
        if not self._scheduled and self._in_flight is None:
            self._scheduled = True
            self.shared.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Passes the queued events to the store as one write, unless a write is in flight."""
        self._scheduled = False
        if self._in_flight is not None or self._recovering or self.closed:
            return
        if not self._queue and not self.records and not self._shows:
            return
        shown = False
        if self.unopened and not self._keeps_unseen:
            shown, self.unopened, self.unseen = self.unseen, False, False
        fold = self.fold
        status = fold.status
        ended: Task | None = None
        if status.state in FINAL:
            ended = self.final_task = fold.task()
            self.question = NO_QUESTION
        entries = tuple(self._queue)
        committed = self.log.committed
        if committed == 0 and entries and entries[0].seq == 1:
            self._create(entries, ended)
            return
        question = self.question
        write = Write(
            claim=self._claim or self.claim,
            base=committed,
            entries=entries,
            state=status.state,
            status_at=status.at,
            heard=self.heard,
            question=question.key,
            asking=question.kind,
            expires_at=question.expires_at,
            records=self.records,
            forget=self.forget,
            ended=ended,
            fresh=self.reset_attempts,
            shown=shown,
        )
        self._depart(write)
        self.shared.store.append(write, self._landed)

    def _create(self, entries: tuple[Stamped, ...], ended: Task | None) -> None:
        row, question, status = self.row, self.question, self.fold.status
        row = replace(
            row,
            state=status.state,
            last_seq=self.fold.seq,
            status_at=status.at,
            question=question.key,
            asking=question.kind,
            expires_at=question.expires_at,
            hidden=self.unseen,
            worker=row.worker if ended is None else "",
            token=row.token if ended is None else "",
        )
        draft = Draft(
            row=row,
            entries=entries,
            idempotency=self.idempotency,
            ended=ended,
            hook=self.hook,
            records=self.records,
        )
        self._depart(draft)
        self.shared.store.create(draft, self._landed)

    def _depart(self, write: Write | Draft) -> None:
        self._in_flight = write
        self._departed_at = self.shared.loop.time()
        self._queue = []
        self._weight = 0
        self.records = ()
        self._shows = self._keeps_unseen = False
        if type(write) is Write:
            self.forget, self.reset_attempts = (), False
        if self._queue_waiters:
            self._flight_waiters, self._queue_waiters = self._queue_waiters, ()

    def _landed(self, error: Exception | None) -> None:
        """Handles the store's answer to the write in flight."""
        write, self._in_flight = self._in_flight, None
        if write is None:  # pragma: no cover - the store answers each write once
            return
        if error is not None:
            self._refused(write, error)
            return
        if self._retries:
            self._retries, self.stalled = 0, False
        if self.has_webhooks:
            self.shared.on_webhook_due()
        # Only now, after the commit, do the events become visible to readers. Adding them when they
        # are stamped would show events that a crash could still take back.
        if write.entries:
            self.log.add(write.entries)
        owner = self._owner
        if owner is not None:  # else the run was closed while the write was in flight
            if write.ended is not None:
                owner.close(None)
                return
            if self._flight_waiters:
                waiters, self._flight_waiters = self._flight_waiters, ()
                wake(waiters)
            if self._queue or self.records or self._shows:
                self.flush()
            else:
                owner.on_committed()
        working = not self.closed and self.fold.status.state is WORKING.state
        self.log.notify(working=working)

    def _refused(self, write: Write | Draft, error: Exception) -> None:
        owner = self._owner
        if owner is None:
            return
        if (
            isinstance(error, StoreUnavailable)
            and self._retries < MAX_RETRIES
            and self.log.committed
        ):
            # The task exists, so a retry is worthwhile. The creation of a task fails instead: its
            # caller still waits for the response and can send again.
            self._retries += 1
            self._in_flight = write
            if not self.stalled and self.shared.loop.time() - self._departed_at >= STALL_SECONDS:
                self._stall(owner)
            pause = min(0.05 * 2**self._retries, MAX_RETRY_PAUSE_SECONDS)
            self.shared.loop.call_later(pause, self._send_again, write)
        elif isinstance(error, Fenced | StoreUnavailable) or isinstance(write, Draft):
            owner.lose(error)
        else:
            # The content was refused, so a retry would be refused again, and everything that was
            # stamped after it has the wrong position. The run decides what to write instead.
            self._recovering = True
            self._queue_waiters = self._flight_waiters + self._queue_waiters
            self._flight_waiters = ()
            owner.on_refused(write, error)

    def _stall(self, owner: Owner) -> None:
        """Tells those that wait for the task on behalf of a caller that the store is away. The run
        goes on, and so do the retries."""
        self.stalled = True
        for waiter in self._impatient:
            if not waiter.done():
                waiter.set_exception(StoreUnavailable())
        self._impatient = ()
        owner.on_stalled()

    def _send_again(self, write: Write | Draft) -> None:
        if self.closed:
            return
        if isinstance(write, Write):
            self.shared.store.append(write, self._landed)
        else:
            self.shared.store.create(write, self._landed)

    async def reload(self) -> list[Stamped]:
        """Restores the task from the store, empties the queue and returns its events. It is part of
        the recovery from a refused write, which ends with `resume`."""
        row, task = await self.shared.store.load(self.row.scope, self.row.task_id)
        self.fold = Fold.of(task, row.last_seq)
        self.log.committed = row.last_seq
        queue, self._queue = self._queue, []
        self._weight = 0
        return queue

    def resume(self) -> None:
        """Ends the recovery and writes the events that were queued during it."""
        self._recovering = False
        self.flush()

    # Waiting for the store.

    @property
    def crowded(self) -> bool:
        """Whether the run should yield to other tasks of the loop."""
        return (
            len(self._queue) >= TURN_LIMIT
            or self._weight >= WEIGHT_LIMIT
            or self.closed
            or self.fold.status.state in FINAL
        )

    async def throttle(self) -> None:
        """Yields to other tasks of the loop, and waits for the disk if the run is far ahead."""
        ahead = len(self._queue)
        if ahead >= QUEUE_LIMIT or self._weight >= WEIGHT_LIMIT:
            await self.committed()
        elif (ahead and ahead % TURN_LIMIT == 0) or self.closed or self.fold.status.state in FINAL:
            await asyncio.sleep(0)

    async def committed(self, *, patient: bool = True) -> None:
        """Returns when all events stamped so far are committed and the task is visible, or the run
        was closed; raises if the task was lost, and also, unless it is patient, while the store is
        unavailable."""
        if self.unopened and not self._keeps_unseen:
            self._shows = True
        queued = bool(self._queue or self.records or self._shows or self._recovering)
        if not self.closed and (queued or self._in_flight is not None):
            if self.stalled and not patient:
                raise StoreUnavailable
            waiter = self.shared.loop.create_future()
            if queued:
                self._queue_waiters += (waiter,)
                self.schedule()
            else:
                self._flight_waiters += (waiter,)
            if not patient:
                others = (other for other in self._impatient if not other.done())
                self._impatient = (*others, waiter)
            await waiter
        if self.error is not None:
            raise self.error

    async def commit_unseen(self) -> None:
        """Commits like `committed`, but hides a task from everyone that nobody can see yet: its
        caller may still be answered without it. A task with a webhook is shown, because the
        receiver is told of it."""
        if self.unopened and self.hook is None:
            self.unseen = self._keeps_unseen = True
        await self.committed()

    def show(self) -> None:
        """Makes a task visible that nobody can see yet."""
        if self.unopened:
            self._shows, self._keeps_unseen = True, False
            self.flush()

    def close(self, error: Exception | None) -> None:
        """Ends writing, and wakes everyone that waits for a commit."""
        self.closed = True
        if error is not None:
            self.error = error
        # The run references its writer. With a reference back, the two would form a cycle, and
        # every finished task would have to wait for the cycle collector.
        self._owner = None
        if self._queue_waiters or self._flight_waiters:
            waiters = self._queue_waiters + self._flight_waiters
            self._queue_waiters = self._flight_waiters = ()
            wake(waiters)


def wake(waiters: Iterable[asyncio.Future[None]]) -> None:
    """Completes all futures; those whose waiter has given up are already done."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
