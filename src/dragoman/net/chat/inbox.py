"""What a channel has received and nobody has heard yet, and the pace at which it sends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

from dragoman.core.errors import DragomanError
from dragoman.security.rate_limits import TokenBucket

from .channel import ChatMessage

WAITING = 1_000
"""The messages that may wait. Above that the channel reads no more, so that the server keeps
them."""

Heard = Callable[[], Awaitable[None]]


class ChatInbox:
    """A bounded queue between the connection, which comes and goes, and the one that hears."""

    def __init__(self, size: int = WAITING) -> None:
        self._queue: asyncio.Queue[tuple[ChatMessage, Heard | None] | None] = asyncio.Queue(size)
        self._end: DragomanError | None = None
        self._closed = False

    async def put(self, message: ChatMessage, heard: Heard | None = None) -> None:
        """Adds a message, as soon as there is room. `heard` is called when it has been heard."""
        await self._queue.put((message, heard))

    def close(self, why: DragomanError | None = None) -> None:
        """Ends `hear` after what is in the queue, with an error if there is one."""
        if self._closed:
            return
        self._closed, self._end = True, why
        if not self._queue.full():
            self._queue.put_nowait(None)  # wakes the one that hears

    async def hear(self) -> AsyncGenerator[ChatMessage, None]:
        """Yields the messages. One counts as heard when the next one is asked for."""
        while not (self._closed and self._queue.empty()):
            found = await self._queue.get()
            if found is None:
                break
            message, heard = found
            yield message
            if heard is not None:
                await heard()
        if self._end is not None:
            raise self._end


class Pace:
    """Lets one message pass after the other, at most so many per second in the long run.

    The messages leave in the order of the calls: `asyncio.Lock` is fair.
    """

    def __init__(self, per_second: float, burst: int) -> None:
        self._bucket = TokenBucket(burst, per_second, time.monotonic())
        self._lock = asyncio.Lock()
        self._not_before = 0.0

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        try:
            await self.wait()
        except BaseException:
            self._lock.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()

    async def wait(self) -> None:
        """Takes the place of one more message. It is for the one that has entered."""
        while True:
            now = time.monotonic()
            pause = max(self._not_before - now, 0.0) or self._bucket.take(now)
            if not pause:
                return
            await asyncio.sleep(pause)

    def hold(self, seconds: float) -> None:
        """Lets nothing pass for a while, since the server asks for it."""
        self._not_before = max(self._not_before, time.monotonic() + seconds)
