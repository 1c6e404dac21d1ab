"""A `Peer` that calls the other side of a WebSocket, on which both sides send requests.

The reader of the WebSocket passes the frames that answer our calls (`CallerSession.expects`) to
`hear`; our requests go out through `say`. Each call has a bounded queue: when its reader is slow,
`hear` waits and with it the whole WebSocket, so that memory does not grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from itertools import count
from typing import cast

from dragoman.core import session as signals
from dragoman.core.errors import PeerMisbehaved, PeerUnreachable, Unsupported
from dragoman.core.events import Stamped
from dragoman.core.model import Message
from dragoman.core.operations import AnyOperation, Operation, R, Streamed
from dragoman.core.peer import Batch, Context
from dragoman.core.session import CallerSession, Frame, Id, Signal

AHEAD, AHEAD_SIZE = 256, 4 * 1024 * 1024
"""The events that may wait for their reader, and the bytes of their frames. An event that is larger
waits alone."""
TIMEOUT = 330.0
"""The seconds for an answer; a blocking send may take `max_wait`."""


class Inbox:
    """The queue of the signals that arrived for one call."""

    def __init__(self) -> None:
        self._signals: asyncio.Queue[tuple[Signal, int]] = asyncio.Queue(AHEAD)
        self._size = 0
        self._room = asyncio.Event()
        self._closed = False

    async def put(self, signal: Signal, size: int) -> None:
        """Adds a signal, and waits while the queue is full. Drops it if the reader has left."""
        while self._size and self._size + size > AHEAD_SIZE and not self._closed:
            self._room.clear()
            await self._room.wait()
        if self._closed:
            return
        self._size += size
        await self._signals.put((signal, size))

    def end(self, fault: signals.Fault) -> None:
        """Adds the last signal, in place of another one if the queue is full."""
        while self._signals.full():
            self.get_nowait()
        self._signals.put_nowait((fault, 0))

    def close(self) -> None:
        """Drops the queue when its reader leaves. A pending `put` returns at once, since its task
        reads the WebSocket for all other calls too."""
        self._closed = True
        self._room.set()
        while not self._signals.empty():
            self.get_nowait()

    async def get(self) -> Signal:
        """Waits for the next signal and returns it."""
        return self._taken(await self._signals.get())

    def get_nowait(self) -> Signal:
        """Returns the next signal of a queue that is not empty."""
        return self._taken(self._signals.get_nowait())

    def empty(self) -> bool:
        """Returns whether no signal waits."""
        return self._signals.empty()

    def _taken(self, waiting: tuple[Signal, int]) -> Signal:
        signal, size = waiting
        self._size -= size
        self._room.set()
        return signal


class WebSocketPeer:
    """The other side of a WebSocket; implements `peer.Peer`."""

    def __init__(
        self,
        caller: CallerSession,
        say: Callable[[Frame], Awaitable[None]],
        prefix: str = "",
        *,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        """Its calls have ids of `new_id` or, if there is none, are counted behind the prefix."""
        self.caller = caller
        self._say = say
        numbers = count(1)
        self._new_id = new_id or (lambda: f"{prefix}{next(numbers)}")
        self._waiting: dict[Id, Inbox] = {}
        self.closed = False
        self.on_lost: Callable[[], None] = lambda: None
        """A function that is called as soon as the WebSocket is closed."""

    async def hear(self, frame: Frame) -> None:
        """Passes a frame on to the call that it answers."""
        await self.deliver(self.caller.receive(frame), len(frame.body))
        for again in self.caller.repeated():
            await self._say(again)

    async def deliver(self, told: Iterable[Signal], size: int) -> None:
        """Passes signals on to the calls that they answer; `size` is that of their frame."""
        for signal in told:
            inbox = self._waiting.get(signal.id)
            if inbox is not None:
                await inbox.put(signal, size)

    def lost(self) -> None:
        """Fails all pending calls, since the WebSocket is closed."""
        self.closed = True
        self.on_lost()
        for id, inbox in self._waiting.items():
            inbox.end(signals.Fault(id, PeerUnreachable("The connection was closed", sent=True)))

    async def tell(self, op: AnyOperation, ctx: Context) -> None:
        """Sends a notification and waits for no answer, since foreign agents send none."""
        self._check_open()
        self.caller.using(ctx)
        for frame in list(self.caller.send(signals.Call(None, op, silent=True))):
            await self._say(frame)

    async def ping(self, seconds: float = TIMEOUT) -> None:
        """Returns when the other side answers."""
        await self.ask(signals.Ping, None, seconds)

    async def ask(
        self,
        signal: Callable[[str], signals.Call | signals.Introduction | signals.Ping],
        ctx: Context | None = None,
        seconds: float = TIMEOUT,
    ) -> Signal:
        """Returns the answer to a call, an introduction or a ping."""
        id, frames = self.prepare(signal, ctx)
        return await self.say_prepared(id, frames, seconds)

    def prepare(
        self,
        signal: Callable[[str], signals.Call | signals.Introduction | signals.Ping],
        ctx: Context | None = None,
    ) -> tuple[str, list[Frame]]:
        """Encodes a request and returns its id and frames, also before the WebSocket is open.
        Raises `Unsupported` if the dialect has no method for it."""
        id = self._new_id()
        if ctx is not None:
            self.caller.using(ctx)
        frames = list(self.caller.send(signal(id)))
        if not frames:
            raise Unsupported()
        return id, frames

    async def say_prepared(self, id: str, frames: list[Frame], seconds: float = TIMEOUT) -> Signal:
        """Sends a prepared request and returns its answer."""
        inbox = await self._say_all(id, frames)
        try:
            async with asyncio.timeout(seconds):
                found = await inbox.get()
        except TimeoutError:
            raise PeerUnreachable("There was no answer in time", sent=True) from None
        finally:
            self._abandon(id)
        if isinstance(found, signals.Fault):
            raise found.error
        return found

    async def _say_all(self, id: str, frames: list[Frame]) -> Inbox:
        self._check_open()
        inbox = self._waiting[id] = Inbox()
        try:
            for frame in frames:
                await self._say(frame)
        except BaseException:
            self._abandon(id)
            raise
        return inbox

    def _abandon(self, id: Id) -> None:
        self._waiting.pop(id).close()
        self.caller.abandon(id)

    def _check_open(self) -> None:
        if self.closed:
            raise PeerUnreachable("The connection was closed")

    async def close(self) -> None:
        """Does nothing, since the code that opened the WebSocket closes it."""

    # Peer.

    async def call(self, op: Operation[R], ctx: Context, seconds: float = TIMEOUT) -> R:
        """Returns the result, or raises a `DragomanError`."""
        # `Operation[R]` binds the type of the result to the operation, which no wire expresses.
        asked = cast(AnyOperation, op)
        found = await self.ask(lambda id: signals.Call(id, asked), ctx, seconds)
        if not isinstance(found, signals.Result):
            raise PeerMisbehaved("This is not an answer")
        return cast(R, found.value)

    async def stream(
        self, op: Streamed, ctx: Context, silence: float | None = None
    ) -> AsyncGenerator[Batch, None]:
        """Yields the events as they arrive, and an empty batch after so many silent seconds."""
        async with aclosing(await self.begin(op, ctx, silence)) as steps:
            async for batch in steps:
                yield batch

    async def begin(
        self, op: Streamed, ctx: Context, silence: float | None = None
    ) -> AsyncGenerator[Batch, None]:
        """Sends the request, and returns what yields its events. It must be started or closed."""
        id, frames = self.prepare(lambda id: signals.Call(id, op, stream=True), ctx)
        inbox = await self._say_all(id, frames)
        return self._events(id, inbox, silence)

    def listen(self, adopt: Callable[[str], None]) -> AsyncGenerator[Batch, None]:
        """Returns what yields the events of a task of the other side, without a request for them:
        `adopt` has the caller's session expect them under the id that it is given."""
        self._check_open()
        id = self._new_id()
        inbox = self._waiting[id] = Inbox()
        adopt(id)
        return self._events(id, inbox, None)

    async def _events(
        self, id: Id, inbox: Inbox, silence: float | None
    ) -> AsyncGenerator[Batch, None]:
        try:
            while True:
                entries: list[Stamped | Message] = []
                try:
                    async with asyncio.timeout(silence):
                        signal = await inbox.get()
                except TimeoutError:
                    yield Batch((), last=False)
                    continue
                while True:
                    if isinstance(signal, signals.Fault):
                        raise signal.error
                    if isinstance(signal, signals.Update):
                        entries.append(signal.entry)
                    if isinstance(signal, signals.End):
                        yield Batch(entries, last=True)
                        return
                    if inbox.empty():
                        break
                    signal = inbox.get_nowait()
                yield Batch(entries, last=False)
        finally:
            self._abandon(id)
