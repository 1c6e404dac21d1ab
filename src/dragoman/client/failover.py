"""An agent elsewhere as a `Peer`: the best transport that works, tried again where that is safe.

Theory. A call that failed may be repeated if it did nothing (it never arrived, or was refused as
too much), if doing it twice is doing it once (reading), or if the other side can tell that it has
it already (a send with an idempotency key, to a server that declares it). Everything else that
broke on the way is told to the caller, who knows what it would mean.

Spec 0.3 §5.6.3: if the preferred way fails, another one of the card is tried. A transport fails
when nobody is there, or when what is there does not speak the dialect; an answer that says no is
an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from time import monotonic
from typing import Any, cast

from msgspec.structs import replace

from dragoman.core.card import Card, Extension
from dragoman.core.errors import (
    DragomanError,
    NotCancelable,
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
from dragoman.core.peer import Batch, Context

from .limits import ClientLimits
from .resumable_stream import ALL_HISTORY, ResumableStream
from .retry import READS, Pauses, interface_unusable, not_executed
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
        self._transports = list(transports)
        self.limits = limits
        self.card = card
        self._declared = declared
        """Whether the card says which extensions there are. Else the first answer may."""
        if not declared:
            for each in transports:
                each.on_extensions = self._learn

    @property
    def transport(self) -> Transport:
        """The one in use."""
        return self._transports[0]

    @property
    def card(self) -> Card:
        """What the agent says about itself."""
        return self._card

    @card.setter
    def card(self, card: Card) -> None:
        self._card = card
        declared = {extension.uri for extension in card.extensions}
        self._cursor = CURSOR in declared
        self.streams = card.streaming
        self.remembers = IDEMPOTENCY in declared
        """Whether a send with the same key is the same send."""

    def _learn(self, extensions: Iterable[str]) -> None:
        """The other side shows that it has these, of those that we asked for."""
        known = {extension.uri for extension in self.card.extensions}
        asked = {CURSOR, IDEMPOTENCY} - known
        if new := asked.intersection(extensions):
            more = tuple(Extension(uri=uri) for uri in sorted(new))
            self.card = replace(self.card, extensions=(*self.card.extensions, *more))

    @property
    def numbered(self) -> bool:
        """Whether events have numbers from which a stream goes on."""
        return self._cursor and not self.transport.dialect.names_tasks

    def context(self, ctx: Context) -> Context:
        """What we always activate, where it is understood."""
        if not self._declared:
            return with_extensions(ctx, (CURSOR, IDEMPOTENCY))
        return with_extensions(ctx, (CURSOR,)) if self.numbered else ctx

    def may_repeat(self, op: Operation[Any], ctx: Context) -> bool:
        """Whether doing this twice is doing it once."""
        if isinstance(op, SendMessage):
            return self.remembers and bool(ctx.idempotency_key)
        return isinstance(op, READS) or (isinstance(op, SetHook) and bool(op.hook.hook_id))

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """The answer, or a `DragomanError`."""
        ctx = self.context(ctx)
        pauses = Pauses(self.limits)
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
                if not worth or not exc.retry or pauses.count >= self.limits.retries:
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
        """Whether this opens a task under a name of ours, by which it can be found."""
        return (
            self.transport.dialect.names_tasks
            and isinstance(op, SendMessage)
            and not op.message.task_id
        )

    async def find(self, op: SendMessage, ctx: Context) -> Task | None:
        """The task that a send has opened under our name; None: it never arrived."""
        look = GetTask(task_id=op.open_as or op.message.message_id, history_length=ALL_HISTORY)
        try:
            return await self.call(look, ctx)
        except TaskNotFound:
            return None

    async def _rested(self, op: SendMessage, task: Task, ctx: Context) -> Task:
        """As a send that waits should be answered: not every server does it."""
        if not op.wait or task.state in RESTS:
            return task
        until, pause = monotonic() + self.limits.wait, self.limits.poll
        while task.state not in RESTS and monotonic() < until:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, self.limits.poll * 10)
            task = await self.call(GetTask(task_id=task.id), ctx)
        return task

    async def _canceled(self, op: CancelTask, ctx: Context, exc: DragomanError) -> Any:
        """Our first try may have been the one that canceled it."""
        task = await self._call(GetTask(task_id=op.task_id), ctx)
        if task.state is not State.CANCELED:
            raise exc
        return task

    async def _call(self, op: Operation[R], ctx: Context) -> R:
        if len(self._transports) == 1:
            return await self._transports[0].call(op, ctx)
        first: DragomanError | None = None
        for transport in self.transports():
            try:
                value = await transport.call(op, ctx)
            except DragomanError as exc:
                if not interface_unusable(exc, op):
                    raise
                first = first or exc
            else:
                if first is not None:
                    self.prefer(transport, first)
                return value
        assert first is not None  # noqa: S101  there is at least one transport
        raise first

    def transports(self) -> Iterator[Transport]:
        """The transports to try, in order."""
        return iter(tuple(self._transports))

    def prefer(self, transport: Transport, why: DragomanError) -> None:
        """Puts a transport first that works where others did not, unless the others only lack this
        one operation."""
        if not isinstance(why, Unsupported) or isinstance(why, VersionUnsupported):
            self._transports.sort(key=lambda each: each is not transport)

    def follow(self, op: Streamed, ctx: Context) -> ResumableStream:
        """A stream that survives, and what was seen of it."""
        return ResumableStream(self, op, self.context(ctx))

    async def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Every step from the first to the last, whatever happens to the connection."""
        async with aclosing(self.follow(op, ctx).batches()) as batches:
            async for batch in batches:
                yield batch

    async def close(self) -> None:
        """Ends what the transports hold."""
        for transport in self._transports:
            await transport.close()
