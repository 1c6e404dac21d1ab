"""A remote agent as a `Peer`: uses the best transport that works, and retries where that is safe.

Theory. A failed call may be repeated if it had no effect (it never arrived, or a rate limit refused
it), if it is idempotent by nature (it only reads), or if the agent can recognise the repetition (a
send with an idempotency key, to a server that declares support). Every other failure is raised,
because only the caller knows whether a repetition would do harm.

A2A 0.3 §5.6.3: if the preferred interface fails, another one of the card is tried. A transport
fails if nothing listens there, or if the server does not support the dialect. An error response of
an agent is a response, not a failure of the transport. An interface that could not be reached is
tried again after a while (`prefer_again`), so that a short outage does not decide for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, cast

from msgspec.structs import replace

from dragoman.core.card import Card, Extension
from dragoman.core.errors import (
    CallError,
    DragomanError,
    NotCancelable,
    PeerUnreachable,
    TaskNotFound,
    Unsupported,
    VersionUnsupported,
)
from dragoman.core.extensions import CURSOR, IDEMPOTENCY
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import State, Task
from dragoman.core.operations import (
    CancelTask,
    GetTask,
    Operation,
    R,
    SendMessage,
    SetHook,
    Streamed,
)
from dragoman.core.peer import ANYONE, Batch, Begun, Context, begin_stream
from dragoman.spans import Span, Tracer

from .limits import ClientLimits
from .resumable_stream import ALL_HISTORY, ResumableStream, first_connection, first_usable
from .retry import READS, Pauses, not_executed
from .transports.transport import Transport, with_extensions

RESTS = FINAL | WAITING | {State.UNKNOWN}


class FailoverPeer:
    """A `Peer` over the transports of one card, the preferred first."""

    def __init__(
        self,
        transports: Sequence[Transport],
        card: Card,
        limits: ClientLimits,
        *,
        declared: bool = True,
    ) -> None:
        self._by_preference = list(transports)
        self._transports = list(transports)
        """The same in the order in which they are tried now."""
        self._away: dict[Transport, float] = {}
        """The transports that could not be reached, and when each is tried again."""
        self.limits = limits
        self.on_retry: Callable[[DragomanError], object] | None = None
        """Called with the error of each attempt after which another one follows."""
        self.card = card
        self._declared = declared
        """Whether the card declares the extensions; otherwise the first response may."""
        if not declared:
            for each in transports:
                each.on_extensions = self._learn

    @property
    def transport(self) -> Transport:
        """The transport in use."""
        return self._transports[0]

    @property
    def card(self) -> Card:
        """The card of the agent."""
        return self._card

    @card.setter
    def card(self, card: Card) -> None:
        self._card = card
        declared = {extension.uri for extension in card.extensions}
        self._cursor = CURSOR in declared
        self.streams = card.streaming
        self.remembers = IDEMPOTENCY in declared
        """Whether the agent supports idempotency keys."""

    def _learn(self, extensions: Iterable[str]) -> None:
        """Records the extensions that the agent's response has shown as active."""
        known = {extension.uri for extension in self.card.extensions}
        asked = {CURSOR, IDEMPOTENCY} - known
        if new := asked.intersection(extensions):
            more = tuple(Extension(uri=uri) for uri in sorted(new))
            self.card = replace(self.card, extensions=(*self.card.extensions, *more))

    @property
    def numbered(self) -> bool:
        """Whether the agent numbers its events, so that a stream can resume after a number."""
        return self._cursor and not self._transports[0].dialect.names_tasks

    def context(self, ctx: Context) -> Context:
        """Returns the context with the extensions that the client always activates."""
        if not self._declared:
            return with_extensions(ctx, (CURSOR, IDEMPOTENCY))
        return with_extensions(ctx, (CURSOR,)) if self.numbered else ctx

    def may_repeat(self, op: Operation[Any], ctx: Context) -> bool:
        """Returns whether the operation is idempotent at this agent."""
        if isinstance(op, SendMessage):
            return self.remembers and bool(ctx.idempotency_key)
        return isinstance(op, READS) or (isinstance(op, SetHook) and bool(op.hook.hook_id))

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Returns the result, or raises a `DragomanError`."""
        ctx = self.context(ctx)
        pauses = self.pauses()
        repeated = False
        while True:
            try:
                value = await self._call(op, ctx)
                if isinstance(op, SendMessage) and op.wait and isinstance(value, Task):
                    return cast(R, await self._rested(op, value, ctx))
                return value
            except DragomanError as exc:
                if repeated and isinstance(op, CancelTask) and isinstance(exc, NotCancelable):
                    return cast(R, await self._canceled(op, ctx, exc))
                worth = self._worth(exc, op, ctx) or self.names(op)
                if not worth or not exc.retry or pauses.over:
                    raise
                if isinstance(op, SendMessage) and self.names(op) and not not_executed(exc):
                    task = await self.find(op, ctx)
                    if task is not None:
                        return cast(R, await self._rested(op, task, ctx))
                repeated = True
                await pauses.wait(exc)

    def _worth(self, exc: DragomanError, op: Operation[Any], ctx: Context) -> bool:
        return exc.retry and (not_executed(exc) or self.may_repeat(op, ctx))

    def names(self, op: Operation[Any]) -> bool:
        """Returns whether this send creates a task under an id that we chose."""
        return (
            self.transport.dialect.names_tasks
            and isinstance(op, SendMessage)
            and not op.message.task_id
        )

    async def find(self, op: SendMessage, ctx: Context) -> Task | None:
        """Returns the task that a send has created under our id, or None if it never arrived."""
        look = GetTask(task_id=op.open_as or op.message.message_id, history_length=ALL_HISTORY)
        try:
            return await self.call(look, ctx)
        except TaskNotFound:
            return None

    async def _rested(self, op: SendMessage, task: Task, ctx: Context) -> Task:
        """Waits until a task ends or asks a question, because not every server does so itself."""
        if not op.wait or task.state in RESTS:
            return task
        until, pause = monotonic() + self.limits.wait, self.limits.poll
        while task.state not in RESTS and monotonic() < until:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, self.limits.poll * 10)
            task = await self.call(GetTask(task_id=task.id), ctx)
        return task

    async def _canceled(self, op: CancelTask, ctx: Context, exc: DragomanError) -> Any:
        """Returns the task if it is canceled, because our first attempt may have done it."""
        task = await self._call(GetTask(task_id=op.task_id), ctx)
        if task.state is not State.CANCELED:
            raise exc
        return task

    async def _call(self, op: Operation[R], ctx: Context) -> R:
        if len(self._transports) == 1:
            return await self._transports[0].call(op, ctx)
        return await first_usable(self, op, lambda transport: transport.call(op, ctx))

    def transports(self) -> Sequence[Transport]:
        """Returns the transports in the order in which to try them. The sequence never changes."""
        if self._away:
            now = monotonic()
            self._away = {each: until for each, until in self._away.items() if until > now}
            self._order()
        return self._transports

    def prefer(self, transport: Transport, failed: Mapping[Transport, DragomanError]) -> None:
        """Makes a transport the preferred one after others failed: for a while if they could not be
        reached, and for good if the agent does not serve them. Those that only lack this one
        operation keep their place."""
        self._away.pop(transport, None)
        for each, why in failed.items():
            if isinstance(why, PeerUnreachable):
                self._away[each] = monotonic() + self.limits.prefer_again
            elif not isinstance(why, Unsupported) or isinstance(why, VersionUnsupported):
                self._by_preference.remove(each)
                self._by_preference.append(each)
        self._order()

    def _order(self) -> None:
        self._transports = sorted(self._by_preference, key=lambda each: each in self._away)

    def pauses(self) -> Pauses:
        """Returns the delays between the attempts of one call."""
        return Pauses(self.limits, self.on_retry)

    def follow(self, op: Streamed, ctx: Context) -> ResumableStream:
        """Returns a stream that survives broken connections, with its state."""
        return ResumableStream(self, op, self.context(ctx))

    def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Yields every event from the first to the last, even if the connection breaks."""
        return self.follow(op, ctx).batches()

    def begin(self, op: Streamed, ctx: Context) -> Awaitable[Begun]:
        """Returns the first events of a stream, and the stream of all that follow. It is for
        callers that resume a broken stream themselves, by the number of its last event; the stream
        of an agent that does not number its events is resumed here."""
        transports = self._transports
        first = transports[0]
        # In a dialect with conversations the stream goes on after a question, and an agent of
        # another vendor may have no other way to tell what comes then. Its events are counted by
        # our own session.
        goes_on = first.dialect.conversation is not None
        if not goes_on and (not self._cursor or not self.streams or first.dialect.names_tasks):
            return begin_stream(self.stream(op, ctx))
        if not self._declared:
            ctx = with_extensions(ctx, (CURSOR, IDEMPOTENCY))
        elif CURSOR not in ctx.extensions:
            ctx = replace(ctx, extensions=(*ctx.extensions, CURSOR))
        if len(transports) == 1:
            return first.begin(op, ctx)
        return first_connection(self, op, ctx)

    async def ping(self) -> None:
        """Returns when the agent answers. In a dialect without a ping it is asked for a task that
        does not exist."""
        try:
            await self.transport.ping()
        except Unsupported:
            with suppress(CallError):
                await self.transport.call(GetTask(task_id="ping"), self.context(ANYONE))

    async def close(self) -> None:
        """Closes all transports."""
        for transport in self._transports:
            await transport.close()


