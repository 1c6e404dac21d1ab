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
of it, and says so (`unknown_outcome`).

What the remote agent answers first decides what our caller gets: a direct reply, an error, or a
task. Until then nobody sees our task. Where a crash must not lose the send (it is recorded, or the
caller has a key by which a repetition has to find it), the task is in the store all the same, but
hidden. It becomes visible with the first event, if the answer takes too long
(`Upstream.reply_within`), and in the run after a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from msgspec.structs import replace

from dragoman.agent.answers import CallRefused, Failed, Rejected
from dragoman.agent.turn import Turn
from dragoman.core import events
from dragoman.core.errors import (
    AgentTimedOut,
    DragomanError,
    PeerMisbehaved,
    PeerRefused,
    PeerUnreachable,
    TaskNotFound,
    UnknownMethod,
)
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.log import Logger
from dragoman.core.model import State, Status, Task
from dragoman.core.operations import GetTask, Watch
from dragoman.core.peer import Begun, Peer
from dragoman.core.stream_state import Entry, StreamState
from dragoman.core.task_size import SizeShare, TaskGrowth, entry_size

from .event_mirror import EventMirror
from .first_events import is_whole, tells_more
from .upstream import Upstream

log = Logger("relay")

UNKNOWN_OUTCOME = "unknown_outcome"
"""The reason of a task whose message may have been executed or not."""


