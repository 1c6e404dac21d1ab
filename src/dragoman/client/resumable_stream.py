"""Streams that survive broken connections: every event is delivered once and in order.

Theory. There are three ways to continue a stream, in this order of preference. If the agent numbers
its events, a new connection resumes after the last number. If it only has subscriptions, any event
of a new subscription means that the task has changed; the task is fetched, and `StreamState`
returns what is new in it. An event of such a subscription cannot be delivered itself: nothing says
whether the fetched task already contains it. If the agent has no subscriptions, the task is polled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from time import monotonic
from typing import Any, Protocol, TypeVar, cast

from msgspec.structs import replace

from dragoman.core.errors import (
    CallError,
    DragomanError,
    Forbidden,
    PeerUnreachable,
    Unauthenticated,
    UnknownMethod,
    Unsupported,
)
from dragoman.core.events import Asked, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import Message, Task
from dragoman.core.operations import GetTask, Operation, R, SendMessage, Streamed, Watch
from dragoman.core.peer import Batch, Begun, Context
from dragoman.core.stream_state import Entry, NoSnapshot, StreamState
from dragoman.core.task_size import TaskGrowth

from .limits import ClientLimits
from .retry import Patience, Pauses, interface_unusable, is_transient, not_executed

ALL_HISTORY = 1000
"""The number of history messages to request; 0.1 returns none without a number."""

T = TypeVar("T")


class Way(Protocol):
    """A transport to an agent."""

    def begin(self, op: Streamed, ctx: Context) -> Awaitable[Begun]:
        """Returns the first events of one connection, and the stream of all that follow."""


class Ways(Protocol):
    """The transports to an agent; `failover` implements it."""

    limits: ClientLimits
    streams: bool
    """Whether the agent declares streaming."""

    @property
    def numbered(self) -> bool:
        """Whether the agent numbers its events, so that a stream can resume after a number."""

    def pauses(self) -> Pauses:
        """Returns the delays between the attempts of one call or stream."""

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Makes one call, and retries it where that is safe."""

    def transports(self) -> Sequence[Way]:
        """Returns the transports, the preferred one first. The sequence never changes."""

    def prefer(self, transport: Any, failed: Mapping[Any, DragomanError]) -> None:
        """Makes this transport the preferred one, after those before it failed."""

    def names(self, op: Operation[Any]) -> bool:
        """Returns whether this send creates a task under an id that we chose."""

    async def find(self, op: SendMessage, ctx: Context) -> Task | None:
        """Returns the task with the id that the send chose, if it exists."""

    def may_repeat(self, op: Operation[Any], ctx: Context) -> bool:
        """Returns whether the operation is idempotent at this agent."""


