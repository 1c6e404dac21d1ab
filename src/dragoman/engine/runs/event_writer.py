"""The way of a task's events from its run to its log.

Theory. A run is the only writer of its task. `stamp` gives an event its place in the log, folds it
and queues it. At the end of the loop's turn everything queued goes to the store as one write, and
while that write is in flight the next one gathers. So a run never waits for the disk (unless it is
far ahead of it), events that are ready together share one commit, and a task that ends in its
first turn is created and finished in a single write. Only what is committed goes to the live log
and to readers: nobody sees an event that a crash could take back.

At most one write of a task is in flight. The store refuses a write that does not continue the log
exactly where it ends, so two in flight would have to fail together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.errors import Fenced, StoreUnavailable
from dragoman.core.events import AnyEvent, ArtifactChunk, Ask, Asked, Opened, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL, Fold
from dragoman.core.model import (
    Artifact,
    Hook,
    Message,
    Role,
    State,
    Task,
    Text,
)
from dragoman.store.interface import Claim, Draft, Idempotency, Record, Row, Write

from .live_log import LiveLog
from .run_context import RunContext
from .task_size import task_weight, weight

TURN_LIMIT = 64
"""Events a run may queue before others get their turn of the loop."""
QUEUE_LIMIT = 256
WEIGHT_LIMIT = 1 << 20
"""A run that is further ahead of the disk than this waits for it."""
RETRIES = 8

WORKING = StateChanged(state=State.WORKING)


class OpenQuestion(Struct, frozen=True, gc=False):
    """What a task asks its caller, as its row says it."""

    key: str = ""
    """Empty while nothing is asked."""
    kind: Ask | None = None
    expires_at: int = 0


NO_QUESTION = OpenQuestion()


class Owner(Protocol):
    """The run that a writer writes for."""

    def on_committed(self) -> None:
        """Everything stamped so far is committed, and the task goes on."""

    def close(self, error: Exception | None) -> None:
        """The end of the task is committed."""

    def lose(self, error: Exception) -> None:
        """The task cannot be written any more: somebody else has it, or the store is gone."""

    def stop_code(self) -> None:
        """Nothing that the author's code says counts any more."""

    def on_refused(self, write: Write, error: Exception) -> None:
        """The store does not take this write because of what it says. Nothing is written until
        the run calls `resume`."""