class TracedPeer(FailoverPeer):
    """A `FailoverPeer` that tells each call to a tracer, and the agent its span. `connect` makes
    one if the process has a tracer."""

    tracer: Tracer

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Returns the result, or raises a `DragomanError`."""
        with self.tracer.span(*self._about(op), parent=self._parent(ctx)) as span:
            return await super().call(op, replace(ctx, trace=span.traceparent))

    def follow(self, op: Streamed, ctx: Context) -> ResumableStream:
        """Returns a stream that survives broken connections, with its state."""
        return _TracedStream(self, op, self.context(ctx))

    async def begin(self, op: Streamed, ctx: Context) -> Begun:
        """Returns the first events of a stream, and the stream of all that follow."""
        if not (self.numbered and self.streams):
            return await super().begin(op, ctx)  # which follows the stream
        span = self.begin_span(op, ctx)
        try:
            first, rest = await super().begin(op, replace(ctx, trace=span.traceparent))
        except BaseException as exc:
            span.end(exc)
            raise
        return first, _until_end(rest, span)

    def begin_span(self, op: Streamed, ctx: Context) -> Span:
        """Returns the span of a stream."""
        return self.tracer.start(*self._about(op), parent=self._parent(ctx))

    def _about(self, op: Operation[Any]) -> tuple[str, Any]:
        return f"call {self.card.name} {type(op).__name__}", "client"

    def _parent(self, ctx: Context) -> str:
        return self.tracer.current() or ctx.trace


class _TracedStream(ResumableStream):
    async def batches(self) -> AsyncGenerator[Batch, None]:
        ways = self._ways
        assert isinstance(ways, TracedPeer)  # noqa: S101  `follow` made this
        span = ways.begin_span(self._op, self._ctx)
        self._ctx = replace(self._ctx, trace=span.traceparent)
        rest = _until_end(super().batches(), span)
        try:
            async for batch in rest:
                yield batch
        finally:
            await rest.aclose()


async def _until_end(
    batches: AsyncGenerator[Batch, None], span: Span
) -> AsyncGenerator[Batch, None]:
    error: BaseException | None = None
    try:
        async for batch in batches:
            yield batch
    except Exception as exc:
        error = exc
        raise
    finally:
        await batches.aclose()
        span.end(error)
