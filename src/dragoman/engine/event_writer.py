"""The way of a task's events from its run to its log.

Theory. A run is the only writer of its task. `_stamp` gives an event its place, folds it and puts
it in line; at the end of the loop's turn everything in line goes to the store as one write, and
while that write is on its way the next one gathers. So a run never waits for the disk (unless it
is far ahead of it), events that are ready together share one commit, and a task that ends in its
first turn is created and finished in a single write. What is committed goes into the ring and
rings the bell: nobody sees an event that a crash could take back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from functools import cached_property
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.core.errors import DragomanError, Fenced, StoreUnavailable
from dragoman.core.events import AnyEvent, ArtifactChunk, Ask, Asked, Opened, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL, WAITING, Fold
from dragoman.core.log import Logger
from dragoman.core.model import (
    AnyPart,
    Artifact,
    Blob,
    Data,
    Hook,
    Json,
    Message,
    Role,
    State,
    Task,
    Text,
)
from dragoman.store.interface import Claim, Draft, Idempotency, Input, Record, Row, Unheard, Write

from .live_log import LiveLog
from .run_context import RunContext

log = Logger("run")

TURN_LIMIT = 64
"""Events a run may put in line before others get their turn of the loop."""
LINE_LIMIT = 256
WEIGHT_LIMIT = 1 << 20
"""A run further ahead of the disk than this waits for it."""
RETRIES = 8

WORKING = StateChanged(state=State.WORKING)

SECRET = f"{Ask.CREDENTIALS}:"
"""How questions for credentials begin."""
CREDENTIALS = (Text("[credentials]"),)
"""What history says instead of them."""


class EventWriter(LiveLog):
    """A claimed task, its fold, and its events on their way to the store.

    Fields that seldom change are class attributes: most tasks live for one turn of the loop, and
    setting forty fields for them would be a tenth of their cost.
    """

    unopened = False
    """Not in the store yet: a skill that may reply directly has done nothing else so far."""
    error: Exception | None = None
    ended: Task | None = None
    direct: Message | None = None
    why: object = None
    """Why its code was told to stop, if it was."""
    question = ""
    asking: Ask | None = None
    expires_at = 0
    heard = 0
    detached = 0
    """The event with which it last answered those that wait, and worked on."""
    task: asyncio.Task[None] | None = None
    hook: Hook | None = None
    """A webhook to be set with the task."""
    hooked = False
    """Whether someone wants to be told of what is committed."""
    _idempotency: Idempotency | None = None
    _flying: Write | Draft | None = None
    _mending: asyncio.Task[None] | None = None
    _scheduled = False
    _fresh = False
    size = 0
    """What its artifacts and messages hold, in characters and bytes."""
    _weight = 0
    """How much of that is in line."""
    _tried = 0
    _records: tuple[Record, ...] = ()
    _forget: tuple[int, ...] = ()
    _line_waiters: tuple[asyncio.Future[None], ...] = ()
    _fly_waiters: tuple[asyncio.Future[None], ...] = ()
    _rest_waiters: tuple[asyncio.Future[None], ...] = ()

    def __init__(self, works: RunContext, row: Row) -> None:
        self.works = works
        self.row = row
        self.task_id = row.task_id
        self.context_id = row.context_id
        self.fold = Fold(row.task_id, row.context_id)
        self.committed = row.last_seq
        self._line: list[Stamped] = []

    @cached_property
    def claim(self) -> Claim:
        """Our right to write the task. One that is created and finished at once needs none."""
        return self.row.claim

    def open(self, opened: Opened, idempotency: Idempotency | None, *, working: bool) -> None:
        """Begins a new task: submitted and, if it runs here, working, in the creating write."""
        if idempotency is not None:
            self._idempotency = idempotency
        self._stamp(opened, self.row.created_at)
        if working:
            self._stamp(WORKING, self.row.created_at)

    def _stamp(self, event: AnyEvent, at: int = 0) -> None:
        fold = self.fold
        at = at or self.works.clock()
        entry = Stamped(self.task_id, self.context_id, fold.seq + 1, at, event)
        fold.add(entry)
        self._line.append(entry)
        if type(event) is ArtifactChunk:
            self._grow(event.artifact)
        elif type(event) is StateChanged:
            if event.message is not None:
                self._grow(event.message)
            elif event.heard is not None:
                self._grow(event.heard)
        elif type(event) is Asked:
            self._grow(event.message)

    def _grow(self, by: Artifact | Message) -> None:
        added = weight(by.parts)
        self._weight += added
        self.size += added

    def schedule(self) -> None:
        """Has the line flushed at the end of this turn of the loop."""
        if not self._scheduled and self._flying is None:
            self._scheduled = True
            self.works.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Hands what is in line to the store, unless a write is still on its way."""
        self._scheduled = False
        if self._flying is not None or self._mending is not None or self.closed:
            return
        if not self._line and not self._records:
            return
        fold = self.fold
        status = fold.status
        ended: Task | None = None
        if status.state in FINAL:
            ended = self.ended = fold.task()
        entries = tuple(self._line)
        if ended is not None and self.question:
            self.question, self.asking, self.expires_at = "", None, 0
        if self.committed == 0 and entries and entries[0].seq == 1:
            self._send_draft(entries, ended)
            return
        write = Write(
            claim=self.claim,
            base=self.committed,
            entries=entries,
            state=status.state,
            status_at=status.at,
            heard=self.heard,
            question=self.question,
            asking=self.asking,
            expires_at=self.expires_at,
            records=self._records,
            forget=self._forget,
            ended=ended,
            fresh=self._fresh,
        )
        self._taken(write)
        self.works.store.append(write, self._landed)

    def _send_draft(self, entries: tuple[Stamped, ...], ended: Task | None) -> None:
        if self.unopened:
            self.unopened = False
        fold = self.fold
        row = replace(
            self.row,
            state=fold.state,
            last_seq=fold.seq,
            status_at=fold.status.at,
            question=self.question,
            asking=self.asking,
            expires_at=self.expires_at,
            worker=self.row.worker if ended is None else "",
            token=self.row.token if ended is None else "",
        )
        draft = Draft(
            row=row,
            entries=entries,
            idempotency=self._idempotency,
            ended=ended,
            hook=self.hook,
        )
        self._taken(draft)
        self.works.store.create(draft, self._landed)

    def _taken(self, write: Write | Draft) -> None:
        self._flying = write
        self._line = []
        self._weight = 0
        if type(write) is Write:
            self._records, self._forget, self._fresh = (), (), False
        elif self._records:
            return  # a draft carries no records: who waits for them waits for the next write
        if self._line_waiters:
            self._fly_waiters, self._line_waiters = self._line_waiters, ()

    def _landed(self, error: Exception | None) -> None:
        """The store answered the write on its way."""
        write, self._flying = self._flying, None
        if write is None:  # pragma: no cover - the store answers each write once
            return
        if error is not None:
            self._refused(write, error)
            return
        if self._tried:
            self._tried = 0
        if self.hooked:
            self.works.mailed()
        entries = write.entries
        if entries:
            self._keep(entries)
        if write.ended is not None:
            self.close(None)
            return
        if self._fly_waiters:
            waiters, self._fly_waiters = self._fly_waiters, ()
            _wake(waiters)
        if self._line or self._records:
            self.flush()
        elif self._rest_waiters and self.resting:
            self.answer_waiters()
        self._tell()

    def _refused(self, write: Write | Draft, error: Exception) -> None:
        if isinstance(error, Unheard) and isinstance(write, Write):
            self._begin_anew(self._listen_first(write))
            return
        if isinstance(error, StoreUnavailable) and self._tried < RETRIES and self.committed:
            self._tried += 1
            self._flying = write
            self.works.loop.call_later(0.05 * 2**self._tried, self._again, write)
            return
        if self.committed and not isinstance(error, Fenced | StoreUnavailable):
            self._begin_anew(self._end_as_refused(error))
            return
        self.lose(error)

    def _again(self, write: Write | Draft) -> None:
        if self.closed:
            return
        if isinstance(write, Write):
            self.works.store.append(write, self._landed)
        else:
            self.works.store.create(write, self._landed)

    def _begin_anew(self, mend: Coroutine[Any, Any, None]) -> None:
        """A write was refused for what it says: mends the line from what the store holds."""
        self._line_waiters = self._fly_waiters + self._line_waiters
        self._fly_waiters = ()
        self._mending = self.works.loop.create_task(self._mended(mend))

    async def _mended(self, mend: Coroutine[Any, Any, None]) -> None:
        try:
            await mend
        except DragomanError as exc:
            self._mending = None
            self.lose(exc)

    async def _listen_first(self, write: Write) -> None:
        """The task would have ended over words it had not heard: hear them, then end it."""
        # Until all is at hand the fold says that the task is over: nothing comes in between.
        inputs = await self.works.store.inputs(self.claim)
        await self._reload()
        again = [*write.entries, *self._line]
        self._line = []
        for said in inputs:
            if said.n > self.heard:
                self.heard = said.n
                if said.sealed:  # no run will need it again
                    self._forget += (said.n,)
                given = self._heard(self.works.opened(self.task_id, said))
                self._stamp(StateChanged(state=State.WORKING, heard=given))
        for entry in again:
            self._stamp(entry.event)
        self._records = write.records + self._records
        self._forget = write.forget + self._forget
        self._mending = None
        self.flush()

    def _heard(self, said: Input) -> Message:
        """What history keeps of something the caller said: of credentials only that they came."""
        message = replace(said.message, task_id=self.task_id, context_id=self.context_id)
        if said.question.startswith(SECRET):
            # Handed over once, kept nowhere (A2A 0.3 §4.5; DESIGN §4.1).
            self._forget += (said.n,)
            message = replace(message, parts=CREDENTIALS, metadata=None)
        return message

    async def _end_as_refused(self, error: Exception) -> None:
        """The store cannot keep what the agent said: the task ends with that as its reason."""
        log.error("The store refused an event", task=self.task_id, error=error)
        await self._reload()
        self._line, self._records = [], ()
        self._mending = None
        reason = error.reason if isinstance(error, DragomanError) else "agent_misbehaved"
        why: dict[str, Json] = {"reason": reason}
        words = replace(self.last_words("What the agent said cannot be kept"), metadata=why)
        self._stamp(StateChanged(state=State.FAILED, message=words, metadata=why))
        self.flush()
        self.stop_code()

    async def _reload(self) -> None:
        row, task = await self.works.store.load(self.row.scope, self.task_id)
        self.fold = Fold.of(task, row.last_seq)
        self.committed = row.last_seq
        self._weight = 0

    def last_words(self, text: str) -> Message:
        """What a task says as it ends, when its code does not."""
        return Message(
            message_id=f"{self.task_id}.end",
            role=Role.AGENT,
            parts=(Text(text),),
            context_id=self.context_id,
            task_id=self.task_id,
        )

    # Waiting for the line.

    @property
    def crowded(self) -> bool:
        """Whether the run should let others have their turn."""
        return self.over or len(self._line) >= TURN_LIMIT or self._weight >= WEIGHT_LIMIT

    async def room(self) -> None:
        """Lets others have their turn; waits for the disk when the run is far ahead of it."""
        ahead = len(self._line)
        if ahead >= LINE_LIMIT or self._weight >= WEIGHT_LIMIT:
            await self.landed()
        elif (ahead and ahead % TURN_LIMIT == 0) or self.over:
            await asyncio.sleep(0)

    async def landed(self) -> None:
        """Returns when all that was said so far is committed, or the task let go of; raises if
        it was lost."""
        if self.closed:
            pass
        elif self._line or self._records or self._mending is not None:
            waiter = self.works.loop.create_future()
            self._line_waiters += (waiter,)
            self.schedule()
            await waiter
        elif self._flying is not None:
            waiter = self.works.loop.create_future()
            self._fly_waiters += (waiter,)
            await waiter
        if self.error is not None:
            raise self.error

    @property
    def resting(self) -> bool:
        """Committed, and finished or waiting for the caller with nothing left unheard."""
        state = self.fold.status.state
        return self.committed == self.fold.seq and (
            state in FINAL
            or (
                state in WAITING
                and bool(self.question)
                and self.why is None
                and self.task is not None  # just taken up: it has not heard its answer yet
            )
        )

    @property
    def over(self) -> bool:
        """Nothing that is said counts any more."""
        return self.closed or self.fold.status.state in FINAL or self.direct is not None

    def rest(self, since: int = 0) -> asyncio.Future[None]:
        """Done when the run rests, is lost, has replied directly, or answers those that wait
        while it works on; one that did so after the event `since` does not keep them waiting."""
        future: asyncio.Future[None] = self.works.loop.create_future()
        detached = since < self.detached <= self.committed
        if self.resting or self.closed or self.direct is not None or detached:
            future.set_result(None)
        else:
            self._rest_waiters += (future,)
        return future

    def answer_waiters(self) -> None:
        """Ends the wait of those that wait for the run to rest."""
        waiters, self._rest_waiters = self._rest_waiters, ()
        _wake(waiters)

    # Letting go.

    def lose(self, error: Exception) -> None:
        """The task is not ours any more: stop the code, wake everyone who waits here."""
        if self.closed:
            return
        self.close(error)
        self.stop_code()

    def stop_code(self) -> None:
        """Ends the coroutine: nothing it says counts any more."""
        if self.task is not None and not self.task.done():
            self.task.cancel()

    def close(self, error: Exception | None) -> None:
        """Lets go of the task."""
        self.closed = True
        if error is not None:
            self.error = error
        if self._rest_waiters:
            _wake(self._rest_waiters)
        if self._line_waiters or self._fly_waiters:
            _wake(self._line_waiters + self._fly_waiters)
        self._line_waiters = self._fly_waiters = self._rest_waiters = ()
        self.works.over(self)
        self._tell()


def _wake(waiters: tuple[asyncio.Future[None], ...]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def weight(parts: Iterable[AnyPart]) -> int:
    """Of an artifact, or of something said."""
    total = 0
    for part in parts:
        if type(part) is Text:
            total += len(part.text)
        elif type(part) is Blob:
            total += len(part.content)
        elif type(part) is Data:
            total += len(msgspec.json.encode(part.value))
    return total


def weight_of(task: Task) -> int:
    """Of all that a task holds so far."""
    held: list[Artifact | Message] = [*task.artifacts, *task.history]
    if task.status.message is not None:
        held.append(task.status.message)
    return sum(weight(one.parts) for one in held)