class EventWriter:
    """Stamps the events of one claimed task, folds them and commits them in order.

    Fields that seldom change are class attributes: most tasks live for one turn of the loop, and
    setting two dozen fields for each of them would be a tenth of their cost.
    """

    closed = False
    """Nothing more is written: the task is over, or not ours any more."""
    error: Exception | None = None
    """Why it was closed, if the task was lost."""
    final_task: Task | None = None
    """The whole task, as soon as an event has ended it."""
    unopened = False
    """Not in the store yet: a skill that may reply directly has done nothing else so far."""
    question = NO_QUESTION
    heard = 0
    """How many of the caller's inputs are in the log, or on their way there."""
    reset_attempts = False
    """An answer was heard, so the attempts count from one again."""
    idempotency: Idempotency | None = None
    hook: Hook | None = None
    """A webhook to be set with the task."""
    records: tuple[Record, ...] = ()
    """Records to be committed with what is queued."""
    forget: tuple[int, ...] = ()
    """Inputs whose content the next write deletes from the store."""
    has_webhooks = False
    """Whether a commit leaves something for a webhook."""
    size = 0
    """What the task's artifacts and messages hold, in characters and bytes."""
    _weight = 0
    """How much of that is queued."""
    _in_flight: Write | Draft | None = None
    _recovering = False
    """A write was refused for what it says: nothing is written until `resume`."""
    _scheduled = False
    _retries = 0
    _claim: Claim | None = None
    _queue_waiters: tuple[asyncio.Future[None], ...] = ()
    """Those that wait for the commit of what is queued,"""
    _flight_waiters: tuple[asyncio.Future[None], ...] = ()
    """and for the write in flight."""

    def __init__(self, shared: RunContext, owner: Owner, row: Row, log: LiveLog) -> None:
        self.shared = shared
        self.row = row
        self.log = log
        self.fold = Fold(row.task_id, row.context_id)
        self._owner: Owner | None = owner
        self._queue: list[Stamped] = []

    @property
    def claim(self) -> Claim:
        """Our right to write the task. One that is created and finished at once needs none."""
        if self._claim is None:
            self._claim = self.row.claim
        return self._claim

    def load(self, task: Task) -> None:
        """Goes on with a task that exists, as its row and its content stand."""
        row = self.row
        self.fold = Fold.of(task, row.last_seq)
        self.size = task_weight(task)
        self.heard = row.heard
        if row.question:
            self.question = OpenQuestion(row.question, row.asking, row.expires_at)

    # From the run to the queue.

    def open(self, opened: Opened, *, working: bool) -> None:
        """Begins a new task: submitted and, if it runs here, working, in the creating write."""
        self.stamp(opened, self.row.created_at)
        if working:
            self.stamp(WORKING, self.row.created_at)

    def stamp(self, event: AnyEvent, at: int = 0) -> None:
        """Gives an event its place in the log, folds it and queues it. Nothing is scheduled."""
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
        """What the task says as it ends, when its code does not say it."""
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
        """Has the queue flushed at the end of this turn of the loop."""
        if not self._scheduled and self._in_flight is None:
            self._scheduled = True
            self.shared.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Hands what is queued to the store, unless a write is still in flight."""
        self._scheduled = False
        if self._in_flight is not None or self._recovering or self.closed:
            return
        if not self._queue and not self.records:
            return
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
            claim=self.claim,
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
        )
        self._depart(write)
        self.shared.store.append(write, self._landed)

    def _create(self, entries: tuple[Stamped, ...], ended: Task | None) -> None:
        if self.unopened:
            self.unopened = False
        row, question, status = self.row, self.question, self.fold.status
        row = replace(
            row,
            state=status.state,
            last_seq=self.fold.seq,
            status_at=status.at,
            question=question.key,
            asking=question.kind,
            expires_at=question.expires_at,
            worker=row.worker if ended is None else "",
            token=row.token if ended is None else "",
        )
        draft = Draft(
            row=row, entries=entries, idempotency=self.idempotency, ended=ended, hook=self.hook
        )
        self._depart(draft)
        self.shared.store.create(draft, self._landed)

    def _depart(self, write: Write | Draft) -> None:
        self._in_flight = write
        self._queue = []
        self._weight = 0
        if type(write) is Write:
            self.records, self.forget, self.reset_attempts = (), (), False
        elif self.records:
            return  # a draft carries no records: those that wait for them wait for the next write
        if self._queue_waiters:
            self._flight_waiters, self._queue_waiters = self._queue_waiters, ()

    def _landed(self, error: Exception | None) -> None:
        """The store answered the write in flight."""
        write, self._in_flight = self._in_flight, None
        if write is None:  # pragma: no cover - the store answers each write once
            return
        if error is not None:
            self._refused(write, error)
            return
        if self._retries:
            self._retries = 0
        if self.has_webhooks:
            self.shared.on_webhook_due()
        if write.entries:
            self.log.add(write.entries)
        owner = self._owner
        if owner is not None:  # else the task was let go of while the write was in flight
            if write.ended is not None:
                owner.close(None)
                return
            if self._flight_waiters:
                waiters, self._flight_waiters = self._flight_waiters, ()
                wake(waiters)
            if self._queue or self.records:
                self.flush()
            else:
                owner.on_committed()
        working = not self.closed and self.fold.status.state is State.WORKING
        self.log.notify(working=working)

    def _refused(self, write: Write | Draft, error: Exception) -> None:
        owner = self._owner
        if owner is None:
            return
        if isinstance(error, StoreUnavailable) and self._retries < RETRIES and self.log.committed:
            # The task exists, so it is worth a wait. One that is only being created fails instead:
            # its caller still waits for the answer, and can send again.
            self._retries += 1
            self._in_flight = write
            self.shared.loop.call_later(0.05 * 2**self._retries, self._send_again, write)
        elif isinstance(error, Fenced | StoreUnavailable) or isinstance(write, Draft):
            owner.lose(error)
        else:
            self._recovering = True
            self._queue_waiters = self._flight_waiters + self._queue_waiters
            self._flight_waiters = ()
            owner.on_refused(write, error)

    def _send_again(self, write: Write | Draft) -> None:
        if self.closed:
            return
        if isinstance(write, Write):
            self.shared.store.append(write, self._landed)
        else:
            self.shared.store.create(write, self._landed)

    async def reload(self) -> list[Stamped]:
        """Goes back to the task as the store holds it; gives what was queued and is not any more.
        Part of the recovery from a refused write, which ends with `resume`."""
        row, task = await self.shared.store.load(self.row.scope, self.row.task_id)
        self.fold = Fold.of(task, row.last_seq)
        self.log.committed = row.last_seq
        queue, self._queue = self._queue, []
        self._weight = 0
        return queue

    def resume(self) -> None:
        """Ends the recovery: what is queued by now is written."""
        self._recovering = False
        self.flush()

    # Waiting for the store.

    @property
    def crowded(self) -> bool:
        """Whether the run should let others have their turn."""
        return (
            len(self._queue) >= TURN_LIMIT
            or self._weight >= WEIGHT_LIMIT
            or self.closed
            or self.fold.status.state in FINAL
        )

    async def throttle(self) -> None:
        """Lets others have their turn; waits for the disk when the run is far ahead of it."""
        ahead = len(self._queue)
        if ahead >= QUEUE_LIMIT or self._weight >= WEIGHT_LIMIT:
            await self.committed()
        elif (ahead and ahead % TURN_LIMIT == 0) or self.closed or self.fold.status.state in FINAL:
            await asyncio.sleep(0)

    async def committed(self) -> None:
        """Returns when everything stamped so far is committed, or the task was let go of; raises
        if it was lost."""
        if self.closed:
            pass
        elif self._queue or self.records or self._recovering:
            waiter = self.shared.loop.create_future()
            self._queue_waiters += (waiter,)
            self.schedule()
            await waiter
        elif self._in_flight is not None:
            waiter = self.shared.loop.create_future()
            self._flight_waiters += (waiter,)
            await waiter
        if self.error is not None:
            raise self.error

    def close(self, error: Exception | None) -> None:
        """Ends all writing and all waiting for it."""
        self.closed = True
        if error is not None:
            self.error = error
        # The run holds its writer. Without this the two would be a cycle, and every task garbage
        # for the cycle collector instead of gone with its last reference.
        self._owner = None
        if self._queue_waiters or self._flight_waiters:
            waiters = self._queue_waiters + self._flight_waiters
            self._queue_waiters = self._flight_waiters = ()
            wake(waiters)


def wake(waiters: Iterable[asyncio.Future[None]]) -> None:
    """Ends the wait of all of them; some may have given up."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
