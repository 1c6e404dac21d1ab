"""Reads the body of a request within its limits, and drains the body of a refused request.

Theory. A request may be refused at any point: because of its headers, because of its size, or
halfway through its body because it takes too long. Over HTTP/1 the server then closes a connection
whose request was answered before all of it arrived, and a client that has not noticed this would
lose its next request. Over HTTP/2 the rest of the request is reset (RFC 9113 §8.1), which httpx
treats as a failure, so that its caller never learns why it was refused. Therefore a small rest is
read, and the response to a longer one announces that the connection will be closed. HTTP/2 has no
such announcement: there more is read, and only beyond that the caller sees a reset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from dragoman.core.errors import TooLarge, TooSlow, Unauthenticated, Unparseable
from dragoman.settings import Limits

from ..server_context import ServerContext
from .asgi import Header, Receive, Scope

CLOSE: Header = (b"connection", b"close")
LEFT_SIZE, LEFT_TIME = 65_536, 2.0
"""The maximum number of bytes of a refused body that are read, and the maximum time in seconds."""
LEFT_HTTP2 = 16 * LEFT_SIZE
"""The maximum number of bytes over HTTP/2. At most `LEFT_SIZE` of them are kept in memory."""
LET_GO = 0.1
"""The seconds in which Granian's thread notices that we no longer wait for more of a body. If the
response is complete before that, the connection stays open until it is found to be idle."""
Recognized = Callable[[], Awaitable[bool]]
"""Returns whether the sender of a body is known before the body has been read."""


class RequestBody:
    """The body of one request, while it arrives."""

    __slots__ = (
        *("_broken", "_cut", "_ended", "_have"),
        *("_headers", "_http1", "_parts", "_receive", "_size"),
    )

    def __init__(self, scope: Scope, receive: Receive, headers: Mapping[str, str]) -> None:
        self._receive = receive
        self._headers = headers
        declared = headers.get("content-length", "")
        self._size = int(declared) if declared.isdigit() and len(declared) < 20 else -1
        """The declared size, or -1 if there is none."""
        self._http1 = scope["http_version"] in ("1.1", "1.0")
        """Whether a body of known length ends with its last byte. Over HTTP/2 the end is a frame of
        its own."""
        self._have = 0
        self._parts: list[bytes] = []
        self._ended = self._broken = self._cut = False

    async def read(self, server: ServerContext, recognized: Recognized | None = None) -> bytes:
        """Reads and returns the whole body, within its limits of size and time.

        `recognized` is given if only the body authenticates its sender. It is called when the body
        does not arrive at once, or is declared to be large. The body of an unknown sender has the
        same limits of size and time as a connection without a request.
        """
        limits, deadlines, size = server.limits, server.deadlines, self._size
        if size > limits.body_size:
            raise TooLarge(limit=str(limits.body_size))
        if recognized is not None and size > limits.hello_size:
            if not await recognized():
                raise _unrecognized(limits)
            recognized = None
        stranger = recognized is not None
        most = min(limits.hello_size, limits.body_size) if stranger else limits.body_size
        whole = size if self._http1 else -1
        receive, parts, loop = self._receive, self._parts, server.loop
        task = asyncio.current_task(loop)
        assert task is not None  # noqa: S101  an ASGI app always runs in a task
        began = now = loop.time()
        last = began + (limits.hello_time if stranger else limits.body_time)
        have = 0
        try:
            while True:
                deadlines.watch(task, min(now + limits.body_idle, last))
                message = await receive()
                if message["type"] == "http.disconnect":
                    self._broken = True
                    raise Unparseable("The request ended before its body did.")
                body: bytes = message.get("body", b"")
                have += len(body)
                # Granian reports the end in a separate message; with a known length we need not
                # wait for it.
                ended = have == whole or not message.get("more_body", False)
                if ended and not parts and recognized is None and have <= most:
                    return body
                parts.append(body)
                self._have, self._ended = have, ended
                if recognized is not None and (have > most or not ended):
                    deadlines.waits.pop(task, None)  # the client is not to blame for this time
                    stranger, recognized = not await recognized(), None
                    if not stranger:
                        most, last = limits.body_size, began + limits.body_time
                if have > most:
                    raise _unrecognized(limits) if stranger else TooLarge(limit=str(most))
                if ended:
                    whole_body = b"".join(parts)
                    parts.clear()  # or they would stay in memory until the call is answered
                    return whole_body
                now = loop.time()
        except asyncio.CancelledError:
            if not deadlines.late(task):
                raise
            task.uncancel()
            self._broken = self._cut = True
            raise TooSlow() from None
        finally:
            deadlines.waits.pop(task, None)

    async def read_within(self, most: int, seconds: float) -> bytes:
        """Reads and returns the whole body within a size and a time, in an app that is not served
        by our own server."""
        if self._size > most:
            raise TooLarge(limit=str(most))
        try:
            async with asyncio.timeout(seconds):
                while not self._ended:
                    await self._next(most)
                    if self._have > most:
                        raise TooLarge(limit=str(most))
                    if self._broken:
                        raise Unparseable("The request ended before its body did.")
        except TimeoutError:
            self._broken = self._cut = True
            raise TooSlow() from None
        return b"".join(self._parts)

    async def drain(self) -> tuple[bytes, tuple[Header, ...]]:
        """Reads the rest of the body of a refused request. Returns the whole body if all of it
        arrived and it is small, and the headers to add to the response if it is too long to be
        read."""
        if not self._ended and not self._broken:
            await self._drain()
        if self._ended:
            return b"".join(self._parts) if self._have <= LEFT_SIZE else b"", ()
        if self._cut:  # it took too long: we stopped in the middle of a wait for more of it
            await asyncio.sleep(LET_GO)
        return b"", (CLOSE,) if self._http1 else ()

    async def _drain(self) -> None:
        size, most = self._size, LEFT_SIZE if self._http1 else LEFT_HTTP2
        if size == 0 or (self._http1 and size < 0 and "transfer-encoding" not in self._headers):
            self._ended = True
            return
        try:
            async with asyncio.timeout(LEFT_TIME):
                while not (self._ended or self._broken) and max(self._have, size) <= most:
                    await self._next(LEFT_SIZE)
        except TimeoutError:
            self._cut = True

    async def _next(self, most: int) -> None:
        """Receives the next message; nothing beyond `most` bytes is kept."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._broken = True
            return
        body: bytes = message.get("body", b"")
        self._have += len(body)
        if self._have <= most:
            self._parts.append(body)
        else:
            self._parts.clear()
        whole = self._size if self._http1 else -1
        self._ended = self._have == whole or not message.get("more_body", False)


def _unrecognized(limits: Limits) -> Unauthenticated:
    return Unauthenticated(
        f"A message of more than {limits.hello_size} bytes is read only if the headers show who "
        "sends it, or if a smaller one from the same address did lately."
    )
