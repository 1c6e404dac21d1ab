"""The webhook receiver as an ASGI app: it applies limits, verifies a call and handles it once."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable

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
from dragoman.net.http.forwarded import ForwardedHeaders
from dragoman.net.http.request_body import RequestBody
from dragoman.net.strangers import RecentAddresses, Slot, Slots

from .notice import Notice
from .parse import read
from .replay_cache import ReplayCache, SeenCall
from .verify import Proof, Proved, greet, prove

log = Logger("receiver")

Tell = Callable[[Notice], Awaitable[None]]
"""A function that handles a notice. If it raises, the sender is told to try again."""

MAX_SIZE = 4 * 1024 * 1024
ADDRESS_SHARE = 4
"""One address has one in so many of the slots, until a call from it was proved. Our own server
calls one host 16 times at once."""
TYPES = frozenset(("", "application/json", "application/a2a+json"))
_BESIDE: dict[int, tuple[Header, ...]] = {
    401: ((b"www-authenticate", b'Bearer realm="webhooks"'),),
    405: ((b"allow", b"POST"),),
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
        trusted_proxies: Iterable[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`trusted_proxies` are the address ranges of proxies whose `X-Forwarded-For` is
        believed."""
        self.memory = ReplayCache(remember)
        self._tell, self._proof, self._clock = tell, proof, clock
        self._max_size, self._timeout = max_size, read_timeout
        self._proxies = ForwardedHeaders(trusted_proxies)
        self._slots, self._recent = Slots(parallel, ADDRESS_SHARE), RecentAddresses()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one ASGI connection."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError("a webhook receiver speaks HTTP only")
        headers = headers_in(scope["headers"])
        body = RequestBody(scope, receive, headers)
        if scope["method"] == "POST":
            status = await self._status(headers, body, self._address(scope))
        else:
            status = 405
        _, extra = await body.drain()
        await answer(send, status, b"", TEXT, (*_BESIDE.get(status, ()), *extra))

    def _address(self, scope: Scope) -> str:
        """The address of a caller; empty if many callers share it, or nobody knows it."""
        address = str((self._proxies.seen(scope).get("client") or ("",))[0])
        return "" if self._proxies.trusts(address) else address

    async def _status(self, headers: dict[str, str], body: RequestBody, address: str) -> int:
        slot: Slot | None = None
        try:
            self._check_headers(headers)
            known = self._proof.shown_in_headers or address in self._recent
            slot = self._slots.take(address, known=known)
            if slot is None:
                raise TooMany()
            said = await body.read_within(self._max_size, self._timeout)
            proved = prove(headers, said, self._proof, self._clock())
            slot.recognize()
            self._recent.add(address)
            return await self._hear(proved, said)
        except DragomanError as exc:
            log.warning("A webhook was refused", reason=exc.reason, why=exc.message)
            return next(STATUS[cls] for cls in type(exc).__mro__ if cls in STATUS)
        finally:
            if slot is not None:
                slot.release()

    def _check_headers(self, headers: dict[str, str]) -> None:
        """Refuses callers that have not shown what `Proof` asks for, and what is no JSON."""
        greet(headers, self._proof, self._clock())
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in TYPES:
            raise ContentTypeUnsupported("Expected application/json")

    async def hear(self, headers: dict[str, str], body: bytes) -> int:
        """Verifies a call, handles it if it is new, and returns the status of the response. The
        names of the headers are in lower case.

        This is for servers that are not ASGI. A refused call raises one of the errors in `STATUS`.
        """
        if len(body) > self._max_size:
            raise TooLarge()
        return await self._hear(prove(headers, body, self._proof, self._clock()), body)

    async def _hear(self, proved: Proved, body: bytes) -> int:
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
