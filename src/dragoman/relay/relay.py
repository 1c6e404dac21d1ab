"""A local task mirrors a remote task, and passes its questions to our caller.

Theory. The remote task is created once (`RemoteTask`), so a run that starts again follows the same
one from its first event, and the engine drops the events that are already in our log. When the
connection breaks, the relay waits for the agent and resumes the stream after the last event that it
received. The relay tracks the received state in `StreamState`, so even an agent that does not
number its events loses and repeats nothing: its current task is compared with that state. An agent
that does not keep tasks is lost together with its connection.

A message that may have arrived is sent again only to an agent that recognises it by its idempotency
key, or that may get it twice (`Upstream.may_repeat`). For all others the journal says that it is
about to be sent, before it is sent: a run that finds this and no remote task cannot know what came
of it, and says so (`unknown_outcome`). As long as our own task is not opened, an error of the
remote agent is the answer to our caller; that is why the task is opened only when the remote agent
has answered, if the caller has no key by which a repetition would have to find it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from msgspec.structs import replace

from dragoman.agent.answers import CallRefused, Canceled, Failed, Rejected
from dragoman.agent.turn import Turn, access_of
from dragoman.core import events
from dragoman.core.errors import (
    AgentTimedOut,
    DragomanError,
    PeerMisbehaved,
    PeerUnreachable,
    TaskNotFound,
)
from dragoman.core.extensions import DETACHED
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.log import Logger
from dragoman.core.model import Message, State, Status, Task
from dragoman.core.operations import GetTask, Watch
from dragoman.core.peer import Batch, Context, Peer
from dragoman.core.questions import question_in
from dragoman.core.stream_state import Entry, StreamState
from dragoman.core.task_size import TaskGrowth

from .answers import Answers
from .first_events import is_whole, tells_more
from .questions import ask_caller
from .relayed_task import RelayedTask
from .remote_task import context_for
from .upstream import Upstream

log = Logger("relay")

UNKNOWN_OUTCOME = "unknown_outcome"
"""The reason of a task whose message may have been executed or not."""
AGENT_CANCELED = "agent_canceled"
"""The reason of a task that the remote agent canceled, unless it gives one itself."""


class Relay:
    """Mirrors one remote task in a local task."""

    def __init__(self, turn: Turn, upstream: Upstream) -> None:
        self._turn, self._upstream = turn, upstream
        self._access = access_of(turn)
        self._remote = RelayedTask(self._access, upstream)
        # Our own task has its limit. This one is for what is not part of it yet: a message that
        # arrives in pieces and never ends.
        held = TaskGrowth(self._access.run.shared.max_task_size, "limits.max_task_size")
        self._state = StreamState(Watch(task_id=""), numbered=True, held=held)
        self._ctx = Context()
        self._answers = Answers(upstream, in_doubt=bool(self._remote.id))
        self._has_artifacts = False
        self._unsent = False
        """Whether an attempt to send the message failed before anything was sent."""
        self._started = False
        self._over = False

    async def run(self) -> None:
        """Follows the remote task to its end, and ends the local task in the same way."""
        try:
            self._ctx = self._upstream.context(context_for(self._access))
            while not self._over:
                await self._follow()
        except asyncio.CancelledError:
            self._remote.abandon()
            raise
        except (Failed, Rejected):
            raise
        except DragomanError as exc:
            raise self._failure(exc) from exc

    def _failure(self, exc: DragomanError) -> DragomanError:
        """Returns the error for our caller: that of the call as long as there is no task, and
        otherwise the reason why the task failed."""
        exc = self._upstream.told(exc)
        unreachable = isinstance(exc, PeerUnreachable) and exc.sent
        unknown = unreachable and not self._unsent and not self._remote.id
        if self._access.run.unopened and not self._remote.id:
            # A caller may repeat a call that failed because the agent cannot be reached, so a call
            # that may have been executed must not fail with that error.
            return CallRefused(AgentTimedOut(_unknown(self._upstream.name)) if unknown else exc)
        if unknown:
            return self._turn.fail(_unknown(self._upstream.name), reason=UNKNOWN_OUTCOME)
        reason = "unreachable" if isinstance(exc, PeerUnreachable) else exc.reason
        return self._turn.fail(exc.message, reason=reason)

    async def _follow(self) -> None:
        """Mirrors the events of one connection."""
        # If events are numbered, the number shows whether anything arrived. Only without numbers
        # the whole task has to be built and compared.
        seq = self._state.seq
        task = None if seq else self._state.task()
        lost = False
        sent = self._remote.id or not self._unsent
        address = self._remote.recorded_address if sent else ""
        async with self._upstream.peer(self._remote.id, address) as peer:
            self._remote.address = self._upstream.address
            if not self._remote.id:
                await self._before_sending(peer)
            try:
                await self._answers.deliver_pending(peer, self._ctx)
                if await self._mirror_all(self._stream(peer), peer):
                    return
            except (PeerUnreachable, TimeoutError) as exc:
                if not self._remote.id:
                    if self._moves(exc):
                        return
                    if not self._sends_again(peer):
                        raise
                lost = True
                name = self._upstream.name
                log.info("The connection was lost", agent=name, task=self._turn.task_id)
                if self._remote.id and not self._state.seq and await self._look(peer):
                    return
        heard = seq != self._state.seq or (not seq and task != self._state.task())
        if not lost:
            if not self._state.begun:
                raise PeerMisbehaved(f"{self._upstream.name} said nothing")
            if heard:
                return  # a stream may end with a question, and the next one resumes after it
        self._state.connected(cursor=True)
        await self._upstream.lost(heard=heard)

    async def _look(self, peer: Peer) -> bool:
        """Mirrors a remote task that has ended or waits, and returns whether it is over. Some
        agents break the subscription to such a task instead of sending its state."""
        try:
            task = await peer.call(GetTask(task_id=self._remote.id), self._ctx)
        except TaskNotFound:
            raise
        except (DragomanError, TimeoutError):
            return False  # it cannot be reached at all
        if task.state in FINAL | WAITING:
            at, whole = task.status.at, events.Snapshot(task=task)
            for new in self._new([events.Stamped(task.id, task.context_id, 0, at, whole)]):
                if not self._over:
                    await self._mirror(new, peer)
        return self._over

    async def _before_sending(self, peer: Peer) -> None:
        """Makes sure that the message is not executed twice, whatever happens from here on."""
        run = self._access.run
        if self._upstream.may_repeat(peer):
            if run.keyed and self._upstream.keeps_address():
                await self._remote.announce()
            elif run.keyed:
                await run.begin()
            return
        if self._remote.announced and not self._unsent:
            raise Failed(_unknown(self._upstream.name), reason=UNKNOWN_OUTCOME)
        await self._remote.announce()

    def _moves(self, exc: Exception) -> bool:
        """Returns whether the message is sent to another address. A message that may have arrived
        is not, unless it may be executed twice."""
        sent = not isinstance(exc, PeerUnreachable) or exc.sent
        self._remote.in_doubt |= sent
        self._unsent = not self._remote.in_doubt
        stays = self._remote.in_doubt and self._upstream.keeps_address()
        return not sent and not stays and self._upstream.has_another()

    def _sends_again(self, peer: Peer) -> bool:
        """Returns whether the message is sent again when the agent is back. A caller without a task
        is told at once that the agent is away."""
        again = self._unsent or self._upstream.may_repeat(peer)
        return again and not self._access.run.unopened

    def _stream(self, peer: Peer) -> AsyncGenerator[Batch, None]:
        """Sends the message, or goes on with the task that it has opened."""
        key = self._remote.key
        if self._remote.id:
            ctx = replace(self._ctx, cursor=self._state.seq)
            return peer.stream(Watch(task_id=self._remote.id), ctx)
        ctx = replace(self._ctx, idempotency_key=key)
        return peer.stream(self._upstream.request(self._turn, key), ctx)

    async def _mirror_all(self, steps: AsyncGenerator[Batch, None], peer: Peer) -> bool:
        """Mirrors the events of a stream, and returns whether the task is over. What arrived
        together is mirrored together."""
        known, throttle = bool(self._remote.id), self._access.run.throttle
        entries = await (_ready(steps) if known else self._remote.first(_ready(steps), steps))
        try:
            while entries is not None:
                if not self._remote.id:
                    self._found(entries)
                for new in self._new(entries):
                    if self._copied(new):
                        await throttle()
                        continue
                    await self._mirror(new, peer)
                    if self._over:
                        return True
                entries = await _ready(steps)
        finally:
            await steps.aclose()
        for new in self._state.ended():
            await self._mirror(new, peer)
        return self._over

    def _found(self, entries: Sequence[Entry]) -> None:
        """Records the remote task. One that is over already, and has asked nothing, is mirrored in
        one write, which this record is part of."""
        for first in entries:
            if isinstance(first, events.Stamped):
                self._remote.found(first.task_id, first.context_id, over=is_whole(entries))
                return

    def _new(self, entries: Sequence[Entry]) -> list[Entry]:
        """Returns what is new in these entries. A first snapshot is converted to the events that
        lead to it, because it may be the only form in which our caller ever sees them."""
        first = entries[0]
        if (
            not self._state.begun
            and isinstance(first, events.Stamped)
            and isinstance(first.event, events.Snapshot)
            and tells_more(first.event.task)
        ):
            task = first.event.task
            empty = Task(id=task.id, context_id=task.context_id, status=Status(State.SUBMITTED))
            self._state.catch_up(empty)
        return self._state.take(entries)

    # The events of the remote task.

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

    async def _opened(self, entry: events.Stamped, peer: Peer) -> None:
        """Does nothing: the local task has been created as well."""

    async def _snapshot(self, entry: events.Stamped, peer: Peer) -> None:
        """Mirrors a snapshot that differs from what the events of the remote task led to."""
        event = entry.event
        assert isinstance(event, events.Snapshot)  # noqa: S101  by the table
        last = event.task.state in FINAL
        self._has_artifacts |= bool(event.task.artifacts)
        for artifact in event.task.artifacts:
            await self._emit(events.ArtifactChunk(artifact=artifact, append=False, last=last))
        status = event.task.status
        await self._state_changed(
            replace(entry, event=events.StateChanged(state=status.state, message=status.message)),
            peer,
        )

    async def _state_changed(self, entry: events.Stamped, peer: Peer) -> None:
        event = entry.event
        assert isinstance(event, events.StateChanged)  # noqa: S101  by the table
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
                    events.StateChanged(state=State.WORKING, message=ours, metadata=more or None)
                )

    def _ours(self, message: Message) -> Message:
        """Returns a message of the remote agent as one of our task."""
        return self._access.message(message.parts, message.metadata, message.extensions)

    async def _ended(self, event: events.StateChanged) -> None:
        self._over = True
        turn, message = self._turn, event.message
        words = message.text if message is not None else ""
        if event.state is State.COMPLETED:
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
        if not isinstance(entry, events.Stamped) or not self._started:
            return False
        event = entry.event
        is_chunk = isinstance(event, events.ArtifactChunk)
        if not (is_chunk or isinstance(event, events.Noted)) or entry.task_id != self._remote.id:
            return False
        self._has_artifacts |= is_chunk
        self._access.run.emit(event)
        return True

    async def _made(self, entry: events.Stamped, peer: Peer) -> None:
        if self._copied(entry):
            await self._access.run.throttle()

    # The questions of the remote task.

    async def _asked(self, entry: events.Stamped, peer: Peer) -> None:
        event = entry.event
        assert isinstance(event, events.Asked)  # noqa: S101  by the table
        question = event.question
        answers = self._answers
        if question in answers.delivered:
            return  # the first state of a stream, not a new question
        if question not in answers.given:
            with self._upstream.waiting():
                answers.given[question] = await ask_caller(self._turn, self._upstream, event)
        await answers.deliver(question, entry.task_id, peer, self._ctx)

    async def _waits(
        self, entry: events.Stamped, state: State, message: Message | None, peer: Peer
    ) -> None:
        """Mirrors a question in the form of A2A: a state, with our data part if there is one."""
        found = question_in(message, state)
        message_id = message.message_id if message is not None else ""
        asked = events.Asked(
            question=found.name or message_id or f"{entry.task_id}#{entry.seq or entry.at}",
            kind=found.kind,
            message=message or self._access.message(()),
            body=found.details,
        )
        await self._asked(replace(entry, event=asked), peer)


async def _ready(steps: AsyncGenerator[Batch, None]) -> Sequence[Entry] | None:
    """Returns the next events, as many as there are, or None at the end of the stream."""
    while (batch := await anext(steps, None)) is not None:
        if batch.entries:
            return batch.entries
    return None


def _unknown(name: str) -> str:
    return f"The connection to {name} was lost, and nobody can tell whether it got the message"


_MIRROR: dict[type[events.AnyEvent], Callable[[Relay, events.Stamped, Peer], Awaitable[None]]] = {
    events.Opened: Relay._opened,
    events.Snapshot: Relay._snapshot,
    events.StateChanged: Relay._state_changed,
    events.ArtifactChunk: Relay._made,
    events.Noted: Relay._made,
    events.Asked: Relay._asked,
}
