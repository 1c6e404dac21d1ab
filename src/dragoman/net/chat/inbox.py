"""What a channel has received and nobody has heard yet, and the pace at which it sends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

from dragoman.core.errors import DragomanError
from dragoman.security.rate_limits import TokenBucket

from .channel import ChatMessage, Cursor, MemoryCursor

WAITING = 1_000
"""The messages that may wait. Above that the channel reads no more, so that the server keeps
them."""


class ChatInbox:
    """A bounded queue between the connection, which comes and goes, and the one that hears.

    A mark is what the cursor has to hold so that everything up to there is not heard again. It is
    saved after everything before it has been heard.
    """

    def __init__(self, cursor: Cursor | None = None, size: int = WAITING) -> None:
        self._cursor = cursor or MemoryCursor()
        self._queue: asyncio.Queue[tuple[ChatMessage | None, str]] = asyncio.Queue(size)
        self._why: DragomanError | None = None
        self._ended = self._stopped = self._busy = False

    async def put(self, message: ChatMessage, mark: str = "") -> None:
        """Adds a message and its mark, as soon as there is room."""
        await self._queue.put((message, mark))

    async def note(self, mark: str) -> None:
        """Adds a mark without a message."""
        if self._queue.empty() and not self._busy:
            await self._cursor.save(mark)
        else:
            await self._queue.put((None, mark))

    def end(self, why: DragomanError | None = None) -> None:
        """Ends `hear` after what is in the queue, with an error if there is one."""
        self._ended, self._why = True, self._why or why
        if not self._queue.full():
            self._queue.put_nowait((None, ""))  # wakes the one that hears

    def stop(self) -> None:
        """Ends `hear` at once. What is in the queue is not heard."""
        self._stopped = True
        self.end()

    async def hear(self) -> AsyncGenerator[ChatMessage, None]:
        """Yields the messages. One counts as heard when the next one is asked for."""
        while not self._stopped and not (self._ended and self._queue.empty()):
            message, mark = await self._queue.get()
            if message is not None and not self._stopped:
                self._busy = True
                try:
                    yield message
                finally:
                    self._busy = False
            if mark and not self._stopped:
                await self._cursor.save(mark)
        if self._why is not None:
            raise self._why


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
