"""The body of one request: read within its limits or, of a request that is refused, drained.

Theory. A request may be refused at any point: by its headers, by its size, halfway through its body
because it takes too long. Over HTTP/1 the server then closes a connection whose request was
answered before all of it came, and a client that has not noticed would lose its next request. Over
HTTP/2 the rest of the request is reset (RFC 9113 §8.1), which httpx takes for a failure, so that
its caller never learns why it was refused. So a rest that is small is read, and of a longer one the
answer says that the connection ends. Over HTTP/2 nothing can say that: more is read there, and only
beyond that the caller sees a reset.
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
"""How much of a body that nobody wants is read, in all, and for how long."""
LEFT_HTTP2 = 16 * LEFT_SIZE
"""The same over HTTP/2. No more than `LEFT_SIZE` of it is kept."""
LET_GO = 0.1
"""The seconds in which Granian's thread notices that we no longer wait for more of a body. If the
response is complete before that, the connection stays open until it is found to be idle."""
Recognized = Callable[[], Awaitable[bool]]
"""Whether the sender of a body is known before the body has been read."""


class RequestBody:
    """What comes after the headers of one request."""

    __slots__ = (
        *("_broken", "_cut", "_ended", "_have"),
        *("_headers", "_http1", "_parts", "_receive", "_size"),
    )

    def __init__(self, scope: Scope, receive: Receive, headers: Mapping[str, str]) -> None:
        self._receive = receive
        self._headers = headers
        declared = headers.get("content-length", "")
        self._size = int(declared) if declared.isdigit() and len(declared) < 20 else -1
        """As declared; -1 if it is not."""
        self._http1 = scope["http_version"] in ("1.1", "1.0")
        """Whether a body of known length ends with its last byte. Over HTTP/2 the end is a frame of
        its own."""
        self._have = 0
        self._parts: list[bytes] = []
        self._ended = self._broken = self._cut = False

    async def read(self, server: ServerContext, recognized: Recognized | None = None) -> bytes:
        """All of it, within its limits of size and time.

        `recognized` is given where only the body says whose it is. It is asked when the body does
        not come at once, or is announced to be large: a stranger has as much room and time as one
        that has opened a connection and asked for nothing yet.
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
                # Granian tells the end in a message of its own; a known length saves that turn.
                ended = have == whole or not message.get("more_body", False)
                if ended and not parts and recognized is None and have <= most:
                    return body
                parts.append(body)
                self._have, self._ended = have, ended
                if recognized is not None and (have > most or not ended):
                    deadlines.waits.pop(task, None)  # the time that this takes is not the peer's
                    stranger, recognized = not await recognized(), None
                    if not stranger:
                        most, last = limits.body_size, began + limits.body_time
                if have > most:
                    raise _unrecognized(limits) if stranger else TooLarge(limit=str(most))
                if ended:
                    return b"".join(parts)
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
        """All of it, within a size and a time, where no server of ours listens."""
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
        """Reads the rest of a body that nothing depends on. Gives all of it if it came whole and is
        small, and what to add to the answer if it is too long to be read."""
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
        """Receives what comes next; beyond `most` nothing is kept."""
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
