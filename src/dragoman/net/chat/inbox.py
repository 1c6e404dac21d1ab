"""What a channel has received and nobody has heard yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from dragoman.core.errors import DragomanError

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

    async def wait_until_heard(self) -> None:
        """Returns when everything has been heard, and its marks are saved."""
        await self._queue.join()

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
            self._queue.task_done()
        if self._why is not None:
            raise self._why