class ResumableStream:
    """One stream over as many connections as it needs."""

    def __init__(self, ways: Ways, op: Streamed, ctx: Context) -> None:
        self._ways = ways
        self._op = op
        self._ctx = ctx
        cursor = (ctx.cursor or 0) if ways.numbered else 0
        growth = TaskGrowth(ways.limits.task_size, "ClientLimits.task_size")
        self.seen = StreamState(op, numbered=ways.numbered, cursor=cursor, growth=growth)
        self._polls = not ways.streams
        self._next_look = 0.0
        self._patience = Patience(ways.limits)
        self._doubted = False
        """Whether the agent responds to calls although its stream has delivered nothing so far."""
        self.connections = 0
        """The number of connections so far."""

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yields every event from the first to the last."""
        seen, pauses = self.seen, self._ways.pauses()
        while not self._polls:
            ended, error = False, None
            try:
                batch, steps = await first_connection(self._ways, *self._next())
                self.connections += 1
                try:
                    while batch is not None:
                        self._patience.heard()
                        self._doubted = False
                        seen.numbered = self._ways.numbered  # the response may have shown it
                        if seen.unsure:
                            new = await self._looked()
                        else:
                            new = seen.take(batch.entries)
                        if new:
                            pauses.count = 0
                        rests = seen.over or (seen.asks and _brings_to_rest(new))
                        yield Batch(new, rests)
                        if rests:
                            return
                        ended = batch.last
                        batch = await anext(steps, None)
                finally:
                    await steps.aclose()
            except NoSnapshot:
                self._polls = True
                break
            except DragomanError as exc:
                error = exc
                if self._lost(exc):
                    task = await self._ways.find(cast(SendMessage, self._op), self._ctx)
                    if task is not None:
                        yield Batch(seen.catch_up(task), False)
                        self._polls = True
                elif not self._goes_on(exc):
                    raise
                elif (last := await self._already_over(exc)) is not None:
                    yield Batch(last, True)
                    return
            if ended and (last := seen.ended()):
                yield Batch(last, True)
                return
            # An orderly end of the connection ends the stream if the task waits. A broken
            # connection ends it only if the stream would have ended at this point anyway.
            if seen.rests if ended else seen.asks:
                yield Batch([], True)
                return
            if not self._polls and self._patience.failed():
                await self._answers(error)
            if not self._polls:
                await pauses.wait(error)
        async with aclosing(self._looks()) as batches:
            async for batch in batches:
                yield batch

    async def _looked(self) -> list[Entry]:
        """Fetches the task and returns what is new in it.

        Other servers read the task for the first snapshot and subscribe to its events in no fixed
        order, so the next event may already be part of the snapshot, and nothing says whether it
        is. An event therefore only triggers this comparison.
        """
        await asyncio.sleep(self._next_look - monotonic())
        self._next_look = monotonic() + self._ways.limits.poll / 10
        return self.seen.catch_up(await self._task())

    async def _already_over(self, exc: DragomanError) -> list[Entry] | None:
        """Returns the events of a finished task whose first subscription broke, else None.

        Some agents break the connection where they should refuse to subscribe to a finished task
        (a2a-sdk 1.3.0 over REST of 0.3), and would do so every time.
        """
        if not isinstance(self._op, Watch) or self.seen.begun or not_executed(exc):
            return None
        try:
            task = await self._task()
        except DragomanError:
            return None
        return self.seen.catch_up(task) if task.state in FINAL else None

    async def _answers(self, error: DragomanError | None) -> None:
        """Checks that the agent still responds, and raises an error if it does not.

        A stream of a task without events looks like a stream of a dead server until the task is
        fetched. If the agent responds, the stream gets one more chance; after that, the task is
        polled.
        """
        why = error or PeerUnreachable(
            "The stream keeps ending before the task does", task_id=self.seen.task_id
        )
        if not self.seen.begun:
            raise why
        try:
            await self._task()
        except DragomanError:
            raise why from None
        self._patience.heard()
        self._polls, self._doubted = self._doubted, True

    async def _task(self) -> Task:
        """Fetches the current state of the task."""
        look = GetTask(task_id=self.seen.task_id, history_length=ALL_HISTORY)
        return await self._ways.call(look, replace(self._ctx, cursor=None, idempotency_key=""))

    def _next(self) -> tuple[Streamed, Context]:
        """Returns the operation of the next connection: the original one at first, then a
        subscription to the rest."""
        seen = self.seen
        if not seen.begun:
            # A send creates its task, so its stream starts with the first event. The stream of an
            # existing task may start after events that this client has not seen.
            seen.connected(cursor=seen.seq > 0 or isinstance(self._op, SendMessage))
            return self._op, self._ctx
        cursor = seen.seq or None
        seen.connected(cursor=cursor is not None)
        # The idempotency key belongs to the send, not to the subscription.
        ctx = replace(self._ctx, cursor=cursor, idempotency_key="")
        return Watch(task_id=seen.task_id), ctx

    def _lost(self, exc: DragomanError) -> bool:
        """Returns whether a send may have arrived, and its task can be found by its id."""
        return (
            not self.seen.begun
            and exc.retry
            and not not_executed(exc)
            and self._ways.names(self._op)
        )

    def _goes_on(self, exc: DragomanError) -> bool:
        """Returns whether the stream continues after this error, possibly by polling."""
        if not self.seen.begun:
            if self._refused(exc):
                self._polls = True
                return True
            again = isinstance(self._op, Watch) or self._ways.may_repeat(self._op, self._ctx)
            return is_transient(exc) if again else not_executed(exc)
        if is_transient(exc):
            return True
        # The subscription is refused: the agent has none, or the task has finished in the meantime.
        # Both are resolved by fetching the task.
        self._polls = isinstance(exc, CallError)
        return self._polls

    def _refused(self, exc: DragomanError) -> bool:
        """Returns whether only streaming is refused, so that the task can be had without it."""
        if isinstance(self._op, SendMessage):
            return type(exc) is Unsupported or isinstance(exc, UnknownMethod)
        return (
            isinstance(exc, CallError)
            and not exc.retry
            and not isinstance(exc, Unauthenticated | Forbidden)
        )

    async def _looks(self) -> AsyncGenerator[Batch, None]:
        """Polls the task until it ends or waits, and yields what is new."""
        seen, limits = self.seen, self._ways.limits
        pause = limits.poll
        ctx = replace(self._ctx, cursor=None)
        if not seen.begun and isinstance(self._op, SendMessage):
            # An answer to a question waits for its effect: until then the task would still seem to
            # wait for the answer.
            send = replace(self._op, wait=bool(self._op.message.task_id))
            answer = await self._ways.call(send, ctx)
            told = seen.take([answer]) if isinstance(answer, Message) else seen.catch_up(answer)
            yield Batch(told, seen.rests)
            if seen.rests:
                return
        pauses = self._ways.pauses()
        while True:
            try:
                task = await self._task()
            except DragomanError as exc:
                if not is_transient(exc) or self._patience.failed():
                    raise
                await pauses.wait(exc)
                continue
            self._patience.heard()
            pauses.count = 0
            new = seen.catch_up(task)
            yield Batch(new, seen.rests)
            if seen.rests:
                return
            pause = limits.poll if new else min(pause * 1.5, limits.poll * 10)
            await asyncio.sleep(pause)


async def first_usable(
    ways: Ways,
    op: Operation[Any],
    attempt: Callable[[Any], Awaitable[T]],
    failed: dict[Any, DragomanError] | None = None,
) -> T:
    """Returns the result of the first transport that works, which is preferred from then on. Those
    that have `failed` are left out."""
    failed = failed or {}
    for transport in ways.transports():
        if transport in failed:
            continue
        try:
            value = await attempt(transport)
        except DragomanError as exc:
            if not interface_unusable(exc, op):
                raise
            failed[transport] = exc
        else:
            if failed:
                ways.prefer(transport, failed)
            return value
    raise next(iter(failed.values()))  # there is at least one transport


async def first_connection(ways: Ways, op: Streamed, ctx: Context) -> Begun:
    """Opens one connection, over the first transport that works, and returns its first events and
    the stream of the others."""
    first = ways.transports()[0]
    try:
        return await first.begin(op, ctx)
    except DragomanError as exc:
        if not interface_unusable(exc, op):
            raise
        failed: dict[Any, DragomanError] = {first: exc}
    return await first_usable(ways, op, lambda way: way.begin(op, ctx), failed)


def _brings_to_rest(new: list[Entry]) -> bool:
    """Returns whether the last entry is a new event, and not the snapshot of a new connection. In
    some dialects a stream continues after a question; for our callers it ends there in every
    dialect, so that they can answer."""
    last = new[-1] if new else None
    return isinstance(last, Stamped) and isinstance(last.event, Asked | StateChanged)
