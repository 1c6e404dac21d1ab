"""The half of a relay that writes the events of a remote task into the log of our own task."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from dragoman.agent.answers import Canceled
from dragoman.agent.turn import Turn, access_of
from dragoman.core import events
from dragoman.core.errors import PeerMisbehaved
from dragoman.core.events import ArtifactChunk, Noted, Snapshot, Stamped, StateChanged
from dragoman.core.extensions import DETACHED
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import Message, State
from dragoman.core.peer import ANYONE, Peer
from dragoman.core.questions import question_in
from dragoman.core.stream_state import Entry

from .answers import Answers
from .first_events import MOST_TAKEN, ends_in, tells_more
from .questions import ask_caller
from .relayed_task import RelayedTask
from .upstream import Upstream

AGENT_CANCELED = "agent_canceled"
"""The reason of a task that the remote agent canceled, unless it gives one itself."""


_COMPLETED = State.COMPLETED


class EventMirror:
    """Mirrors the events of one remote task in a local task."""

    def __init__(self, turn: Turn, upstream: Upstream) -> None:
        self._turn, self._upstream = turn, upstream
        self._access = access_of(turn)
        self._remote = RelayedTask(self._access, upstream)
        self._resumed = bool(self._remote.id)
        self._ctx = ANYONE
        """The context of calls to the remote agent."""
        self._answers: Answers | None = None
        self._taken: list[Stamped] = []
        """The events that were mirrored as they are."""
        self._started = self._has_artifacts = False
        self._over = False
        """Whether the remote task has ended, and our own with it."""

    async def _mirror_plain(self, entries: Sequence[Entry], peer: Peer) -> Sequence[Entry]:
        """Mirrors events that can each be mirrored as it is, and returns the rest: from the first
        question, message, repetition or event of another task on. Events without numbers are all
        in the rest, unless they are the whole task."""
        run, taken, last = self._access.run, self._taken, entries[-1]
        start, ends = len(taken), ends_in(last)
        before, task_id = taken[-1].seq if taken else 0, self._remote.id
        if start + len(entries) > MOST_TAKEN or not (ends or _has_number(last)):
            return entries
        for entry in entries:
            if type(entry) is not Stamped or (entry.seq <= before and entry.seq):
                break
            if entry.task_id != task_id:
                if task_id:
                    break
                task_id = entry.task_id
                self._remote.found(task_id, entry.context_id, over=ends)
            if not self._started:
                self._started = True
                await self._upstream.started(task_id, entry.context_id)
            before, event = entry.seq, entry.event
            if type(event) is StateChanged:
                if event.state in FINAL:
                    if entry is not last:
                        break
                    await self._ended(event)
                elif event.state in WAITING:
                    break
                elif event.message is not None or event.metadata:
                    await self._state_changed(entry, peer)
            elif type(event) is ArtifactChunk:
                self._has_artifacts = True
                run.emit(event)
            elif type(event) is Snapshot:
                if taken or tells_more(event.task):
                    break
            elif type(event) is Noted:
                run.emit(event)
            else:
                break
            taken.append(entry)
        return entries[len(taken) - start :]

    async def _mirror(self, entry: Entry, peer: Peer) -> None:
        if isinstance(entry, Message):
            self._over = True
            if self._upstream.replies:
                metadata, extensions = entry.metadata, entry.extensions
                await self._turn.reply(*entry.parts, metadata=metadata, extensions=extensions)
            else:
                await self._turn.artifact(*entry.parts)
            return
        if entry.task_id != self._remote.id:
            raise PeerMisbehaved(f"{self._upstream.name} tells of another task than ours")
        if not self._started:
            self._started = True
            await self._upstream.started(entry.task_id, entry.context_id)
        await _MIRROR[type(entry.event)](self, entry, peer)

    async def _emit(self, event: events.AnyEvent) -> None:
        """Records an event of the remote task as ours."""
        run = self._access.run
        run.emit(event)
        await run.throttle()

    async def _opened(self, entry: Stamped, peer: Peer) -> None:
        """Does nothing: the local task has been created as well."""

    async def _snapshot(self, entry: Stamped, peer: Peer) -> None:
        """Mirrors a snapshot that differs from what the events of the remote task led to."""
        event = entry.event
        assert isinstance(event, Snapshot)  # noqa: S101  by the table
        last = event.task.state in FINAL
        self._has_artifacts |= bool(event.task.artifacts)
        for artifact in event.task.artifacts:
            await self._emit(ArtifactChunk(artifact=artifact, append=False, last=last))
        status = event.task.status
        await self._state_changed(
            replace(entry, event=StateChanged(state=status.state, message=status.message)),
            peer,
        )

    async def _state_changed(self, entry: Stamped, peer: Peer) -> None:
        event = entry.event
        assert isinstance(event, StateChanged)  # noqa: S101  by the table
        if event.state in FINAL:
            await self._ended(event)
            return
        if event.state in WAITING:
            await self._waits(entry, event.state, event.message, peer)
            return
        message, metadata = event.message, event.metadata
        if metadata and DETACHED in metadata:
            parts = message.parts if message is not None else ()
            await self._turn.detach(*parts)
        elif metadata or (message is not None and message.parts):
            ours = None if message is None else self._ours(message)
            more = {key: each for key, each in (metadata or {}).items() if key != "attempt"}
            if ours is not None or more:
                await self._emit(
                    StateChanged(state=State.WORKING, message=ours, metadata=more or None)
                )

    def _ours(self, message: Message) -> Message:
        """Returns a message of the remote agent as one of our task."""
        return self._access.message(message.parts, message.metadata, message.extensions)

    async def _ended(self, event: StateChanged) -> None:
        self._over = True
        turn, message = self._turn, event.message
        words = message.text if message is not None else ""
        if event.state is _COMPLETED:
            if message is None or not message.parts:
                return
            if self._upstream.replies:
                metadata, extensions = message.metadata, message.extensions
                await turn.complete(*message.parts, metadata=metadata, extensions=extensions)
            elif not self._has_artifacts:
                await turn.artifact(*message.parts)
            return
        about = {**((message.metadata if message else None) or {}), **(event.metadata or {})}
        reason = about.get("reason")
        if event.state is State.REJECTED:
            raise turn.reject(words)
        given = reason if isinstance(reason, str) else ""
        if event.state is State.CANCELED:
            words = words or f"{self._upstream.name} canceled the task"
            raise Canceled(words, reason=given or AGENT_CANCELED)
        words = words or f"The task of {self._upstream.name} is {event.state}"
        raise turn.fail(words, reason=given or str(event.state))

    def _copied(self, entry: Entry) -> bool:
        """Mirrors an event that is the same in our task, and returns whether this was one: a piece
        of an artifact, or a note."""
        if not isinstance(entry, Stamped) or not self._started:
            return False
        event = entry.event
        is_chunk = isinstance(event, ArtifactChunk)
        if not (is_chunk or isinstance(event, Noted)) or entry.task_id != self._remote.id:
            return False
        self._has_artifacts |= is_chunk
        self._access.run.emit(event)
        return True

    async def _made(self, entry: Stamped, peer: Peer) -> None:
        if self._copied(entry):
            await self._access.run.throttle()

    # The questions of the remote task.

    async def _asked(self, entry: Stamped, peer: Peer) -> None:
        event = entry.event
        assert isinstance(event, events.Asked)  # noqa: S101  by the table
        question = event.question
        answers = self._answers = self._answers or Answers(self._upstream, in_doubt=self._resumed)
        if question in answers.delivered:
            return  # the first state of a stream, not a new question
        if question not in answers.given:
            with self._upstream.waiting():
                answers.given[question] = await ask_caller(self._turn, self._upstream, event)
        await answers.deliver(question, entry, peer, self._ctx)

    async def _waits(
        self, entry: Stamped, state: State, message: Message | None, peer: Peer
    ) -> None:
        """Mirrors a question in the form of A2A: a state, with our data part if there is one."""
        found = question_in(message, state)
        message_id = message.message_id if message is not None else ""
        asked = events.Asked(
            question=found.name or message_id or _name_question(entry, message),
            kind=found.kind,
            message=message or self._access.message(()),
            body=found.details,
        )
        await self._asked(replace(entry, event=asked), peer)


def _name_question(entry: Stamped, message: Message | None) -> str:
    """Returns the name of a question whose message has no id. Agents of A2A 0.1 may leave out the
    time of a state, too: then only its words tell a new question from one that is told again."""
    mark = str(entry.seq or entry.at or "")
    if not mark and message is not None:
        mark = hashlib.sha256(message.text.encode()).hexdigest()[:24]
    return f"{entry.task_id}#{mark}"


def _has_number(entry: Entry) -> bool:
    return type(entry) is Stamped and entry.seq > 0


_MIRROR: dict[type[events.AnyEvent], Callable[[EventMirror, Stamped, Peer], Awaitable[None]]] = {
    events.Opened: EventMirror._opened,
    Snapshot: EventMirror._snapshot,
    StateChanged: EventMirror._state_changed,
    ArtifactChunk: EventMirror._made,
    Noted: EventMirror._made,
    events.Asked: EventMirror._asked,
}
