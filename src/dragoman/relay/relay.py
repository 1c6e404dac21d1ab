"""A local task mirrors a remote task, and passes its questions to our caller.

Theory. The remote task is created once (`RemoteTask`), so a run that starts again follows the same
one from its first event, and the engine drops the events that are already in our log. When the
connection breaks, the relay waits for the agent and resumes the stream after the last event that it
received. The relay tracks the received state in `StreamState`, so even an agent that does not
number its events loses and repeats nothing: its current task is compared with that state. An agent
that does not keep tasks is lost together with its connection.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from msgspec.structs import replace

from dragoman.agent.remote_calls import AGENT
from dragoman.agent.turn import Turn, access_of
from dragoman.core import events
from dragoman.core.errors import (
    Conflict,
    DragomanError,
    PeerError,
    PeerUnreachable,
    TaskFinished,
)
from dragoman.core.extensions import PROGRESS
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.log import Logger
from dragoman.core.model import Artifact, Json, Message, State, Status, Task
from dragoman.core.operations import Resolve, SendMessage, Watch
from dragoman.core.peer import Context, Peer
from dragoman.core.questions import answer_value, question_in
from dragoman.core.stream_state import Entry, StreamState
from dragoman.core.task_size import TaskGrowth

from .remote_task import RemoteTask, context_for

log = Logger("relay")


class Upstream(ABC):
    """The agent that a relay follows: how it is found and called, and which tools it may use."""

    name: str
    """The name of the agent for our caller."""
    approval_expires: float | None = None
    """Seconds after which an unanswered approval counts as a denial."""

    @property
    @abstractmethod
    def address(self) -> str:
        """The address of the remote task in the journal; `Agent.stop_remote` reads it."""

    @abstractmethod
    async def find(self) -> Peer:
        """Returns the agent, and waits for it if it is offline. Raises `PeerUnreachable` if that
        takes too long."""

    @abstractmethod
    async def lost(self) -> None:
        """Waits until it makes sense to look for an agent whose connection broke."""

    def context(self, ctx: Context) -> Context:
        """Returns the context of calls to the agent, with the tools that it may call."""
        return ctx

    @abstractmethod
    def request(self, turn: Turn, key: str) -> SendMessage:
        """Returns the message that creates the remote task; `key` is its message id."""

    async def run_tool(self, turn: Turn, asked: events.Asked) -> Json:
        """Runs a tool for the agent, and returns its result."""
        given = asked.body if isinstance(asked.body, dict) else {}
        return await turn.call_tool(asked.message.text, key=asked.question, **given)

    async def answer(self, peer: Peer, op: Resolve, ctx: Context) -> None:
        """Sends the agent the answer to a question."""
        await peer.call(op, ctx)

    @abstractmethod
    async def stop(self, task_id: str) -> None:
        """Cancels a task of the agent. It is no error if the task has ended."""


class Relay:
    """Mirrors one remote task in a local task."""

    def __init__(self, turn: Turn, upstream: Upstream) -> None:
        self._turn, self._upstream = turn, upstream
        self._access = access_of(turn)
        record = self._access.record_name(AGENT, "relay")
        self._remote = RemoteTask(self._access, record, lambda call: upstream.stop(call.task_id))
        # Our own task fails first. This is for what is not part of it yet: a message that comes in
        # pieces and never ends.
        growth = TaskGrowth(2 * self._access.run.max_task_size, "limits.max_task_size")
        self._state = StreamState(Watch(task_id=""), numbered=True, growth=growth)
        self._ctx = Context()
        self._made = False
        self._answers: dict[str, Json] = {}
        """The answers by question, so that nobody is asked twice because a connection broke."""
        self._delivered: set[str] = set()
        self._over = False

    async def run(self) -> None:
        """Follows the remote task to its end, and ends the local task in the same way."""
        turn = self._turn
        try:
            self._ctx = self._upstream.context(context_for(self._access))
            await self._access.run.begin()
            async with self._remote.stopped_with_us():
                while not self._over:
                    await self._follow()
        except PeerError as exc:
            code = "unreachable" if isinstance(exc, PeerUnreachable) else exc.reason
            raise turn.fail(exc.message, reason=code) from exc
        except DragomanError as exc:
            raise turn.fail(exc.message, reason=exc.reason) from exc

    async def _follow(self) -> None:
        """Mirrors the events of one connection."""
        peer = await self._upstream.find()
        self._remote.address = self._upstream.address
        # Where events are numbered the number tells whether anything came; only where they are not
        # is the whole task built and compared.
        seq = self._state.seq
        task = None if seq else self._state.task()
        try:
            async with aclosing(self._remote.follow(self._entries(peer))) as entries:
                async for entry in entries:
                    for new in self._new(entry):
                        await self._mirror(new, peer)
                    if self._over:
                        return
            for new in self._state.ended():
                await self._mirror(new, peer)
        except (PeerUnreachable, TimeoutError):
            if not self._remote.id:
                raise
            log.info("The connection was lost", agent=self._upstream.name, task=self._turn.task_id)
        else:
            if not self._state.begun:
                raise PeerUnreachable(f"{self._upstream.name} said nothing")
            if seq != self._state.seq or (not seq and task != self._state.task()):
                return  # a stream may end with a question, and the next one resumes after it
        self._state.connected(cursor=True)
        await self._upstream.lost()

    async def _entries(self, peer: Peer) -> AsyncGenerator[Entry, None]:
        key = self._remote.key
        if self._remote.id:
            ctx = replace(self._ctx, cursor=self._state.seq)
            steps = peer.stream(Watch(task_id=self._remote.id), ctx)
        else:
            ctx = replace(self._ctx, idempotency_key=key)
            steps = peer.stream(self._upstream.request(self._turn, key), ctx)
        async with aclosing(steps):
            async for batch in steps:
                for entry in batch.entries:
                    yield entry

    def _new(self, entry: Entry) -> list[Entry]:
        """Returns the new part of an entry. A snapshot is converted to the events that lead to it,
        because it may be the only form in which our caller ever sees them."""
        if (
            isinstance(entry, events.Stamped)
            and isinstance(entry.event, events.Snapshot)
            and not self._state.begun
        ):
            task = entry.event.task
            empty = Task(id=task.id, context_id=task.context_id, status=Status(State.SUBMITTED))
            self._state.catch_up(empty)
        return self._state.take([entry])

    # The events of the remote task.

    async def _mirror(self, entry: Entry, peer: Peer) -> None:
        if self._over:
            return
        if isinstance(entry, Message):
            await self._turn.artifact(*entry.parts)
            self._over = True
            return
        await _MIRROR[type(entry.event)](self, entry, peer)

    async def _opened(self, entry: events.Stamped, peer: Peer) -> None:
        """Does nothing: the local task has been created as well."""

    async def _snapshot(self, entry: events.Stamped, peer: Peer) -> None:
        """Mirrors a snapshot that differs from what the events of the remote task led to."""
        event = entry.event
        assert isinstance(event, events.Snapshot)  # noqa: S101  by the table
        for artifact in event.task.artifacts:
            await self._artifact(artifact, append=False, last=event.task.state in FINAL)
        status = event.task.status
        await self._state_changed(
            replace(entry, event=events.StateChanged(state=status.state, message=status.message)),
            peer,
        )

    async def _state_changed(self, entry: events.Stamped, peer: Peer) -> None:
        event, turn = entry.event, self._turn
        assert isinstance(event, events.StateChanged)  # noqa: S101  by the table
        if event.state in FINAL:
            await self._ended(event)
            return
        if event.state in WAITING:
            if event.message is not None:
                await self._waits(entry, event.state, event.message, peer)
            return
        progress = (event.metadata or {}).get(PROGRESS)
        if isinstance(progress, dict) and isinstance(progress.get("fraction"), int | float):
            await turn.progress(min(1.0, max(0.0, progress["fraction"])), eta=progress.get("eta"))
        if event.message is not None and event.message.parts:
            await turn.say(*event.message.parts)

    async def _ended(self, event: events.StateChanged) -> None:
        self._over = True
        turn, message = self._turn, event.message
        words = message.text if message is not None else ""
        if event.state is State.COMPLETED:
            if message is not None and not self._made:
                await turn.artifact(*message.parts)
            return
        about = {**((message.metadata if message else None) or {}), **(event.metadata or {})}
        reason = about.get("reason")
        if event.state is State.REJECTED:
            raise turn.reject(words)
        raise turn.fail(
            words or f"The task of {self._upstream.name} is {event.state}",
            reason=reason if isinstance(reason, str) else str(event.state),
        )

    async def _chunk(self, entry: events.Stamped, peer: Peer) -> None:
        event = entry.event
        assert isinstance(event, events.ArtifactChunk)  # noqa: S101  by the table
        await self._artifact(
            event.artifact, append=event.append, last=event.last, update_metadata=event.metadata
        )

    async def _artifact(
        self,
        artifact: Artifact,
        *,
        append: bool,
        last: bool,
        update_metadata: dict[str, Json] | None = None,
    ) -> None:
        """Mirrors a piece of an artifact, under its name at the remote agent."""
        self._made = True
        await self._turn.artifact(
            *artifact.parts,
            name=artifact.artifact_id,
            description=artifact.description,
            append=append,
            last=last,
            metadata=artifact.metadata,
            extensions=artifact.extensions,
            update_metadata=update_metadata,
        )

    async def _noted(self, entry: events.Stamped, peer: Peer) -> None:
        event, turn = entry.event, self._turn
        assert isinstance(event, events.Noted)  # noqa: S101  by the table
        body = event.body if isinstance(event.body, dict) else {"text": event.body}
        match event.kind:
            case events.Note.THOUGHT:
                await turn.think(str(body.get("text", "")))
            case events.Note.LOG:
                known = {"message", "level", "self"}
                more = {key: value for key, value in body.items() if key not in known}
                level = str(body.get("level", "info"))
                await turn.log(str(body.get("message", "")), level=level, **more)
            case events.Note.USAGE:
                await turn.usage(**{key: value for key, value in body.items() if key != "self"})

    # The questions of the remote task.

    async def _asked(self, entry: events.Stamped, peer: Peer) -> None:
        event = entry.event
        assert isinstance(event, events.Asked)  # noqa: S101  by the table
        question = event.question
        if question in self._delivered:
            return  # the first state of a stream, not a new question
        if question not in self._answers:
            self._answers[question] = await _ANSWER[event.kind](self, event)
        op = Resolve(task_id=entry.task_id, question=question, value=self._answers[question])
        try:
            await self._upstream.answer(peer, op, self._ctx)
        except (Conflict, TaskFinished):
            # The question was answered at the remote agent in the meantime, or it expired. The next
            # events will show which.
            log.info(
                "The question is not open any more", agent=self._upstream.name, question=question
            )
        self._delivered.add(question)

    async def _waits(
        self, entry: events.Stamped, state: State, message: Message, peer: Peer
    ) -> None:
        """Mirrors a question in the form of A2A: a state, with our data part if there is one."""
        found = question_in(message, state)
        named = message.message_id or f"{entry.task_id}#{entry.seq or entry.at}"
        question = found.name or named
        asked = events.Asked(
            question=question, kind=found.kind, message=message, body=found.details
        )
        await self._asked(replace(entry, event=asked), peer)

    async def _approval(self, event: events.Asked) -> Json:
        """Returns a person's decision, which is bound to this task, this action and this
        question."""
        approved = await self._turn.approve(
            event.message.text or "Approve?",
            details={"agent": self._upstream.name, "details": event.body},
            key=event.question,
            expires=self._upstream.approval_expires,
        )
        return answer_value(approved)

    async def _tool(self, event: events.Asked) -> Json:
        return await self._upstream.run_tool(self._turn, event)

    async def _input(self, event: events.Asked) -> Json:
        answer = await self._turn.ask(event.message.text, key=event.question, details=event.body)
        return answer.data if answer.data is not None else str(answer)

    async def _credentials(self, event: events.Asked) -> Json:
        body = event.body if isinstance(event.body, dict) else {}
        answer = await self._turn.need_auth(
            body.get("schemes"), body.get("details"), prompt=event.message.text, key=event.question
        )
        return answer.data if answer.data is not None else str(answer)


_MIRROR: dict[type[events.AnyEvent], Callable[[Relay, events.Stamped, Peer], Awaitable[None]]] = {
    events.Opened: Relay._opened,
    events.Snapshot: Relay._snapshot,
    events.StateChanged: Relay._state_changed,
    events.ArtifactChunk: Relay._chunk,
    events.Noted: Relay._noted,
    events.Asked: Relay._asked,
}
_ANSWER: dict[events.Ask, Callable[[Relay, events.Asked], Awaitable[Json]]] = {
    events.Ask.APPROVAL: Relay._approval,
    events.Ask.TOOL: Relay._tool,
    events.Ask.INPUT: Relay._input,
    events.Ask.CREDENTIALS: Relay._credentials,
}