class Relay(EventMirror):
    """Mirrors one remote task in a local task."""

    def __init__(self, turn: Turn, upstream: Upstream) -> None:
        super().__init__(turn, upstream)
        self._state: StreamState | None = None
        """What was received so far. Most tasks end with their first events, and need none."""
        self._share: SizeShare | None = None
        """Its part in the budget of its caller. A task that ends with its first events needs
        none."""
        upstream.count = self._count
        self._unsent = False
        """Whether an attempt to send the message failed before anything was sent."""

    async def run(self) -> None:
        """Follows the remote task to its end, and ends the local task in the same way."""
        run = self._access.run
        timer = run.show_after(self._upstream.reply_within) if run.unopened else None
        try:
            self._ctx = self._upstream.context(self._access)
            if run.shared.relayed_sizes:
                self._count(0)
            while not self._over:
                await self._follow()
        except asyncio.CancelledError:
            self._remote.abandon()
            raise
        except (Failed, Rejected):
            raise
        except DragomanError as exc:
            if self._share is not None and self._share.exceeded:
                self._remote.abandon()  # it may be one without an end
            raise self._failure(exc) from exc
        finally:
            if self._share is not None:
                self._share.release()
            if timer is not None:
                timer.cancel()

    def _count(self, size: int) -> None:
        """Counts what is written, or held back, in the budget of our caller. Raises `TooMany` if it
        is used up."""
        share = self._share
        if share is None:
            run = self._access.run
            share = self._share = SizeShare(
                run.shared.relayed_sizes,
                (run.caller.tenant, run.caller.principal),
                limit=run.shared.max_relayed_size,
                setting="limits.max_relayed_size",
            )
        share.add(size)

    def _failure(self, exc: DragomanError) -> DragomanError:
        """Returns the error for our caller: that of the call as long as there is no task, and
        otherwise the reason why the task failed."""
        exc = self._upstream.told(exc)
        unreachable = isinstance(exc, PeerUnreachable) and exc.sent
        unknown = unreachable and not self._unsent and not self._remote.id
        kept = unknown and self._remote.announced
        if self._access.run.unopened and not self._remote.id and not kept:
            # A caller may repeat a call that failed because the agent cannot be reached, so a call
            # that may have been executed must not fail with that error.
            return CallRefused(AgentTimedOut(_unknown(self._upstream.name)) if unknown else exc)
        if unknown:
            return self._turn.fail(_unknown(self._upstream.name), reason=UNKNOWN_OUTCOME)
        reason = "unreachable" if isinstance(exc, PeerUnreachable) else exc.reason
        return self._turn.fail(exc.message, reason=reason)

    async def _follow(self) -> None:
        """Mirrors the events of one connection."""
        before, lost, remote = self._position(), False, self._remote
        task_id, address = remote.id, ""
        if task_id or (remote.announced and not self._unsent):
            address = remote.recorded_address
        async with self._upstream.peer(task_id, address) as peer:
            remote.address = self._upstream.address
            if not task_id:
                await self._before_sending(peer)
            try:
                if self._answers is not None:
                    await self._answers.deliver_pending(peer, self._ctx)
                if await self._mirror_all(self._begin(peer, task_id), peer):
                    return
            except (PeerUnreachable, TimeoutError) as exc:
                if not remote.id:
                    if self._moves(exc):
                        return
                    if not await self._sends_again(peer):
                        raise
                lost = True
                name = self._upstream.name
                log.info("The connection was lost", agent=name, task=self._turn.task_id)
                if remote.id and not self._position()[0] and await self._look(peer):
                    return
            except (PeerRefused, UnknownMethod) as exc:
                if not task_id or self._position() != before:
                    raise
                # It does not know how to resume a task, as agents that know `execute` alone.
                if await self._look(peer):
                    return
                words = f"{self._upstream.name} does not say what became of the task: {exc.message}"
                raise Failed(words, reason=UNKNOWN_OUTCOME) from exc
        heard = self._position() != before
        if not lost:
            if not self._taken and (self._state is None or not self._state.begun):
                raise PeerMisbehaved(f"{self._upstream.name} said nothing")
            if heard:
                return  # a stream may end with a question, and the next one resumes after it
        if self._state is not None:
            self._state.connected(cursor=True)
        await self._upstream.lost(heard=heard)

    def _position(self) -> tuple[int, Task | None]:
        """Returns how far the remote task was received: up to the event with this number or, if its
        events have no numbers, as this task."""
        state = self._state
        if state is None:
            return self._taken[-1].seq if self._taken else 0, None
        return state.seq, None if state.seq else state.task()

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
            if run.keyed:
                keeps_address = self._upstream.keeps_address()
                await (self._remote.announce if keeps_address else run.begin_unseen)()
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

    async def _sends_again(self, peer: Peer) -> bool:
        """Returns whether the message is sent again when the agent is back. A caller without a task
        is told at once that the agent is away, unless it has a key and the message may have
        arrived: what it repeats must not be another message to the agent."""
        run, again = self._access.run, self._unsent or self._upstream.may_repeat(peer)
        if again and run.keyed and not self._unsent:
            await run.begin()
        return again and not run.unopened

    def _begin(self, peer: Peer, task_id: str) -> Awaitable[Begun]:
        """Sends the message, or goes on with the task that it has opened."""
        if task_id:
            ctx = replace(self._ctx, cursor=self._position()[0])
            return self._upstream.begin(peer, Watch(task_id=task_id), ctx)
        key = self._remote.key
        ctx = replace(self._ctx, idempotency_key=key)
        op = self._upstream.request(self._turn, key)
        return self._remote.begun(self._upstream.begin(peer, op, ctx))

    async def _mirror_all(self, begun: Awaitable[Begun], peer: Peer) -> bool:
        """Mirrors the events of a stream, and returns whether the task is over. What arrived
        together is mirrored together."""
        run = self._access.run
        batch, steps = await begun
        try:
            while batch is not None:
                entries = batch.entries
                if entries and self._state is None:
                    entries = await self._mirror_plain(entries, peer)
                    if self._over:
                        return True
                    mirrored = batch.entries[: len(batch.entries) - len(entries)]
                    self._count(sum(map(entry_size, mirrored)))
                    await run.throttle()
                if entries and not self._remote.id:
                    self._found(entries)
                for new in self._new(entries) if entries else ():
                    self._count(entry_size(new))
                    if self._copied(new):
                        await run.throttle()
                        continue
                    await self._mirror(new, peer)
                    if self._over:
                        return True
                batch = await anext(steps, None)
        finally:
            await steps.aclose()
        for new in self._state.ended() if self._state is not None else ():
            await self._mirror(new, peer)
        return self._over

    def _found(self, entries: Sequence[Entry]) -> None:
        """Records the remote task. One that is over already, and has asked nothing, is mirrored in
        one write, which this record is part of."""
        for first in entries:
            if isinstance(first, events.Stamped):
                over = is_whole(entries)
                self._remote.found(first.task_id, first.context_id, over=over)
                return

    def _new(self, entries: Sequence[Entry]) -> list[Entry]:
        """Returns what is new in these entries. A first snapshot is converted to the events that
        lead to it, because it may be the only form in which our caller ever sees them."""
        state = self._state
        if state is None:
            # Our own task has its limit. This one is for what is not part of it yet: a message that
            # arrives in pieces and never ends.
            most = self._access.run.shared.max_task_size
            held = TaskGrowth(most, "limits.max_task_size", self._count)
            state = self._state = StreamState(Watch(task_id=""), numbered=True, held=held)
            state.take(self._taken)
            self._taken = []
        first = entries[0]
        if (
            not state.begun
            and isinstance(first, events.Stamped)
            and isinstance(first.event, events.Snapshot)
            and tells_more(first.event.task)
        ):
            task = first.event.task
            empty = Task(id=task.id, context_id=task.context_id, status=Status(State.SUBMITTED))
            state.catch_up(empty)
        return state.take(entries)


def _unknown(name: str) -> str:
    return f"The connection to {name} was lost, and nobody can tell whether it got the message"
