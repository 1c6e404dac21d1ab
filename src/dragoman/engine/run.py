"""One task in the hands of this process: what its turn may say and ask, and how it ends."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from enum import Enum
from functools import cached_property
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.agent import Skill
from dragoman.agent.answers import decision_in
from dragoman.agent.remote_calls import Outside, StartedCall, unfinished
from dragoman.agent.tools import DETACHED
from dragoman.core.errors import AgentMisbehaved, DragomanError, TaskNotFound, Unsupported
from dragoman.core.events import AnyEvent, Ask, Asked, Noted, Opened, StateChanged
from dragoman.core.lifecycle import FINAL, Fold
from dragoman.core.model import Json, Message, State, Task
from dragoman.core.peer import Context
from dragoman.store.interface import Input, Record, Row
from dragoman.workspace import Folder

from .event_writer import EventWriter, weight_of
from .replay import Replay
from .run_context import RunContext
from .task_ids import named

log = logging.getLogger("dragoman.run")

QUESTIONS = tuple(f"{kind}:" for kind in Ask)
"""How the records of questions begin: each holds the number of its answer."""
STOPPING = 5.0
"""Seconds that agents elsewhere have to take a cancel, before our own task ends without them."""
GIVEN = b"null"
"""The record of credentials: that they were given, not which."""


class StopReason(Enum):
    """Why a run's coroutine was told to stop."""

    CANCELED = "canceled"
    TIMED_OUT = "timed out"
    GIVEN_BACK = "given back"
    LOST = "lost"


