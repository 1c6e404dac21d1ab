"""Reads the messages of one WebSocket in order, and calls `receive` ahead of need.

With a server whose `receive` begins at the call, each message costs a round trip between threads.
While messages follow each other closely, several are requested at once and arrive together.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, iscoroutine
from collections import deque
from typing import Any

from ..http.asgi import AsgiEvent, Receive

AHEAD = 16
"""The largest number of messages that are requested at once."""
QUICK = 0.005
"""The seconds between two messages that count as following each other closely."""


class WebSocketReader:
    """The only reader of a WebSocket. The server fulfils the calls of `receive` in their order."""

    def __init__(self, receive: Receive, loop: AbstractEventLoop) -> None:
        self._receive: Receive | None = receive
        self._now = loop.time
        self._asked: deque[Any] = deque()
        """The pending results of `receive`, which behave like futures with such a server."""
        self._latest = 0.0

    async def next(self) -> AsgiEvent:
        """Returns the next message."""
        assert self._receive is not None  # noqa: S101  nobody reads a socket that was closed
        first = self._asked.popleft() if self._asked else self._receive()
        if iscoroutine(first):  # it begins only when awaited, so reading ahead gains nothing
            return await first  # type: ignore[no-any-return]
        message: AsgiEvent = await first
        if message["type"] != "websocket.disconnect":
            before, self._latest = self._latest, self._now()
            quick = self._latest - before < QUICK
            more = 2 if quick and len(self._asked) < AHEAD - 1 else not self._asked
            self._asked.extend(self._receive() for _ in range(more))
        return message

    def close(self) -> None:
        """Cancels the pending calls of `receive`, with which the server could not close, and drops
        the function itself: the server's threads cannot end while anyone can still call it, and
        this socket may be referenced long after it has closed."""
        for asked in self._asked:
            asked.cancel()
        self._asked.clear()
        self._receive = None
