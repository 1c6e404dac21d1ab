"""One open WebSocket: reads and writes within its limits, and ends when the other side exceeds one.

The subclasses define the meaning of the messages: `socket.Socket` speaks a dialect in which either
side may make calls, and a link of `dragoman.xiaoyi` is one of several over which an agent answers.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from dragoman.core.errors import DragomanError, TooLarge, TooMany
from dragoman.core.session import Frame
from dragoman.security.authentication import certificate_in
from dragoman.security.rate_limits import TokenBucket

from ..http.asgi import AsgiEvent, Receive, Scope, Send, headers_in
from ..http.connections import METER, SocketMeter
from ..server_context import ServerContext
from .reader import WebSocketReader
from .writer import WebSocketWriter

DONE, GOING, REFUSED, TOO_BIG, TOO_MUCH, LATER = 1000, 1001, 1008, 1009, 1008, 1013
"""The close codes (RFC 6455 §7.4.1)."""
FRAMING = 65_536
"""The bytes beside a message that may arrive before it is complete: frame headers, pings."""


class SocketLimits(Struct, frozen=True, kw_only=True):
    """The limits of the WebSockets at one path."""

    sockets: int = 1_000
    """The number of open WebSockets."""
    calls: int = 64
    """The number of running calls on one WebSocket."""
    messages_per_second: int = 50
    message_size: int = 1024 * 1024
    idle: float = 120.0
    """The seconds for which a WebSocket may be silent."""


class SocketConnection(ABC):
    """One open WebSocket, whichever side opened it."""

    def __init__(
        self,
        server: ServerContext,
        limits: SocketLimits,
        target: str,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        patient: bool = False,
    ) -> None:
        """With `patient`, the first message may take as long as every other."""
        self._server, self._limits = server, limits
        self._target = target
        self._headers = headers_in(scope["headers"])
        self._certificate = certificate_in(scope)
        self._reader = WebSocketReader(receive, server.loop)
        self._writer = WebSocketWriter(send, server.deadlines, server.limits.stall, self._cut)
        self.on_recognized: Callable[[], None] | None = None
        """A function that is called once, when the WebSocket is authenticated or closed."""
        self._reading: asyncio.Task[Any] | None = None
        self._is_cut = self.exceeded = False
        """Whether nothing can be written any more; whether the other side sent too much."""
        self._tasks: set[asyncio.Task[None]] = set()
        rate = limits.messages_per_second
        self._bucket = TokenBucket(rate, rate, server.loop.time())
        """The messages that may arrive now. As many as a second allows may arrive at once."""
        self._meter: SocketMeter | None = scope.get(METER)
        if self._meter is not None:
            self._meter.limit, self._meter.on_excess = server.limits.hello_size, self._exceed
        idle = limits.idle if patient else server.limits.hello_time
        self._deadline = server.loop.time() + idle
        """The time by which the next valid frame must arrive. Invalid ones do not count."""

    @abstractmethod
    async def _take(self, frame: Frame) -> bool:
        """Handles one message. Returns false if there were too many of them."""

    async def _end_with(self, error: DragomanError, code: int) -> int:
        """Sends the reason why the WebSocket is closed, if the dialect can express it. Returns the
        close code."""
        return code

    def recognize(self) -> None:
        """Gives the WebSocket its full limits, since its caller has been authenticated."""
        if self.on_recognized is not None:
            self.on_recognized()
            self.on_recognized = None
        self._deadline = self._server.loop.time() + self._limits.idle
        if self._meter is not None:
            self._meter.limit = self._limits.message_size + FRAMING

    def stay_open(self) -> None:
        """Lets the WebSocket be silent for the full time again."""
        self._deadline = self._server.loop.time() + self._limits.idle
        deadlines = self._server.deadlines
        if self._reading is not None and self._reading in deadlines.waits:
            deadlines.watch(self._reading, self._deadline)

    def close(self) -> None:
        """Stops reading and writing."""
        self.recognize()
        self._reader.close()
        self._writer.close()

    async def run(self) -> int:
        """Runs until the other side leaves or breaks a rule, and returns the close code."""
        server, loop = self._server, self._server.loop
        reading = self._reading = asyncio.current_task(loop)
        assert reading is not None  # noqa: S101  an ASGI app always runs in a task
        writing = loop.create_task(self._writer.run())
        try:
            return await self._read(reading)
        except asyncio.CancelledError:
            if not (server.deadlines.late(reading) or self._is_cut):
                raise
            reading.uncancel()
            return GOING
        finally:
            server.deadlines.waits.pop(reading, None)
            self._reading = None
            self._reader.close()
            # The agent's tasks go on; only their readers end with the WebSocket.
            for task in (writing, *self._tasks):
                task.cancel()
            await asyncio.wait((writing, *self._tasks))

    async def _read(self, reading: asyncio.Task[Any]) -> int:
        size, deadlines = self._limits.message_size, self._server.deadlines
        while True:
            deadlines.watch(reading, self._deadline)
            message = await self._reader.next()
            del deadlines.waits[reading]
            if message["type"] == "websocket.disconnect":
                return DONE
            if self._meter is not None:
                self._meter.heard += 1
            body = _body(message)
            if len(body) > size:
                return await self._end_with(TooLarge(limit=str(size)), TOO_BIG)
            # The next message is not read before this one is handled. Calls run in their own tasks,
            # but an answer that we cannot write, or pass to a slow reader of ours, stops the
            # reading. So the other side has to wait and nothing accumulates here.
            if not await self._take(Frame(body, self._target, self._headers)):
                return await self._end_with(TooMany("Too many messages; be slower."), TOO_MUCH)

    def _cut(self) -> None:
        """Stops reading, since nothing can be written any more."""
        self._is_cut = True
        if self._reading is not None:
            self._reading.cancel()

    def _exceed(self) -> None:
        self.exceeded = True
        self._cut()

    def _may_talk(self) -> bool:
        return not self._bucket.take(self._server.loop.time())

    async def say(self, body: bytes) -> None:
        """Writes a message, and waits while too many written bytes are unread."""
        self._writer.put(body)
        if self._writer.full:
            await self._writer.room()


def _body(message: AsgiEvent) -> bytes:
    text = message.get("text")
    return text.encode() if text is not None else message.get("bytes") or b""
