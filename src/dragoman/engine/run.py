"""One task in the hands of this process: its fold, its inbox and the way of its events to the log.

Theory. A run is the only writer of its task. `emit` stamps an event, folds it and puts it in line;
at the end of the loop's turn everything in line goes to the store as one write, and while that
write is on its way the next one gathers. So the run never waits for the disk (unless it is far
ahead of it), events that are ready together share one commit, and a task that ends in its first
turn is created and finished in a single write. What is committed goes into the ring and rings the
bell: nobody sees an event that a crash could take back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from ..agent import Skill
from ..bell import Bell
from ..errors import AgentMisbehaved, DragomanError, Fenced, StoreUnavailable
from ..events import AnyEvent, ArtifactChunk, Ask, Asked, Noted, Opened, Stamped, StateChanged
from ..lifecycle import FINAL, WAITING, Fold
from ..model import Artifact, Blob, Json, Message, Role, State, Task, Text
from ..peer import Context
from ..store.base import Claim, Draft, Idempotency, Input, Record, Row, Store, Unheard, Write
from .replay import Replay

log = logging.getLogger("dragoman.run")

RING = 512
"""Committed events kept for live readers."""
TURN_LIMIT = 64
"""Events a run may put in line before others get their turn of the loop."""
LINE_LIMIT = 256
WEIGHT_LIMIT = 1 << 20
"""A run further ahead of the disk than this waits for it."""
RETRIES = 8

STEPPED_BACK = Message(message_id="", role=Role.USER, parts=(Text("[credentials]"),))


class Why(Enum):
    """Why a run's coroutine was told to stop."""

    CANCELED = "canceled"
    TIMED_OUT = "timed out"
    GIVEN_BACK = "given back"
    LOST = "lost"


class Works(msgspec.Struct, frozen=True):
    """What every run needs of its engine."""

    store: Store
    bell: Bell
    clock: Callable[[], int]
    waiting_ms: int
    over: Callable[[Run], None]
    """Called when a run lets go of its task."""
    parked: Callable[[Run], None]
    """Called when a run begins to wait for its caller."""
    conversation: Callable[[Run, int], Awaitable[tuple[Message, ...]]]


