"""What comes in on one WebSocket, in order, asked for before it is needed.

Where `receive` begins at the call, each message is a round trip between threads of the server.
While messages come in quick succession several are asked for at once, and arrive together.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, iscoroutine
from collections import deque
from typing import Any

from ..http.asgi import Receive

AHEAD = 16
"""Messages asked for at once, at the most."""
QUICK = 0.005
"""Seconds between two messages that follow each other closely."""


class WebSocketReader:
    """The one reader of a socket. The server gives messages in the order in which it was asked."""

    def __init__(self, receive: Receive, loop: AbstractEventLoop) -> None:
        self._receive: Receive | None = receive
        self._now = loop.time
        self._asked: deque[Any] = deque()
        """What such a server gives: like futures."""
        self._latest = 0.0

    async def next(self) -> dict[str, Any]:
        """The next message."""
        assert self._receive is not None  # noqa: S101  nobody reads a socket that was closed
        first = self._asked.popleft() if self._asked else self._receive()
        if iscoroutine(first):  # it begins only here: there is nothing to gain
            return await first  # type: ignore[no-any-return]
        message: dict[str, Any] = await first
        if message["type"] != "websocket.disconnect":
            before, self._latest = self._latest, self._now()
            quick = self._latest - before < QUICK
            more = 2 if quick and len(self._asked) < AHEAD - 1 else not self._asked
            self._asked.extend(self._receive() for _ in range(more))
        return message

    def close(self) -> None:
        """Asks for nothing more: while something is asked for, the server cannot close. Nor can its
        threads end while anybody can still ask, and our socket may be known for long after."""
        for asked in self._asked:
            asked.cancel()
        self._asked.clear()
        self._receive = None
