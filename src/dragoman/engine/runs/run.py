"""A task that runs in this process: the API of its turn, and how it ends.

A run has an `EventWriter`, which commits its events, a `LiveLog`, which serves the readers in this
process, and, if it needs them, `Questions`. The run decides when the task ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.agent import Skill
from dragoman.agent.remote_calls import StartedCall
from dragoman.core.errors import AgentMisbehaved, DragomanError, Unsupported
from dragoman.core.events import AnyEvent, Ask, Noted, Opened, StateChanged
from dragoman.core.extensions import DETACHED
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.log import Logger
from dragoman.core.model import Json, Message, State, Task
from dragoman.core.peer import Context
from dragoman.store.interface import Row, Write

from .chunk_buffer import ChunkBuffer
from .event_writer import EventWriter, wake
from .journal import Journal, has_begun, stop_call
from .live_log import LiveLog
from .other_tasks import load_calls, load_tasks, read_earlier
from .questions import Questions
from .refused_write import recover
from .remote_stops import RemoteStops
from .replay import Replay
from .run_context import RunContext
from .stop_reason import StopReason

if TYPE_CHECKING:
    from dragoman.workspace import Folder

log = Logger("run")
_CANCELED, _COMPLETED = StopReason.CANCELED, State.COMPLETED


class Run:
    """A task that runs in this process; implements `agent.run_api.RunApi`. Few fields have their
    defaults in the class, as in `EventWriter`."""

    task: asyncio.Task[None] | None
    """The asyncio task that runs the author's code; None until it starts."""
    stop_reason: StopReason | None
    on_stop: Callable[[], None] | None
    """Stops the code without interrupting what it awaits now, if it must not be interrupted."""
    replay: Replay | None
    """Drops the events that an earlier attempt has already sent."""
    chunks: ChunkBuffer | None
    deadline: float
    """The loop time at which its working time is over; 0 while it waits for its caller."""
    grace: asyncio.TimerHandle | None = None
    """The end of the period in which code that was stopped may end by itself."""
    time_left = 0.0
    """The seconds of working time that were left when it began to wait."""
    direct_reply: Message | None
    """The direct reply that replaced the task, once the run is closed."""
    _reply: Message | None
    detached_at: int
    """The seq of the event with which the run last detached."""
    resumed: bool
    """Whether an earlier run has begun the task."""
    _journal: Journal | None
    _questions: Questions | None
    _stops: RemoteStops | None
    _rest_waiters: tuple[asyncio.Future[None], ...]

    def __init__(
        self, shared: RunContext, row: Row, skill: Skill, opened: Opened, caller: Context
    ) -> None:
        self.shared = shared
        self.task_id = row.task_id
        self.context_id = row.context_id
        self.skill = skill
        self.opened = opened
        self.caller = caller
        self.attempt = row.attempt
        self.log = live = LiveLog(shared, row.task_id, row.last_seq)
        self.writer = EventWriter(shared, self, row, live)
        self.task = self.stop_reason = self.on_stop = self.replay = self.chunks = None
        self.direct_reply = self._reply = self._journal = self._questions = self._stops = None
        self.resumed, self.deadline, self.detached_at, self._rest_waiters = False, 0.0, 0, ()

    @property
    def journal(self) -> Journal:
        """The journal, created on first use: most runs record nothing."""
        if self._journal is None:
            self._journal = Journal(self.writer)
        return self._journal

    @property
    def questions(self) -> Questions:
        """The questions and inputs, created on first use: most runs have none."""
        if self._questions is None:
            self._questions = Questions(self)
        return self._questions

    @property
    def over(self) -> bool:
        """Whether further events are ignored."""
        writer = self.writer
        return writer.closed or writer.fold.status.state in FINAL

    # RunApi: what the turn needs.

    def emit(self, event: AnyEvent) -> None:
        """Queues an event after the chunks that are held back."""
        if self.chunks is not None:
            self.chunks.flush()
        self.put(event)

    def put(self, event: AnyEvent, *, now: bool = False) -> None:
        """Queues an event; after the end of the task it is ignored. `now` means that no other event
        follows in this loop iteration."""
        writer = self.writer
        if writer.closed or writer.fold.status.state in FINAL:
            kind = type(event).__name__
            log.warning(
                "An event after the end of the task was ignored", task=self.task_id, event=kind
            )
            return
        if self.replay is not None:
            missing = self.replay.sift(event)
            if missing is None:
                return
            event = missing
        asking = bool(writer.question.key)
        if asking and isinstance(event, StateChanged | Noted) and event.state not in FINAL:
            # A status message while a question is open: the task keeps waiting.
            event = replace(event, state=writer.fold.state)
        writer.stamp(event)
        if writer.size > self.shared.max_task_size:
            self.end_as_too_large()
        elif now:
            writer.flush()
        else:
            writer.schedule()

    def throttle(self) -> Coroutine[Any, Any, None]:
        """Yields to other tasks of the loop, and waits for the disk if the run is far ahead."""
        return self.writer.throttle()

    @property
    def cancelled(self) -> bool:
        """Whether the caller has canceled the task."""
        return self.stop_reason is StopReason.CANCELED

    @property
    def unopened(self) -> bool:
        """Whether nobody can see the task yet, so that the call itself can be refused."""
        return self.writer.unopened

    @property
    def keyed(self) -> bool:
        """Whether the caller sent an idempotency key for the task."""
        return self.writer.idempotency is not None

    @property
    def leaving(self) -> bool:
        """Whether the task continues without this run, in another one."""
        return self.stop_reason in (StopReason.GIVEN_BACK, StopReason.LOST)

    @property
    def seconds_left(self) -> float:
        """The seconds that the run may still work."""
        if self.deadline:
            return max(0.0, self.deadline - self.shared.loop.time())
        return self.time_left

    def before_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts work that may outlast the run, and after which a canceled task ends."""
        self._stops = self._stops or RemoteStops(self)
        self._stops.start(work)

    def stop_call(self, call: StartedCall) -> None:
        """Cancels a remote task, at once or when its agent can be reached again."""
        if self.shared.outside is not None:
            self.before_end(stop_call(self.shared.outside, call, self.caller))

    def recorded(self, key: str) -> bytes | None:
        """Returns the journal record of a call of an earlier attempt."""
        if self.chunks is not None:
            self.chunks.flush()
        journal = self._journal
        value = journal.entries.get(key) if journal is not None else None
        if self.replay is not None:
            self.replay.passed(key, recorded=value is not None)
        return value

    async def begin(self) -> None:
        """Creates the task if it does not exist yet, because the next call has external effects."""
        if self.writer.unopened:
            await self.writer.committed()

    async def begin_unseen(self) -> None:
        """Stores the task like `begin`, but hides it: the next call has external effects, and its
        answer decides whether the caller gets a task."""
        if self.writer.unopened:
            await self.writer.commit_unseen()

    async def record_unseen(self, key: str, value: bytes) -> None:
        """Records the result of a call like `record`, but hides a task that nobody can see yet."""
        self.journal.add(key, value)
        await self.writer.commit_unseen()

    def show_after(self, seconds: float) -> asyncio.TimerHandle:
        """Has the task shown after this time, unless it is visible or over by then."""
        return self.shared.loop.call_later(seconds, self.writer.show)

    async def record(self, key: str, value: bytes) -> None:
        """Records the result of a call; returns when it is committed."""
        self.journal.add(key, value)
        await self.writer.committed()

    def note(self, key: str, value: bytes, *, soon: bool = True) -> None:
        """Records the result of a call with the next commit, or with that of the next event."""
        self.journal.add(key, value)
        if soon:
            self.writer.schedule()

    async def ask(
        self, key: str, kind: Ask, message: Message, body: Json, expires: float | None
    ) -> tuple[Message, Json]:
        """Asks the caller, and returns when the answer has arrived."""
        return await self.questions.ask(key, kind, message, body, expires)

    def history(self) -> tuple[Message, ...]:
        """Returns the messages of both sides so far."""
        return self.writer.fold.history()

    async def conversation(self, limit: int) -> tuple[Message, ...]:
        """Returns the latest messages of the whole context."""
        earlier = await read_earlier(self.shared.store, self.writer.row, limit)
        return (*earlier, *self.history())[-limit:]

    async def calls_of(self, ids: Iterable[str] | None) -> dict[str, list[StartedCall]]:
        """Returns what these tasks of the caller opened elsewhere; None: those of this context."""
        return await load_calls(self.shared.store, self.writer.row, ids)

    async def tasks(self, ids: Iterable[str]) -> tuple[Task, ...]:
        """Returns those of these tasks that belong to the caller of this run."""
        return await load_tasks(self.shared.store, self.writer.row.scope, ids)

    def folder(self) -> Folder:
        """Returns the folder in which this task may access files."""
        if self.shared.workspaces is None:
            raise Unsupported("This agent has no workspace; grant one with Agent(workspace=...)")
        opened, folder = self.opened, self.shared.workspaces.folder
        about = (opened.metadata, opened.message.metadata)
        return folder(self.task_id, self.context_id, self.caller, *about)

    async def reply(self, message: Message) -> None:
        """Replies directly if the task does not exist yet, otherwise completes it with this
        message."""
        if not self.skill.may_reply:
            skill = self.skill.id
            raise AgentMisbehaved(f"turn.reply needs @agent.skill({skill!r}, may_reply=True)")
        if self.chunks is not None:
            self.chunks.flush()
        writer = self.writer
        # Seq 2: submitted and working, and no other event.
        if not (writer.unopened and writer.fold.seq == 2):
            await self.complete(message)
            return
        self._reply = replace(message, task_id="")
        if writer.idempotency is None and not writer.unseen:
            self.close(None)
            return
        # Stored for a repeated send, as a finished task that no list shows.
        writer.unopened, writer.unseen, writer.hook = False, True, None
        self.finish(State.COMPLETED, message)
        await writer.committed()

    async def detach(self, message: Message | None) -> None:
        """Answers blocking sends now, with the current task."""
        if self.over or self.stop_reason is not None:
            return  # the task is about to end, which answers them as well
        fold, before = self.writer.fold, self.writer.fold.seq
        self.emit(StateChanged(state=State.WORKING, message=message, metadata={DETACHED: True}))
        if fold.seq == before:
            return  # an earlier attempt has already detached, and answered the sends of that time
        self.detached_at = fold.seq
        await self.writer.committed()
        self.answer_waiters()

    async def complete(self, message: Message | None) -> None:
        """Ends the task as completed, with the last chunk of a generator's artifact."""
        if self.chunks is not None and not self.over:
            self.chunks.end()
        self.finish(State.COMPLETED, message)

    # For the callers that wait for the run.

    @property
    def resting(self) -> bool:
        """Whether the task is committed and finished, or waits for its caller without undelivered
        inputs."""
        writer = self.writer
        state = writer.fold.status.state
        return self.log.committed == writer.fold.seq and (
            state in FINAL
            or (
                state in WAITING
                and bool(writer.question.key)
                and self.stop_reason is None
                and self.task is not None  # a resumed run has not received its answer yet
            )
        )

    def when_resting(self, since: int = 0) -> asyncio.Future[None]:
        """Returns a future that completes when the task rests, when the run is lost, when the store
        does not take its events, or when it has replied directly or detached after the event
        `since`."""
        future: asyncio.Future[None] = self.shared.loop.create_future()
        stalled = self.writer.closed or self.writer.stalled
        if stalled or self.resting or since < self.detached_at <= self.log.committed:
            future.set_result(None)
        else:
            self._rest_waiters += (future,)
        return future

    def answer_waiters(self) -> None:
        """Completes all futures of `when_resting`."""
        waiters, self._rest_waiters = self._rest_waiters, ()
        wake(waiters)

    # Owner: the callbacks of the writer.

    def on_committed(self) -> None:
        """Called when all events so far are committed."""
        if self._rest_waiters and self.resting:
            self.answer_waiters()

    def on_stalled(self) -> None:
        """Called when a write has to be retried, because the store is unavailable."""
        self.answer_waiters()

    def on_refused(self, write: Write, error: Exception) -> None:
        """Called when the store refuses the content of a write."""
        self.shared.spawn(recover(self.writer, self, write, error))

    # The end.

    def finish(
        self, state: State, message: Message | None = None, reason: str = "", **about: str
    ) -> None:
        """Ends the task. After a cancel the task is canceled, whatever state the code ends with."""
        if self.over:
            return
        if self._stops is not None and self._stops.postpones_end():
            return
        if self.stop_reason is _CANCELED:
            state, reason = State.CANCELED, ""
        elif state is not _COMPLETED:
            self.stop_calls()
        metadata: dict[str, Json] | None = {"reason": reason, **about} if reason else None
        if metadata and message is not None:
            # In the message too, because the message stays with the task after its log was deleted.
            message = replace(message, metadata={**(message.metadata or {}), **metadata})
        if self.replay is not None:
            self.replay = None
        self.writer.stamp(StateChanged(state=state, message=message, metadata=metadata))
        self.writer.flush()

    def fail(self, text: str, reason: str, **about: str) -> None:
        """Fails the task with a text for people and a machine-readable reason."""
        self.finish(State.FAILED, self.writer.closing_message(text), reason=reason, **about)

    async def refuse(self, error: DragomanError) -> None:
        """Answers the caller with an error instead of a task. A task that others can see fails with
        it; a hidden one is dropped with its key, so that the caller may try again."""
        if not self.writer.unopened:
            self.fail(error.message, error.reason)
            return
        if self.writer.unseen:
            await self.shared.store.discard(self.writer.claim)
            self.log.committed = 0
        self.close(error)

    def end_as_too_large(self) -> None:
        """Fails the task because it exceeds `max_task_size`: it is in memory while it runs."""
        log.warning("The task is too large", task=self.task_id, size=self.writer.size)
        self.fail("The task has become too large", "too_large")
        self.stop_code()

    def stop_calls(self) -> None:
        """Cancels the remote tasks of this task."""
        outside, journal = self.shared.outside, self._journal
        if outside is None or journal is None:
            return
        abandoned = self if self.cancelled and not has_begun(self.task) else None
        if abandoned is not None or journal.calls_pending:
            self.before_end(journal.stop_calls(outside, self.caller, abandoned))

    # Letting go.

    def lose(self, error: Exception) -> None:
        """Stops the code and wakes all waiters, because another worker has the task."""
        if self.writer.closed:
            return
        self.close(error)
        self.stop_code()

    def stop_code(self) -> None:
        """Cancels the author's code; its further events are ignored."""
        self.stop_reason = self.stop_reason or StopReason.LOST
        if self.task is not None and not self.task.done():
            self.task.cancel()

    def close(self, error: Exception | None) -> None:
        """Closes the run; code that waits for an answer is canceled."""
        if error is None:
            self.direct_reply = self._reply
        self.writer.close(error)
        if self.grace is not None:
            # It would keep the run, and all that the task said, in memory until it fires.
            self.grace.cancel()
        self.answer_waiters()
        self.shared.on_close(self)
        self.log.notify(working=False)
        if self._questions is not None:
            self._questions.close()
