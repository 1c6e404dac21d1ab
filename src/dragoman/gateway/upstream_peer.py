"""An agent elsewhere at one of its addresses, for one task: its calls are timed and counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.core.card import Card
from dragoman.core.errors import DragomanError, PeerUnreachable, Unauthenticated
from dragoman.core.operations import Operation, R, Streamed
from dragoman.core.peer import Batch, Begun, Context, batches_of
from dragoman.files.transfer import RelayedFiles

from .token_exchange import ActingFor
from .upstream_address import UpstreamAddress, failure_reason
from .upstream_connections import ConnectedAgent

if TYPE_CHECKING:
    from .upstream_pool import UpstreamPool


class UpstreamPeer:
    """A `Peer`, which has a place at an address until it is released. It is its own context, which
    frees the place and the connection."""

    agent: ConnectedAgent
    card: Card
    """The card of the agent, as it was when the task came here."""

    def __init__(
        self,
        pool: UpstreamPool,
        address: UpstreamAddress,
        way: AbstractAsyncContextManager[ConnectedAgent],
        acting: ActingFor | None = None,
    ) -> None:
        self._pool, self._address = pool, address
        self._way, self._acting = way, acting
        self.label = address.label
        """Names the address, without secrets."""
        self._has_place = True
        self.decided = False
        """Whether it is known that the address answers, or that it fails."""
        self.files: RelayedFiles | None = None
        """Converts files, if the task has any."""

    def use(self, agent: ConnectedAgent) -> UpstreamPeer:
        """Takes over the agent, once it is connected."""
        self.agent, self.card = agent, agent.card
        return self

    async def __aenter__(self) -> UpstreamPeer:
        return self

    @property
    def dialect(self) -> str:
        """The dialect in use."""
        return self.agent.dialect

    @property
    def remembers(self) -> bool:
        """Whether the agent recognises a repeated message by its idempotency key."""
        return self.agent.remembers

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Returns the result, or raises a `DragomanError`."""
        if self.files is not None:
            op = await self.files.sent(op)
        if self._acting is not None:
            ctx = replace(ctx, bearer=await self._acting.token())
        began = monotonic()
        try:
            value = await self.agent.call(op, ctx)
        except DragomanError as exc:
            self._refused(exc, ctx)
            self._failed(exc, began, heard=False)
            raise
        self._answered(began)
        return value if self.files is None else await self.files.result(value)

    def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Yields the events of a task. The first must come in time."""
        return batches_of(self.begin(op, ctx))

    async def begin(self, op: Streamed, ctx: Context) -> Begun:
        """Returns the first events of a task, which must come in time, and the stream of all that
        follow, which has to be closed."""
        files = self.files
        if files is not None:
            op = await files.sent(op)
        if self._acting is not None:
            ctx = replace(ctx, bearer=await self._acting.token())
        pool, task, began = self._pool, None, monotonic()
        timeout = pool.answer_timeout
        if self.card.streaming:  # others answer when their work is done
            task = timeout.begin(began)
        try:
            batch, steps = await self.agent.begin(op, ctx)
        except DragomanError as exc:
            self._refused(exc, ctx)
            self._failed(exc, began, heard=False)
            raise
        except asyncio.CancelledError:
            if task is None or not timeout.is_late(task):
                raise
            late = PeerUnreachable(
                f"{pool.name} did not answer within {timeout.seconds} s", sent=True
            )
            self._failed(late, began, heard=False)
            raise late from None
        finally:
            if task is not None:
                timeout.end(task)
        self.decided = True
        pool.answered(self._address, began)
        if batch is None or (batch.last and files is None):
            return batch, steps
        convert = files.received if files is not None and files.up is not None else None
        rest = self._rest(steps, ctx, began, convert, batch)
        return await anext(rest), rest

    async def _rest(
        self,
        steps: AsyncGenerator[Batch, None],
        ctx: Context,
        began: float,
        convert: Callable[[Batch], Awaitable[Batch]] | None,
        batch: Batch | None,
    ) -> AsyncGenerator[Batch, None]:
        """Yields this batch and all that follow, and counts what goes wrong."""
        try:
            while batch is not None:
                yield batch if convert is None else await convert(batch)
                batch = await anext(steps, None)
        except DragomanError as exc:
            self._refused(exc, ctx)
            self._failed(exc, began, heard=True)
            raise
        finally:
            await steps.aclose()

    def _refused(self, exc: DragomanError, ctx: Context) -> None:
        if isinstance(exc, Unauthenticated) and self._acting is not None and ctx.bearer is not None:
            self._acting.refused(ctx.bearer)

    def _answered(self, began: float) -> None:
        self.decided = True
        self._pool.answered(self._address, began)

    def _failed(self, exc: DragomanError, began: float, *, heard: bool) -> None:
        reason = failure_reason(exc, heard=heard)
        if reason:
            self.decided = True
            self._pool.failed(self._address, reason, exc)
        elif not heard:
            self._answered(began)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Frees the place while the agent waits for an answer of our caller. Afterwards it goes on
        whether or not there is a place, since nobody can stop it."""
        if not self._has_place:
            yield
            return
        self.release()
        try:
            yield
        finally:
            self._address.in_flight += 1
            self._has_place = True

    def leave(self, *error: object) -> Coroutine[Any, Any, bool | None]:
        """Frees the place and, when it is awaited, the connection."""
        self.release()
        return self._way.__aexit__(None, None, None)

    __aexit__ = leave

    def release(self) -> None:
        """Frees the place."""
        if self._has_place:
            self._has_place = False
            if not self.decided:
                self._pool.undecided(self._address)
            self._pool.left(self._address)
