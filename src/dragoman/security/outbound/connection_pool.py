"""The connections that requests go over, and are kept for.

Theory. A request takes an unused connection of its origin or opens one, and gives it back when its
response was read to the end. What it costs to find one must not grow with their number. So unused
connections are a stack for each origin, of which the newest is taken, because it is the least
likely to be closed by the server just now; those in use are counted; and when the unused
ones would make too many, the oldest of any origin is closed.

A server that speaks HTTP/2 needs one connection for all requests, or as many as its limit of
concurrent streams demands. Whether it does is known when the first connection is there, so requests
wait for that one, and only for that one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from .failures import ConnectTimeout, PoolTimeout, ReadError
from .http1 import Http1Connection
from .socket_stream import SocketStream
from .target import OutgoingRequest, Target

if TYPE_CHECKING:
    from .http2 import Http2Connection

KEEP = 15.0
"""The seconds for which an unused connection is kept."""
MAX_REFUSED_STREAMS = 4
"""The number of times that a server may refuse to process a request over HTTP/2."""
MOST_KEPT = 100
"""The number of unused connections that are kept."""

Connect = Callable[[Target, float | None], Awaitable[SocketStream]]


class HttpResponse(Protocol):
    """A response whose body is still arriving."""

    status: int
    headers: dict[str, str]

    def read(self) -> Awaitable[bytes]:
        """Returns the next bytes of the body; nothing at its end."""

    async def close(self) -> None:
        """Ends the exchange; the rest of the body, if any, is not read."""


class ConnectionPool:
    """Connections to any number of origins; with `http2`, to one that may speak HTTP/2."""

    def __init__(
        self, connect: Connect, *, connections: int, http2: bool = False, http1: bool = True
    ) -> None:
        """`http1` is false for a server that is known to speak HTTP/2."""
        self._connect = connect
        self._most = connections
        self._http2, self._http1 = http2, http1
        self._waiting: deque[asyncio.Future[None]] = deque()
        """The requests that wait until another one gives back its permit."""
        self._open: set[Http1Connection] = set()
        self._unused: dict[str, deque[Http1Connection]] = {}
        self._kept = self._in_use = 0
        self._sweeping: asyncio.TimerHandle | None = None
        self._opening = asyncio.Lock()
        self._multiplexed: dict[Http2Connection, None] = {}
        """The connections that speak HTTP/2; a dict, because it keeps its order."""
        self._with_free_streams: dict[Http2Connection, None] = {}
        """Those of them over which another request can go."""
        self._waiting_for_stream: deque[asyncio.Future[None]] = deque()

    @property
    def multiplexes(self) -> bool:
        """Whether the server was found to speak HTTP/2."""
        return bool(self._multiplexed)

    async def begin(self, request: OutgoingRequest) -> HttpResponse:
        """Sends a request, and returns the response as soon as its headers are there."""
        if self._http2 and (response := await self._begin_multiplexed(request)) is not None:
            return response
        if self._in_use < self._most:
            self._in_use += 1
        else:
            await self._wait_for_permit(request.connect)
        connection: Http1Connection | None = None
        try:
            connection = self._find_unused(request.target.origin) or await self._open_new(request)
            status, headers = await connection.begin(request)
        except BaseException:
            self._release(connection, reusable=False)
            raise
        return _Http1Response(status, headers, connection, self._release)

    async def close(self) -> None:
        """Closes all connections, also those in use."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._unused.clear()
        self._kept = 0
        opened, self._open = self._open, set()
        multiplexed = [*self._multiplexed]
        self._multiplexed.clear()
        self._with_free_streams.clear()
        self._wake(len(self._waiting_for_stream))
        for connection in opened:
            await connection.stream.aclose()
        for each in multiplexed:
            await each.close()

    # HTTP/1.1: each exchange has a connection of its own.

    def _find_unused(self, origin: str) -> Http1Connection | None:
        while origin in self._unused:
            connection = self._take(origin, deque.pop)
            if connection.stream.is_fresh() and not _is_stale(connection):
                return connection
            self._close(connection)
        return None

    async def _open_new(self, request: OutgoingRequest) -> Http1Connection:
        while self._kept and self._kept + self._in_use > self._most:
            self._close(self._take(next(iter(self._unused)), deque.popleft))
        return self._opened(
            await self._connect(request.target, request.connect), request.target.origin
        )

    def _opened(self, stream: SocketStream, origin: str) -> Http1Connection:
        connection = Http1Connection(stream, origin)
        self._open.add(connection)
        return connection

    def _release(self, connection: Http1Connection | None, *, reusable: bool = True) -> None:
        """Takes back a connection and the permit to use one."""
        if connection is not None:
            if reusable and connection in self._open and connection.end():
                self._keep(connection)
            else:
                self._close(connection)
        self._give_back_permit()

    # An `asyncio.Semaphore` would cost each request more than its head, even if nobody waits.

    async def _wait_for_permit(self, seconds: float | None) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except BaseException as exc:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif not waiter.cancelled():  # the permit came too late to be used
                self._give_back_permit()
            if isinstance(exc, TimeoutError):
                raise PoolTimeout from None
            raise

    def _give_back_permit(self) -> None:
        """Passes a permit on to the request that has waited longest, if there is one."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._in_use -= 1

    def _keep(self, connection: Http1Connection) -> None:
        connection.unused_since = monotonic()
        unused = self._unused.get(connection.origin)
        if unused is None:
            unused = self._unused[connection.origin] = deque()
        unused.append(connection)
        self._kept += 1
        if self._kept > MOST_KEPT:
            self._close(self._take(connection.origin, deque.popleft))
        self._sweep_later()

    def _take(
        self, origin: str, end: Callable[[deque[Http1Connection]], Http1Connection]
    ) -> Http1Connection:
        """Removes an unused connection of this origin: the newest or the oldest."""
        unused = self._unused[origin]
        connection = end(unused)
        self._kept -= 1
        if not unused:
            del self._unused[origin]
        return connection

    def _sweep(self) -> None:
        """Closes what was not used for a while."""
        self._sweeping = None
        for shared in [*self._multiplexed]:
            if shared.is_unused and _is_stale(shared):
                self._multiplexed.pop(shared)
                self._with_free_streams.pop(shared, None)
                shared.socket.close()
        for origin in [*self._unused]:
            while (unused := self._unused.get(origin)) and _is_stale(unused[0]):
                self._close(self._take(origin, deque.popleft))
        if self._unused or any(each.is_unused for each in self._multiplexed):
            self._sweep_later()

    def _sweep_later(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(KEEP, self._sweep)

    def _close(self, connection: Http1Connection) -> None:
        self._open.discard(connection)
        connection.stream.close()

    # HTTP/2: exchanges share connections, each as many as the server allows.

    async def _begin_multiplexed(self, request: OutgoingRequest) -> HttpResponse | None:
        """Sends a request over a shared connection; None if the server speaks HTTP/1.1 only."""
        for _ in range(MAX_REFUSED_STREAMS):
            connection = await self._find_stream(request)
            if connection is None:
                return None
            from .http2 import Retired

            try:
                return await connection.begin(request)
            except Retired:
                continue  # it ended in between, and nothing was processed
        raise PoolTimeout("it refuses every stream")

    async def _find_stream(self, request: OutgoingRequest) -> Http2Connection | None:
        """Returns a connection with a free stream; None if the server speaks HTTP/1.1 only."""
        connection = next(iter(self._with_free_streams), None)
        if connection is not None and connection.free_streams and not _has_news(connection):
            return connection
        try:
            async with asyncio.timeout(request.connect):
                while True:
                    connection = next(iter(self._with_free_streams), None)
                    if connection is not None:
                        if _has_news(connection):
                            await _let_arrive()  # what has come may be the end of the connection
                        if connection.free_streams:
                            return connection
                        self._update(connection)
                    elif not await self._open_multiplexed(request):
                        return None
        except TimeoutError:
            if not self._multiplexed:
                raise ConnectTimeout from None
            streams = sum(each.max_streams for each in self._multiplexed)
            raise PoolTimeout(
                f"all {streams} streams that it allows at once are in use, and none became free in "
                f"{request.connect:g} s"
            ) from None

    async def _open_multiplexed(self, request: OutgoingRequest) -> bool:
        """Opens a connection, or waits for a free stream. Returns whether to look for one again;
        otherwise the server speaks HTTP/1.1 only."""
        async with self._opening:
            if self._with_free_streams:
                return True
            if not self._http2:  # that was found out while we waited
                return False
            # One whose limit is not known yet will be settled sooner than another is opened.
            is_settled = all(each.settled for each in self._multiplexed)
            if is_settled and len(self._multiplexed) < self._most:
                stream = await self._connect(request.target, request.connect)
                tls = stream.get_extra_info("ssl_object")
                if self._http1 and (tls is None or tls.selected_alpn_protocol() != "h2"):
                    self._http2 = False
                    self._keep(self._opened(stream, request.target.origin))
                    return False
                from .http2 import Http2Connection

                # A server has announced its limit to the connection before.
                known = max((each.max_streams for each in self._multiplexed), default=1)
                connection = Http2Connection(stream, self._update, assumed_streams=known)
                self._multiplexed[connection] = None
                self._update(connection)
                return True
        waiter = asyncio.get_running_loop().create_future()
        self._waiting_for_stream.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter in self._waiting_for_stream:
                self._waiting_for_stream.remove(waiter)
            elif not waiter.cancelled():  # the stream became free too late to be used
                self._wake(1)
            raise
        return True

    def _update(self, connection: Http2Connection) -> None:
        """Notes whether a connection has free streams, and who may use them."""
        if connection not in self._multiplexed:
            return
        if not connection.is_usable:
            del self._multiplexed[connection]
            self._with_free_streams.pop(connection, None)
            self._wake(len(self._waiting_for_stream))  # one of them will open another connection
            connection.socket.close()
        elif free := connection.free_streams:
            self._with_free_streams[connection] = None
            self._wake(free)
            if connection.is_unused:
                self._sweep_later()
        else:
            self._with_free_streams.pop(connection, None)

    def _wake(self, count: int) -> None:
        """Lets the requests that have waited longest look for a stream again."""
        while count and self._waiting_for_stream:
            waiter = self._waiting_for_stream.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1


def _has_news(connection: Http2Connection) -> bool:
    """Returns whether an unused connection may have ended without our knowledge."""
    return connection.is_unused and not connection.socket.is_fresh()


async def _let_arrive() -> None:
    """Lets the event loop read the sockets that are ready."""
    for _ in range(2):
        await asyncio.sleep(0)


def _is_stale(connection: Http1Connection | Http2Connection) -> bool:
    return monotonic() - connection.unused_since > KEEP


class _Http1Response:
    def __init__(
        self,
        status: int,
        headers: dict[str, str],
        connection: Http1Connection,
        release: Callable[[Http1Connection], None],
    ) -> None:
        self.status, self.headers = status, headers
        self._connection: Http1Connection | None = connection
        self._release = release

    def read(self) -> Awaitable[bytes]:
        if self._connection is None:
            raise ReadError("The response is closed")
        return self._connection.read()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._release(connection)
