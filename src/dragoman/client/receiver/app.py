"""The webhook receiver as an ASGI app: it applies limits, verifies a call and handles it once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from dragoman.core.errors import (
    ContentTypeUnsupported,
    DragomanError,
    Malformed,
    TooLarge,
    TooMany,
    TooSlow,
    Unauthenticated,
)
from dragoman.core.log import Logger
from dragoman.net.http.asgi import TEXT, Header, Receive, Scope, Send, answer, headers_in

from .notice import Notice
from .parse import read
from .replay_cache import ReplayCache, SeenCall
from .verify import Proof, greet, prove

log = Logger("receiver")

Tell = Callable[[Notice], Awaitable[None]]
"""A function that handles a notice. If it raises, the sender is told to try again."""

MAX_SIZE = 4 * 1024 * 1024
TYPES = frozenset(("", "application/json", "application/a2a+json"))
_BESIDE: dict[int, tuple[Header, ...]] = {
    401: ((b"www-authenticate", b'Bearer realm="webhooks"'),),
    503: ((b"retry-after", b"2"),),
}
"""The headers that go with a status."""

STATUS: dict[type[DragomanError], int] = {
    Unauthenticated: 401,
    TooLarge: 413,
    TooSlow: 408,
    TooMany: 503,
    ContentTypeUnsupported: 415,
    Malformed: 400,
    DragomanError: 500,
}


class Receiver:
    """An ASGI app that receives webhooks, at any path.

    `tell` is awaited once for each delivery id. The last `remember` ids are kept, so a delivery
    that is repeated later than that is handled again. A 2xx status means that `tell` has returned.
    """

    def __init__(
        self,
        tell: Tell,
        proof: Proof,
        *,
        max_size: int = MAX_SIZE,
        read_timeout: float = 15.0,
        parallel: int = 64,
        remember: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.memory = ReplayCache(remember)
        self._tell, self._proof, self._clock = tell, proof, clock
        self._max_size, self._timeout, self._free = max_size, read_timeout, parallel

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one ASGI connection."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] != "http":
            raise RuntimeError("a webhook receiver speaks HTTP only")
        elif scope["method"] != "POST":
            await answer(send, 405, b"", TEXT, ((b"allow", b"POST"),))
        else:
            status, extra = await self._status(headers_in(scope["headers"]), receive)
            await answer(send, status, b"", TEXT, extra)

    async def _status(
        self, headers: dict[str, str], receive: Receive
    ) -> tuple[int, tuple[Header, ...]]:
        self._free -= 1
        try:
            body = await self._body(headers, receive)
            return await self.hear(headers, body), ()
        except DragomanError as exc:
            log.warning("A webhook was refused", reason=exc.reason, why=exc.message)
            status = next(STATUS[cls] for cls in type(exc).__mro__ if cls in STATUS)
            return status, _BESIDE.get(status, ())
        finally:
            self._free += 1

    async def _body(self, headers: dict[str, str], receive: Receive) -> bytes:
        """Reads the body, after everything that `Proof` finds in the headers was verified."""
        greet(headers, self._proof, self._clock())
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in TYPES:
            raise ContentTypeUnsupported("Expected application/json")
        length = headers.get("content-length", "")
        if length.isdigit() and int(length[:20]) > self._max_size:
            raise TooLarge()
        if self._free < 0:
            raise TooMany()
        got = bytearray()
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise TooSlow("The caller closed the connection.")
                    got += message.get("body", b"")
                    if len(got) > self._max_size:
                        raise TooLarge()
                    if not message.get("more_body", False):
                        return bytes(got)
        except TimeoutError:
            raise TooSlow() from None

    async def hear(self, headers: dict[str, str], body: bytes) -> int:
        """Verifies a call, handles it if it is new, and returns the status of the response. The
        names of the headers are in lower case.

        This is for servers that are not ASGI. A refused call raises one of the errors in `STATUS`.
        """
        if len(body) > self._max_size:
            raise TooLarge()
        proved = prove(headers, body, self._proof, self._clock())
        notice = read(body, proved.id, signed=proved.signed)
        if not proved.id:
            return await self._told(notice)
        heard = self.memory.begin(proved.id)
        if heard is SeenCall.BEFORE:
            return 204
        if heard is SeenCall.UNDER_WAY:
            raise TooMany("This delivery is being handled right now.")
        told = False
        try:
            status = await self._told(notice)
            told = status == 204
        finally:
            self.memory.end(proved.id, told=told)
        return status

    async def _told(self, notice: Notice) -> int:
        try:
            await self._tell(notice)
        except Exception as exc:  # the user's code failed: the sender tries again, the log says why
            log.error("A notice could not be handled", exc, notice=notice.id, task=notice.task_id)
            return 500
        return 204


async def _live(receive: Receive, send: Send) -> None:
    """Answers the lifespan protocol; there is nothing to start or stop."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
