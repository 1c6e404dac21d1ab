"""Asking over a channel that both sides talk on: a caller session as a Peer.

Whoever reads the channel hands what is for us to `hear`; what we say goes out through `say`. Each
call has a queue of its own with a bound: a reader that is slow holds up its channel, nothing grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from itertools import count
from typing import cast

from dragoman.core.errors import PeerMisbehaved, PeerUnreachable, Unsupported
from dragoman.core.events import Stamped
from dragoman.core.model import Message
from dragoman.core.operations import AnyOperation, Operation, R, Streamed
from dragoman.core.peer import Batch, Context
from dragoman.core.session import (
    Call,
    End,
    Fault,
    Frame,
    Id,
    Introduction,
    Ping,
    Result,
    Signal,
    Update,
)
from dragoman.dialects.iat.caller import IatCaller

AHEAD = 256
"""Events that wait for their reader."""
TIMEOUT = 330.0
"""Seconds for an answer; a blocking send may take `max_wait`."""


class WebSocketPeer:
    """The peer at the other end of a WebSocket; implements `peer.Peer`."""

    def __init__(
        self, caller: IatCaller, say: Callable[[bytes], Awaitable[None]], prefix: str = ""
    ) -> None:
        self.caller = caller
        self._say = say
        self._names = (f"{prefix}{number}" for number in count(1))
        self._waiting: dict[Id, asyncio.Queue[Signal]] = {}
        self._gone = False
        self.on_lost: Callable[[], None] = lambda: None
        """For who wants to know at once that the channel is closed."""

    async def hear(self, frame: Frame) -> None:
        """Takes what is for a call of ours."""
        for signal in self.caller.receive(frame):
            queue = self._waiting.get(signal.id)
            if queue is not None:
                await queue.put(signal)
        again, self.caller.fell_back = self.caller.fell_back, ()
        for frame in again:
            await self._say(frame.body)

    def lost(self) -> None:
        """The channel is closed: nobody will answer any more."""
        self._gone = True
        self.on_lost()
        for id, queue in self._waiting.items():
            error = PeerUnreachable("The connection was closed", sent=True)
            while True:
                try:
                    queue.put_nowait(Fault(id, error))
                    break
                except asyncio.QueueFull:
                    queue.get_nowait()

    async def tell(self, op: AnyOperation, ctx: Context) -> None:
        """Says something that is not answered: a foreign agent answers no answer."""
        if self._gone:
            raise PeerUnreachable("The connection was closed")
        self.caller.using(ctx)
        for frame in list(self.caller.send(Call(None, op, silent=True))):
            await self._say(frame.body)

    async def ask(
        self, signal: Callable[[str], Call | Introduction | Ping], ctx: Context | None = None
    ) -> Signal:
        """The one answer to a call, a greeting or a ping."""
        async with asyncio.timeout(TIMEOUT):
            return await self._answer(*await self._begin(signal, ctx))

    async def say_prepared(self, id: Id, frame: Frame) -> Signal:
        """The one answer to what `caller` has put into a frame before the channel was open."""
        queue = self._waiting[id] = asyncio.Queue(AHEAD)
        await self._say(frame.body)
        return await self._answer(id, queue)

    async def _answer(self, id: Id, queue: asyncio.Queue[Signal]) -> Signal:
        try:
            told = await queue.get()
        finally:
            del self._waiting[id]
        if isinstance(told, Fault):
            raise told.error
        return told

    async def _begin(
        self, signal: Callable[[str], Call | Introduction | Ping], ctx: Context | None = None
    ) -> tuple[Id, asyncio.Queue[Signal]]:
        if self._gone:
            raise PeerUnreachable("The connection was closed")
        id = next(self._names)
        if ctx is not None:
            self.caller.using(ctx)
        frames: list[Frame] = list(self.caller.send(signal(id)))
        if not frames:
            raise Unsupported()
        queue = self._waiting[id] = asyncio.Queue(AHEAD)
        for frame in frames:
            await self._say(frame.body)
        return id, queue

    # Peer.

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """The answer, or a `DragomanError`."""
        # `Operation[R]` binds the answer's type to the operation's; the wire cannot say so.
        asked = cast(AnyOperation, op)
        told = await self.ask(lambda id: Call(id, asked), ctx)
        if not isinstance(told, Result):
            raise PeerMisbehaved("This is not an answer")
        return cast(R, told.value)

    async def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Every step, as it comes."""
        id, queue = await self._begin(lambda id: Call(id, op, stream=True), ctx)
        try:
            while True:
                entries: list[Stamped | Message] = []
                told = await queue.get()
                while True:
                    if isinstance(told, Fault):
                        raise told.error
                    if isinstance(told, Update):
                        entries.append(told.entry)
                    if isinstance(told, End):
                        yield Batch(entries, last=True)
                        return
                    if queue.empty():
                        break
                    told = queue.get_nowait()
                yield Batch(entries, last=False)
        finally:
            del self._waiting[id]