class Run(EventWriter):
    """A task that runs here; implements `agent.desk.Desk`."""

    replay: Replay | None = None
    why: StopReason | None = None
    deadline = 0.0
    """When its time is over (loop time); 0 while it waits for its caller."""
    left = 0.0
    """Seconds of running it had left when it began to wait."""
    let_out: Callable[[], None] | None = None
    """Emits the chunk that a generator's driver holds back: before anything else is said,"""
    end_out: Callable[[], None] | None = None
    """or as the last one of its artifact."""
    _answer: asyncio.Future[Input] | None = None
    _reply: Message | None = None
    """What it says instead of opening a task."""
    remembers = True
    """Whether the records of earlier runs are at hand."""
    recorded_at = 0
    """How long the log was at the last record of earlier runs."""
    _stopping: asyncio.Task[None] | None = None
    """While agents elsewhere are told to stop,"""
    _ending = False
    """and whether the task was to end meanwhile."""

    # Only tasks of several turns need these.
    @cached_property
    def answers(self) -> dict[int, Input]:
        """All that was heard, by number."""
        return {}

    @cached_property
    def _queue(self) -> deque[Input]:
        """Heard before it was asked for."""
        return deque()

    def __init__(
        self, works: RunContext, row: Row, skill: Skill, opened: Opened, caller: Context
    ) -> None:
        super().__init__(works, row)
        self.skill = skill
        self.opened = opened
        self.caller = caller
        self.attempt = row.attempt
        self.journal: dict[str, bytes] = {}

    def take_over(self, task: Task) -> None:
        """Begins where others left the task."""
        row = self.row
        self.fold = Fold.of(task, row.last_seq)
        self.size = weight_of(task)
        self.heard, self.question = row.heard, row.question
        self.asking, self.expires_at = row.asking, row.expires_at

    def remember(self, records: list[Record]) -> None:
        """What earlier runs have recorded."""
        self.journal = {record.key: record.value for record in records}
        self.recorded_at = records[-1].seq if records else 0
        self.remembers = True

    def take_up(self, inputs: list[Input]) -> None:
        """Goes on from the top, with its records: what was heard but answered nothing yet waits."""
        used = {
            msgspec.json.decode(value)
            for key, value in self.journal.items()
            if key.startswith(QUESTIONS)
        }
        for said in inputs:
            if said.n <= self.heard:
                self.answers[said.n] = said
                if said.n not in used and not said.question:
                    self._queue.append(said)

    def emit(self, event: AnyEvent, *, now: bool = False) -> None:
        """Puts an event in line (`now`: nothing follows in this turn). What comes after the end is
        dropped."""
        if self.let_out is not None:
            self.let_out()
        self.put(event, now=now)

    def put(self, event: AnyEvent, *, now: bool = False) -> None:
        """As `emit`, from whoever holds chunks back."""
        if self.over:
            kind = type(event).__name__
            log.warning("dropped task=%s event=%s: it came after the end", self.task_id, kind)
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
        if self.size > self.works.max_task_size:
            self._too_large()
            return
        if now:
            self.flush()
        else:
            self.schedule()

    @property
    def digest(self) -> bytes:
        """Of what was sent under its key."""
        return self._idempotency.digest if self._idempotency is not None else b""

    # Desk: what the turn needs.

    @property
    def cancelled(self) -> bool:
        """Whether the caller wants the task to stop."""
        return self.why is StopReason.CANCELED

    @property
    def leaving(self) -> bool:
        """Whether the task goes on without this run: another one takes it up."""
        return self.why in (StopReason.GIVEN_BACK, StopReason.LOST)

    @property
    def seconds_left(self) -> float:
        """How long the run may still take."""
        return max(0.0, self.deadline - self.works.loop.time()) if self.deadline else self.left

    @property
    def outside(self) -> Outside | None:
        """Reaches other agents."""
        return self.works.outside

    def beside(self, work: Coroutine[Any, Any, None]) -> object:
        """Does something that need not end with the run."""
        return self.works.spawn(work)

    def recorded(self, key: str) -> bytes | None:
        """The record of a call of an earlier attempt."""
        if self.let_out is not None:
            self.let_out()
        found = self.journal.get(key)
        if self.replay is not None:
            self.replay.passed(key, recorded=found is not None)
        return found

    async def begin(self) -> None:
        """Opens the task if nothing did so far: what follows has effects outside."""
        if self.unopened:
            await self.landed()

    async def record(self, key: str, value: bytes) -> None:
        """Keeps the result of a call; returns when it is committed."""
        self._note(key, value)
        await self.landed()

    def _note(self, key: str, value: bytes) -> None:
        if key not in self.journal:
            self.journal[key] = value
            self._records += (Record(key=key, value=value, seq=self.fold.seq),)

    async def ask(
        self, key: str, kind: Ask, message: Message, body: Json, expires: float | None
    ) -> tuple[Message, Json]:
        """Asks the caller; parks until the answer is there."""
        recorded = self.recorded(key)
        if recorded is not None and recorded != GIVEN:
            said = self.answers[msgspec.json.decode(recorded, type=int)]
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
        if self.over:
            raise AgentMisbehaved("The task is over; there is nobody to ask any more")
        waiting_ms = self.works.waiting_ms if expires is None else int(expires * 1000)
        if self.question != key:
            self.emit(Asked(question=key, kind=kind, message=message, body=body))
            self.question, self.asking = key, kind
            self.expires_at = self.works.clock() + waiting_ms
        self._answer = asyncio.get_running_loop().create_future()
        self.schedule()
        loop = asyncio.get_running_loop()
        self.left, self.deadline = max(0.0, self.deadline - loop.time()), 0.0
        self.works.parked(self)
        try:
            return await self._answer
        finally:
            self._answer = None
            self.deadline = loop.time() + self.left
            self.works.woken(self)

    def hear(self, said: Input) -> None:
        """The caller said something: into history, and to whoever waits for it."""
        if self.over or said.n in self.answers:
            return
        # What was said before the question could be seen is for the next `ask`: this one.
        early = not said.question and self.asking is Ask.INPUT
        fits = early or said.question == self.question
        answers = bool(self.question) and fits and not said.sealed
        if answers and self.asking is Ask.APPROVAL:
            # Before anything else: if it cannot be recorded, it was not heard, and comes again.
            decision = decision_in(said.message, said.value)
            self.works.audit.record(self.task_id, self.question, decision, said.by, said.n)
        self.detached = 0  # a caller that says something begins to wait anew
        self.heard = max(self.heard, said.n)
        self.answers[said.n] = said
        if said.sealed:
            pass  # nobody here can open it: the question stays open
        elif answers:
            self._answered(said)
        else:
            self._queue.append(said)
        state = self.fold.state if self.question else State.WORKING
        self._stamp(StateChanged(state=state, heard=self._heard(said)))
        if self.size > self.works.max_task_size:
            self._too_large()
            return
        self.schedule()

    def _answered(self, said: Input) -> None:
        key, number = self.question, msgspec.json.encode(said.n)
        if self.asking is Ask.CREDENTIALS:
            self._note(key, GIVEN)
            self.journal[key] = number  # for this run only: the next one has to ask again
        else:
            self._note(key, number)
        self.question, self.asking, self.expires_at = "", None, 0
        self.attempt, self._fresh = 1, True
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(said)

    def history(self) -> tuple[Message, ...]:
        """What both sides said so far."""
        return self.fold.history()

    async def conversation(self, limit: int) -> tuple[Message, ...]:
        """The latest messages of the whole context."""
        return await self.works.conversation(self, limit)

    async def tasks(self, ids: Iterable[str]) -> tuple[Task, ...]:
        """Tasks of this run's caller, by id or by the caller's name for them; no others."""
        found: list[Task] = []
        for said in dict.fromkeys(ids):
            for task_id in (said, named(said, self.row.scope)):
                with suppress(TaskNotFound):
                    found.append((await self.works.store.load(self.row.scope, task_id))[1])
                    break
        return tuple(found)

    def folder(self) -> Folder:
        """Where this task may touch files."""
        if self.works.workspaces is None:
            raise Unsupported("This agent has no workspace; grant one with Agent(workspace=...)")
        return self.works.workspaces.folder(
            self.task_id,
            self.context_id,
            self.caller,
            self.opened.metadata,
            self.opened.message.metadata,
        )

    async def reply(self, message: Message) -> None:
        """Answers without a task if none is open yet, else completes it with this message."""
        if not self.skill.may_reply:
            raise AgentMisbehaved(
                f"turn.reply needs @agent.skill({self.skill.id!r}, may_reply=True)"
            )
        if self.let_out is not None:
            self.let_out()
        if self.unopened and self.fold.seq == 2:  # submitted, working, and nothing else was said
            self._reply = replace(message, task_id="")
            if self._idempotency is None:
                self.close(None)
                return
            # Kept for a repetition of the question, as a finished task that stands on no list.
            self.row, self.hook = replace(self.row, hidden=True), None
            self.finish(State.COMPLETED, message)
            await self.landed()
        else:
            await self.complete(message)

    async def detach(self, message: Message | None) -> None:
        """Lets blocking sends answer now, with the task as it stands."""
        if self.over or self.why is not None:
            return  # its end is near, and ends their wait as well
        before = self.fold.seq
        metadata: dict[str, Json] = {DETACHED: True}
        self.emit(StateChanged(state=State.WORKING, message=message, metadata=metadata))
        if self.fold.seq == before:
            return  # an earlier attempt said so, and answered those that waited then
        self.detached = self.fold.seq
        await self.landed()
        self.answer_waiters()

    async def complete(self, message: Message | None) -> None:
        """Ends the task as completed, with the last chunk of a generator's artifact."""
        if self.end_out is not None and not self.over:
            self.end_out()
        self.finish(State.COMPLETED, message)

    # The end.

    def stop_calls(self) -> None:
        """Has agents elsewhere stop what they do for this task. A cancel ends the task only after
        they were told, so that a crash in between tells them again."""
        outside = self.works.outside
        if outside is None or (self.remembers and not unfinished(self.journal)):
            return
        told = self.works.spawn(self._stop_calls(outside))
        if self.cancelled:
            self._stopping = told
            told.add_done_callback(self._stopped)

    async def _stop_calls(self, outside: Outside) -> None:
        try:
            if not self.remembers:
                self.remember(await self.works.store.records(self.claim))
        except DragomanError as exc:  # the task is someone else's by now, who will tell them
            log.warning("not stopped task=%s: %s", self.task_id, exc)
            return
        async with asyncio.TaskGroup() as group:
            for sent in unfinished(self.journal):
                group.create_task(_stop(outside, sent))

    def _stopped(self, told: asyncio.Task[None]) -> None:
        self._stopping = None
        if self._ending or self.task is None:
            self.finish(State.CANCELED)

    def close(self, error: Exception | None) -> None:
        """Lets go of the task; code that waits for an answer will get none."""
        if error is None:
            self.direct = self._reply
        super().close(error)
        if self._answer is not None:
            self._answer.cancel()

    def _too_large(self) -> None:
        """A task lives in memory while it runs, so its size has a limit (`max_task_size`)."""
        log.warning("too large task=%s size=%d", self.task_id, self.size)
        words = self.last_words("The task has become too large")
        self.finish(State.FAILED, words, reason="too_large")
        self.stop_code()

    def finish(
        self, state: State, message: Message | None = None, reason: str = "", **about: str
    ) -> None:
        """Ends the task. Whatever the code says after a cancel, the task is canceled."""
        if self.over:
            return
        if self._stopping is not None:
            self._ending = True
            return
        if self.why is StopReason.CANCELED:
            state, reason = State.CANCELED, ""
        elif state is not State.COMPLETED:
            self.stop_calls()
        metadata: dict[str, Json] | None = {"reason": reason, **about} if reason else None
        if metadata and message is not None:
            # In the message too: it stays with the task, when its events are long gone.
            message = replace(message, metadata={**(message.metadata or {}), **metadata})
        self.replay = None
        self._stamp(StateChanged(state=state, message=message, metadata=metadata))
        if self._flying is None:
            self.flush()

    def stop_code(self) -> None:
        """Ends the coroutine: nothing it says counts any more."""
        self.why = self.why or StopReason.LOST
        super().stop_code()


async def _stop(outside: Outside, sent: StartedCall) -> None:
    try:
        async with asyncio.timeout(STOPPING):
            await outside.stop(sent)
    except (DragomanError, TimeoutError) as exc:
        log.warning("not stopped task=%s at=%s: %s", sent.task_id, sent.address, exc)
