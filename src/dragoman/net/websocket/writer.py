"""Writes to one WebSocket, in order. Frames that are ready together are written together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dragoman.core.errors import PeerUnreachable

from ..http.asgi import Send
from ..http.deadlines import Deadlines

AHEAD = 256 * 1024
"""The bytes that may wait for the other side. Code that has more to write waits for `room`."""


class WebSocketWriter:
    """The only writer of a WebSocket. `put` queues a frame at once. Code that writes much awaits
    `room` after it, so a slow reader slows the producers down instead of filling the queue."""

    def __init__(
        self, send: Send, deadlines: Deadlines, stall: float, broken: Callable[[], None]
    ) -> None:
        self._send: Send | None = send
        """The function that sends a message; None when the writer is closed."""
        self._deadlines, self._stall = deadlines, stall
        self._broken = broken
        """A function that is called when nothing more can be written."""
        self._line: list[bytes] = []
        self._put = self._said = 0
        """The bytes that were queued and written since the beginning."""
        self._news: asyncio.Future[None] | None = None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._error: Exception | None = None

    @property
    def full(self) -> bool:
        """Returns whether too many bytes wait for the other side."""
        return self._put - self._said >= AHEAD

    def put(self, body: bytes) -> None:
        """Queues a frame behind all earlier ones."""
        if self._error is not None:
            raise self._error
        self._line.append(body)
        self._put += len(body)
        if self._news is not None:
            self._news.set_result(None)
            self._news = None

    async def room(self) -> None:
        """Returns when everything that was queued so far has been written."""
        if self._said < self._put and self._error is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((self._put, waiter))
            await waiter
        if self._error is not None:
            raise self._error

    async def run(self) -> None:
        """Writes the queued frames until it is cancelled or the other side is gone."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  it is awaited in one
        try:
            while True:
                await self._write(task)
        except asyncio.CancelledError:
            late = self._deadlines.late(task)
            self._end(PeerUnreachable("The other side does not read" if late else "Closed"))
            if not late:
                raise
            task.uncancel()
        except Exception as exc:  # the server's own: whatever it is, the WebSocket is gone
            self._end(exc)
        finally:
            self._deadlines.waits.pop(task, None)

    async def _write(self, task: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        if not self._line:
            self._news = loop.create_future()
            await self._news
        line, self._line = self._line, []
        self._deadlines.watch(task, loop.time() + self._stall)
        # Some servers begin at the call of `send`, others when it is awaited; the order of the
        # frames is the same.
        assert self._send is not None  # noqa: S101  it is closed when this has ended
        for sent in [self._send(_frame(body)) for body in line]:
            await sent
        del self._deadlines.waits[task]
        self._said += sum(map(len, line))
        while self._waiting and self._waiting[0][0] <= self._said:
            _, waiter = self._waiting.pop(0)
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """Drops the function that sends: the threads of the server cannot end while it can still be
        called, and this writer may be referenced long after its WebSocket has closed."""
        self._send = None

    def _end(self, error: Exception) -> None:
        self._error = error
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(error)
        self._broken()


def _frame(body: bytes) -> dict[str, object]:
    return {"type": "websocket.send", "text": body.decode()}