class Run:
    """A claimed task and the line of its events; implements `agent.turn.Desk`."""

    __slots__ = (
        "_answer",
        "_fly_waiters",
        "_flying",
        "_forget",
        "_fresh",
        "_handed",
        "_idempotency",
        "_line",
        "_line_waiters",
        "_mending",
        "_queue",
        "_records",
        "_rest_waiters",
        "_scheduled",
        "_tried",
        "_weight",
        "answers",
        "asking",
        "attempt",
        "caller",
        "claim",
        "closed",
        "committed",
        "context_id",
        "direct",
        "error",
        "expires_at",
        "fold",
        "heard",
        "journal",
        "on_park",
        "on_wake",
        "opened",
        "question",
        "replay",
        "ring",
        "row",
        "skill",
        "task",
        "task_id",
        "unopened",
        "why",
        "works",
    )

    def __init__(self, works: Works, row: Row, skill: Skill, opened: Opened, caller: Context):
        self.works = works
        self.row = row
        self.claim: Claim = row.claim
        self.task_id = row.task_id
        self.context_id = row.context_id
        self.skill = skill
        self.opened = opened
        self.caller = caller
        self.attempt = row.attempt
        self.fold = Fold(row.task_id, row.context_id)
        self.committed = row.last_seq
        self.ring: deque[Stamped] = deque(maxlen=RING)
        self.heard = row.heard
        self.question = row.question
        self.asking = row.asking
        self.expires_at = row.expires_at
        self.answers: dict[int, Input] = {}
        self.journal: dict[str, bytes] = {}
        self.replay: Replay | None = None
        self.direct: Message | None = None
        self.unopened = False
        """Not in the store yet: a skill that may reply directly has done nothing else so far."""
        self.closed = False
        self.error: Exception | None = None
        self.why: Why | None = None
        self.task: asyncio.Task[None] | None = None
        self.on_park: Callable[[], None] | None = None
        self.on_wake: Callable[[], None] | None = None
        self._idempotency: Idempotency | None = None
        self._line: list[Stamped] = []
        self._weight = 0
        self._flying: Write | Draft | None = None
        self._records: list[Record] = []
        self._forget: list[int] = []
        self._fresh = False
        self._queue: deque[Input] = deque()
        self._handed: dict[str, Input] = {}
        self._answer: asyncio.Future[Input] | None = None
        self._scheduled = False
        self._mending: asyncio.Task[None] | None = None
        self._tried = 0
        self._line_waiters: list[asyncio.Future[None]] = []
        self._fly_waiters: list[asyncio.Future[None]] = []
        self._rest_waiters: list[asyncio.Future[None]] = []

    # The line: from the run to the log.

    def open(self, idempotency: Idempotency | None, *, at_once: bool, working: bool) -> None:
        """Begins a new task: submitted and, if it runs here, working, in the creating write."""
        self._idempotency = idempotency
        self._stamp(self.opened)
        if working:
            self._stamp(StateChanged(state=State.WORKING))
        if at_once:
            self._schedule()
        else:
            self.unopened = True

    def emit(self, event: AnyEvent) -> None:
        """Puts an event in line. What comes after the end is dropped."""
        if self.closed or self.fold.state in FINAL or self.direct is not None:
            log.warning(
                "dropped task=%s event=%s: after the end", self.task_id, type(event).__name__
            )
            return
        if self.replay is not None:
            sifted = self.replay.sift(event)
            if sifted is None:
                return
            event = sifted
        if self.question and isinstance(event, StateChanged | Noted) and event.state not in FINAL:
            # Said beside an open question: the task goes on waiting.
            event = replace(event, state=self.fold.state)
        self._stamp(event)
        self._schedule()

    def _stamp(self, event: AnyEvent) -> None:
        entry = Stamped(self.task_id, self.context_id, self.fold.seq + 1, self.works.clock(), event)
        self.fold.add(entry)
        self._line.append(entry)
        if type(event) is ArtifactChunk:
            self._weight += _weight(event.artifact)

    def _schedule(self) -> None:
        if not self._scheduled and self._flying is None:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Hands what is in line to the store, unless a write is still on its way."""
        self._scheduled = False
        if self._flying is not None or self._mending is not None or self.closed:
            return
        if not self._line and not self._records:
            return
        fold = self.fold
        ended = fold.task() if fold.state in FINAL else None
        entries = tuple(self._line)
        if ended is not None:
            self.question, self.asking, self.expires_at = "", None, 0
        if self.committed == 0 and entries and entries[0].seq == 1:
            self._send_draft(entries, ended)
            return
        write = Write(
            claim=self.claim,
            base=self.committed,
            entries=entries,
            state=fold.state,
            status_at=fold.status.at,
            heard=self.heard,
            question=self.question,
            asking=self.asking,
            expires_at=self.expires_at,
            records=tuple(self._records),
            forget=tuple(self._forget),
            ended=ended,
            fresh=self._fresh,
        )
        self._taken(write)
        self.works.store.append(write, self._landed)

    def _send_draft(self, entries: tuple[Stamped, ...], ended: Task | None) -> None:
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
            **({"worker": "", "token": ""} if ended is not None else {}),
        )
        draft = Draft(row=row, entries=entries, idempotency=self._idempotency, ended=ended)
        self._taken(draft)
        self.works.store.create(draft, self._landed)

    def _taken(self, write: Write | Draft) -> None:
        self._flying = write
        self._line = []
        self._weight = 0
        if isinstance(write, Write):
            self._records, self._forget, self._fresh = [], [], False
        self._fly_waiters, self._line_waiters = self._line_waiters, []

    def _landed(self, error: Exception | None) -> None:
        """The store answered the write on its way."""
        write, self._flying = self._flying, None
        if write is None:  # pragma: no cover - the store answers each write once
            return
        if error is not None:
            self._refused(write, error)
            return
        self._tried = 0
        entries = write.entries
        if entries:
            self.ring.extend(entries)
            self.committed = entries[-1].seq
        waiters, self._fly_waiters = self._fly_waiters, []
        _wake(waiters)
        if self._line or self._records:
            self.flush()
        elif self.resting:
            rest, self._rest_waiters = self._rest_waiters, []
            _wake(rest)
        if write.ended is not None:
            self.close(None)
        self.works.bell.ring(self.task_id)

    def _refused(self, write: Write | Draft, error: Exception) -> None:
        if isinstance(error, Unheard) and isinstance(write, Write):
            self._begin_anew(self._listen_first(write))
            return
        if isinstance(error, StoreUnavailable) and self._tried < RETRIES and self.committed:
            self._tried += 1
            self._flying = write
            asyncio.get_running_loop().call_later(0.05 * 2**self._tried, self._again, write)
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
        self._fly_waiters = []
        self._mending = asyncio.get_running_loop().create_task(mend)

    async def _listen_first(self, write: Write) -> None:
        """The task would have ended over words it had not heard: hear them, then end it."""
        if not await self._reload():
            return
        again = [*write.entries, *self._line]
        self._line = []
        for said in await self.works.store.inputs(self.claim):
            if said.n > self.heard:
                self.heard = said.n
                self._stamp(StateChanged(state=State.WORKING, heard=said.message))
        for entry in again:
            self._stamp(entry.event)
        self._records = [*write.records, *self._records]
        self._forget = [*write.forget, *self._forget]
        self._mending = None
        self.flush()

    async def _end_as_refused(self, error: Exception) -> None:
        """The store cannot keep what the agent said: the task ends with that as its reason."""
        log.error("refused task=%s error=%s", self.task_id, error)
        if not await self._reload():
            return
        self._line, self._records = [], []
        self._mending = None
        reason = error.reason if isinstance(error, DragomanError) else "agent_misbehaved"
        self.finish(State.FAILED, reason=reason)
        if self.task is not None:
            self.why = self.why or Why.LOST
            self.task.cancel()

    async def _reload(self) -> bool:
        try:
            row, task = await self.works.store.load(self.row.scope, self.task_id)
        except DragomanError as exc:
            self._mending = None
            self.lose(exc)
            return False
        self.fold = Fold.of(task, row.last_seq)
        self.committed = row.last_seq
        self._weight = 0
        return True

    # Waiting for the line.

    async def room(self) -> None:
        """Lets others have their turn; waits for the disk when the run is far ahead of it."""
        ahead = len(self._line)
        if ahead >= LINE_LIMIT or self._weight >= WEIGHT_LIMIT:
            await self.landed()
        elif ahead and ahead % TURN_LIMIT == 0:
            await asyncio.sleep(0)

    async def landed(self) -> None:
        """Returns when all that was said so far is committed; raises if it never will be."""
        if self._line or self._records:
            waiter = asyncio.get_running_loop().create_future()
            self._line_waiters.append(waiter)
            self._schedule()
            await waiter
        elif self._flying is not None:
            waiter = asyncio.get_running_loop().create_future()
            self._fly_waiters.append(waiter)
            await waiter
        if self.error is not None:
            raise self.error

    @property
    def resting(self) -> bool:
        """Committed, and finished or waiting for the caller with nothing left unheard."""
        state = self.fold.state
        return (
            state in FINAL or (state in WAITING and bool(self.question))
        ) and self.committed == self.fold.seq

    def rest(self) -> asyncio.Future[None]:
        """Done when the run rests, is lost, or has replied directly."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.resting or self.closed or self.direct is not None:
            future.set_result(None)
        else:
            self._rest_waiters.append(future)
        return future

    def since(self, after: int) -> list[Stamped] | None:
        """Committed events behind `after`; None if the ring does not reach back that far."""
        ring = self.ring
        if after >= self.committed:
            return []
        if not ring or after + 1 < ring[0].seq:
            return None
        return list(islice(ring, after + 1 - ring[0].seq, None))

    # Desk: what the turn needs.

    @property
    def cancelled(self) -> bool:
        """Whether the caller wants the task to stop."""
        return self.why is Why.CANCELED

    def recorded(self, key: str) -> bytes | None:
        """The record of a call of an earlier attempt."""
        found = self.journal.get(key)
        if self.replay is not None:
            self.replay.passed(key, recorded=found is not None)
        return found

    async def record(self, key: str, value: bytes) -> None:
        """Keeps the result of a call; returns when it is committed."""
        self._note(key, value)
        await self.landed()

    def _note(self, key: str, value: bytes) -> None:
        if key not in self.journal:
            self.journal[key] = value
            self._records.append(Record(key=key, value=value, seq=self.fold.seq))

    async def ask(
        self, key: str, kind: Ask, message: Message, body: Json, expires: float | None
    ) -> tuple[Message, Json]:
        """Asks the caller; parks until the answer is there."""
        recorded = self.recorded(key)
        if recorded is not None:
            said = self.answers[msgspec.json.decode(recorded, type=int)]
        elif key in self._handed:
            said = self._handed.pop(key)
        elif kind is Ask.INPUT and self._queue:
            # Said before it was asked. Only plain questions take it: an approval must be an
            # answer to its own question.
            said = self._queue.popleft()
            self._note(key, msgspec.json.encode(said.n))
        else:
            said = await self._park(key, kind, message, body, expires)
        return said.message, said.value

    async def _park(
        self, key: str, kind: Ask, message: Message, body: Json, expires: float | None
    ) -> Input:
        waiting_ms = self.works.waiting_ms if expires is None else int(expires * 1000)
        if self.question != key:
            self.emit(Asked(question=key, kind=kind, message=message, body=body))
            self.question, self.asking = key, kind
            self.expires_at = self.works.clock() + waiting_ms
        self._answer = asyncio.get_running_loop().create_future()
        self._schedule()
        if self.on_park is not None:
            self.on_park()
        self.works.parked(self)
        try:
            return await self._answer
        finally:
            self._answer = None
            if self.on_wake is not None:
                self.on_wake()

    def hear(self, said: Input) -> None:
        """The caller said something: into history, and to whoever waits for it."""
        if self.closed or self.fold.state in FINAL or said.n in self.answers:
            return
        self.heard = max(self.heard, said.n)
        self.answers[said.n] = said
        heard: Message = said.message
        if not self.question or said.question != self.question:
            self._queue.append(said)
        else:
            key, kind = self.question, self.asking
            self.question, self.asking, self.expires_at = "", None, 0
            self.attempt, self._fresh = 1, True
            if kind is Ask.CREDENTIALS:
                # Handed over once, kept nowhere (A2A 0.3 §4.5; DESIGN §4.1).
                heard = replace(STEPPED_BACK, message_id=heard.message_id)
                self._forget.append(said.n)
                self._handed[key] = said
            else:
                self._note(key, msgspec.json.encode(said.n))
            if self._answer is not None and not self._answer.done():
                self._handed.pop(key, None)
                self._answer.set_result(said)
        heard = replace(heard, task_id=self.task_id, context_id=self.context_id)
        state = self.fold.state if self.question else State.WORKING
        self._stamp(StateChanged(state=state, heard=heard))
        self._schedule()

    def take_up(self, inputs: list[Input]) -> None:
        """After a restart: what was heard but answers no recorded question waits in line."""
        used = {
            msgspec.json.decode(value)
            for key, value in self.journal.items()
            if not key.startswith("step:")
        }
        for said in inputs:
            if said.n <= self.heard:
                self.answers[said.n] = said
                if said.n not in used and not said.question:
                    self._queue.append(said)

    def history(self) -> tuple[Message, ...]:
        """What both sides said so far."""
        return self.fold.history()

    async def conversation(self, limit: int) -> tuple[Message, ...]:
        """The latest messages of the whole context."""
        return await self.works.conversation(self, limit)

    async def reply(self, message: Message) -> None:
        """Answers without a task if none is open yet, else completes it with this message."""
        if not self.skill.may_reply:
            raise AgentMisbehaved(
                f"turn.reply needs @agent.skill({self.skill.id!r}, may_reply=True)"
            )
        if self.unopened:
            self.direct = replace(message, task_id="")
            self.close(None)
        else:
            self.finish(State.COMPLETED, message)

    # The end.

    def finish(
        self, state: State, message: Message | None = None, reason: str = "", **about: str
    ) -> None:
        """Ends the task. Whatever the code says after a cancel, the task is canceled."""
        if self.closed or self.fold.state in FINAL or self.direct is not None:
            return
        if self.why is Why.CANCELED:
            state, reason = State.CANCELED, ""
        metadata: dict[str, Json] | None = {"reason": reason, **about} if reason else None
        self.replay = None
        self._stamp(StateChanged(state=state, message=message, metadata=metadata))
        if self._flying is None:
            self.flush()

    def lose(self, error: Exception) -> None:
        """The task is not ours any more: stop the code, wake everyone who waits here."""
        if self.closed:
            return
        self.close(error)
        if self.why is None:
            self.why = Why.LOST
        if self.task is not None and not self.task.done():
            self.task.cancel()

    def close(self, error: Exception | None) -> None:
        """Lets go of the task."""
        self.closed = True
        self.error = error
        for waiters in (self._line_waiters, self._fly_waiters, self._rest_waiters):
            _wake(waiters)
            waiters.clear()
        self.works.over(self)
        self.works.bell.ring(self.task_id)


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def _weight(artifact: Artifact) -> int:
    return sum(
        len(part.text) if isinstance(part, Text) else len(part.content)
        for part in artifact.parts
        if isinstance(part, Text | Blob)
    )
