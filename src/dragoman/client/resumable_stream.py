"""Streams that survive: whatever happens to the connection, every event is told once, in order.

While the other side numbers its events, a new connection goes on behind the last number. Else it is
a new subscription, and whatever it tells means that the task is worth a look: `Seen` tells what is
new in that. Where there are no subscriptions, the task is looked at again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from time import monotonic
from typing import Any, Protocol, cast

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
from dragoman.core.model import Message, Task
from dragoman.core.operations import GetTask, Operation, R, SendMessage, Streamed, Watch
from dragoman.core.peer import Batch, Context, Peer
from dragoman.core.stream_state import Entry, NoSnapshot, StreamState

from .limits import ClientLimits
from .retry import Patience, Pauses, interface_unusable, is_transient, not_executed

ALL_HISTORY = 1000
"""0.1 tells none of it unless it is asked for a number."""


class Ways(Protocol):
    """The ways to an agent, as `Remote` has them."""

    limits: ClientLimits
    streams: bool
    """Whether the agent says that it has streams."""

    @property
    def numbered(self) -> bool:
        """Whether events have numbers from which a stream goes on."""

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """One call, tried again where that is safe."""

    def transports(self) -> Iterable[Peer]:
        """Each way, the preferred first."""

    def prefer(self, transport: Any, why: DragomanError) -> None:
        """This one works, those before it did not."""

    def names(self, op: Operation[Any]) -> bool:
        """Whether this opens a task under a name of ours."""

    async def find(self, op: SendMessage, ctx: Context) -> Task | None:
        """The task of that name."""

    def may_repeat(self, op: Operation[Any], ctx: Context) -> bool:
        """Whether doing this twice is doing it once."""


class ResumableStream:
    """One stream, over as many connections as it takes."""

    def __init__(self, ways: Ways, op: Streamed, ctx: Context) -> None:
        self._ways = ways
        self._op = op
        self._ctx = ctx
        cursor = (ctx.cursor or 0) if ways.numbered else 0
        self.seen = StreamState(op, numbered=ways.numbered, cursor=cursor)
        self._polls = not ways.streams
        self._next_look = 0.0
        self._patience = Patience(ways.limits)
        self._doubted = False
        """Whether the other side answers, but its stream has told nothing for long."""
        self.connections = 0
        """How many it took so far."""

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Every step from the first to the last."""
        seen, pauses = self.seen, Pauses(self._ways.limits)
        while not self._polls:
            ended, error = False, None
            try:
                async with aclosing(self._connection()) as batches:
                    async for batch in batches:
                        self._patience.heard()
                        self._doubted = False
                        seen.numbered = self._ways.numbered  # it may be known only now
                        if seen.unsure:
                            new = await self._looked()
                        else:
                            new = seen.take(batch.entries)
                        if new:
                            pauses.count = 0
                        asks = seen.asks and _brings_to_rest(new)
                        yield Batch(new, seen.over or asks)
                        if seen.over or asks:
                            return
                        ended = batch.last
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
            if ended and (last := seen.ended()):
                yield Batch(last, True)
                return
            # An orderly end counts where the task waits; a broken one where the stream would
            # have ended anyway.
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

    async def _connection(self) -> AsyncGenerator[Batch, None]:
        """One connection, over the first transport that works."""
        op, ctx = self._next()
        ways = self._ways
        why: DragomanError | None = None
        for transport in ways.transports():
            steps = transport.stream(op, ctx)
            try:
                try:
                    batch = await anext(steps, None)
                except DragomanError as exc:
                    if not interface_unusable(exc, op):
                        raise
                    why = why or exc
                    continue
                self.connections += 1
                if why is not None:
                    ways.prefer(transport, why)
                while batch is not None:
                    yield batch
                    batch = await anext(steps, None)
                return
            finally:
                await steps.aclose()
        assert why is not None  # noqa: S101  there is at least one transport
        raise why

    async def _looked(self) -> list[Entry]:
        """What is new in the task: an event only says that it is worth a look.

        Others read the task they begin with and subscribe in no fixed order, so what they tell
        next may be in it already, and nothing says whether it is.
        """
        await asyncio.sleep(self._next_look - monotonic())
        self._next_look = monotonic() + self._ways.limits.poll / 10
        return self.seen.catch_up(await self._task())

    async def _answers(self, error: DragomanError | None) -> None:
        """Raises if the other side does not. A task that has nothing to tell looks like a server
        that is gone, until one asks for it. Then the stream has another chance, and only one."""
        why = error or PeerUnreachable(
            "The stream ends again and again before the task does", task_id=self.seen.task_id
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
        """The task as it stands."""
        look = GetTask(task_id=self.seen.task_id, history_length=ALL_HISTORY)
        return await self._ways.call(look, replace(self._ctx, cursor=None, idempotency_key=""))

    def _next(self) -> tuple[Streamed, Context]:
        """What to ask for now: at first what was asked, later the rest of it."""
        seen = self.seen
        if not seen.begun:
            # What we send opens the stream; what others began may have told something already.
            seen.connected(cursor=seen.seq > 0 or isinstance(self._op, SendMessage))
            return self._op, self._ctx
        cursor = seen.seq or None
        seen.connected(cursor=cursor is not None)
        # The key belongs to the send, and a subscription is none.
        ctx = replace(self._ctx, cursor=cursor, idempotency_key="")
        return Watch(task_id=seen.task_id), ctx

    def _lost(self, exc: DragomanError) -> bool:
        """Whether a send may have arrived, and its name will tell."""
        return (
            not self.seen.begun
            and exc.retry
            and not not_executed(exc)
            and self._ways.names(self._op)
        )

    def _goes_on(self, exc: DragomanError) -> bool:
        """Whether there is another try after this; perhaps in another way."""
        if not self.seen.begun:
            if self._refused(exc):
                self._polls = True
                return True
            again = isinstance(self._op, Watch) or self._ways.may_repeat(self._op, self._ctx)
            return is_transient(exc) if again else not_executed(exc)
        if is_transient(exc):
            return True
        # The subscription is refused: there are none, or the task has finished meanwhile.
        self._polls = isinstance(exc, CallError)
        return self._polls

    def _refused(self, exc: DragomanError) -> bool:
        """Whether only the stream is refused, and the task may be had without."""
        if isinstance(self._op, SendMessage):
            return type(exc) is Unsupported or isinstance(exc, UnknownMethod)
        return (
            isinstance(exc, CallError)
            and not exc.retry
            and not isinstance(exc, Unauthenticated | Forbidden)
        )

    async def _looks(self) -> AsyncGenerator[Batch, None]:
        """The task, looked at until it rests."""
        seen, limits = self.seen, self._ways.limits
        pause = limits.poll
        ctx = replace(self._ctx, cursor=None)
        if not seen.begun and isinstance(self._op, SendMessage):
            # The answer to a question is waited for: until then the task would seem to wait on.
            send = replace(self._op, wait=bool(self._op.message.task_id))
            answer = await self._ways.call(send, ctx)
            told = seen.take([answer]) if isinstance(answer, Message) else seen.catch_up(answer)
            yield Batch(told, seen.rests)
            if seen.rests:
                return
        pauses = Pauses(limits)
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


def _brings_to_rest(new: list[Entry]) -> bool:
    """Whether something happened just now, other than that we began to listen. In some dialects a
    stream goes on behind a question; for our callers it ends there in every dialect, so that they
    can answer."""
    last = new[-1] if new else None
    return isinstance(last, Stamped) and isinstance(last.event, Asked | StateChanged)
