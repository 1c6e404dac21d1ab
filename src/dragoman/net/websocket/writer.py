"""What is said on one WebSocket: in order, and what is ready together leaves together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dragoman.core.errors import PeerUnreachable

from ..http.asgi import Send
from ..http.deadlines import Deadlines

AHEAD = 256 * 1024
"""Bytes that may wait for the other side. A caller that has more to say waits for `room`."""


class WebSocketWriter:
    """The one writer of a socket. A frame is put in line at once. A caller that says much waits for
    `room` behind it: so a slow reader slows down those who write to it, and nothing piles up."""

    def __init__(
        self, send: Send, deadlines: Deadlines, stall: float, broken: Callable[[], None]
    ) -> None:
        self._send: Send | None = send
        """None when it is closed."""
        self._deadlines, self._stall = deadlines, stall
        self._broken = broken
        """Called when nothing more can be said."""
        self._line: list[bytes] = []
        self._put = self._said = 0
        """Bytes, from the beginning."""
        self._news: asyncio.Future[None] | None = None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._error: Exception | None = None

    @property
    def full(self) -> bool:
        """Whether the other side is far behind."""
        return self._put - self._said >= AHEAD

    def put(self, body: bytes) -> None:
        """Says this after all that was said before."""
        if self._error is not None:
            raise self._error
        self._line.append(body)
        self._put += len(body)
        if self._news is not None:
            self._news.set_result(None)
            self._news = None

    async def room(self) -> None:
        """Returns when all that was put in line so far is said."""
        if self._said < self._put and self._error is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((self._put, waiter))
            await waiter
        if self._error is not None:
            raise self._error

    async def run(self) -> None:
        """Says what is in line, until it is cancelled or the other side is gone."""
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
        except Exception as exc:  # the server's: whatever it is, the socket is gone
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
        # Some servers begin at the call, some when it is awaited; the order is the same.
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
        """Says nothing more: the threads of the server live as long as anybody can still send, and
        our socket may be known for long after."""
        self._send = None

    def _end(self, error: Exception) -> None:
        self._error = error
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(error)
        self._broken()


def _frame(body: bytes) -> dict[str, object]:
    return {"type": "websocket.send", "text": body.decode()}
