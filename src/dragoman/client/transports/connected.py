"""Calls an agent that is connected in another way than by an address: over a link that it opened,
or in a chat room."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from dragoman.core.errors import Unsupported
from dragoman.core.operations import Operation, R, Streamed
from dragoman.core.peer import ANYONE, Batch, Begun, Context, Peer, begin_stream
from dragoman.core.session import Signal

from ..credentials import Credentials
from .transport import Asking, Destination, Transport


class ConnectedTransport(Transport):
    """Passes the calls to a `Peer` that has the connection."""

    def __init__(
        self,
        to: Destination,
        peer: Callable[[], Awaitable[Peer]],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        """`peer` waits for the connection, and returns the agent."""
        super().__init__(to)
        self._peer, self._close = peer, close

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Returns the result, or raises a `DragomanError`."""
        return await (await self._peer()).call(op, ctx)

    async def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Yields the events of a task."""
        async for batch in (await self._peer()).stream(op, ctx):
            yield batch

    async def ping(self) -> None:
        """Returns when the agent is connected."""
        await self._peer()

    async def close(self) -> None:
        """Ends the connection."""
        await self._close()

    async def _answer(
        self, make: Callable[[Any], Asking], ctx: Context, who: Credentials
    ) -> Signal:
        raise Unsupported("This connection has no word for this.")

    def _begin(self, op: Streamed, ctx: Context, who: Credentials) -> Awaitable[Begun]:
        return begin_stream(self.stream(op, ctx if ctx is not None else ANYONE))
