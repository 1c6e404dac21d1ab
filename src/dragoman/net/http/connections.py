"""Enforces the limits of the open connections of a listener, which it finds by their descriptors.

Granian calls the app when a request has arrived, and does little before and after: a client that
sends half a handshake, half of its headers or nothing at all stays as long as it likes, and so does
one that leaves its response unread. Granian has no setting for that and does not list its
connections. gRPC, on its own port, does the same, and reports a call only when its message has
arrived (`late`). But connections are descriptors of our own process, so we examine all of them
every second: the kernel says whose each one is and how many bytes went either way (`TCP_INFO`), the
wrapper around the app says which exchange runs on it, and a useless connection is shut down. The
listener then closes it as if the client had left.

    no request yet          `hello_time` seconds, `hello_size` bytes
    an exchange is running  its own limits, see `exchange`; bytes beyond bodies at `FREE_RATE`
    a WebSocket             its own limits; an unfinished message is measured as it arrives
    between two exchanges   `head_time` seconds, longer while a response is being read

One address may have `connections_per_address`, and half of all while all are in use or descriptors
run out, so that it cannot shut the others out; the surplus is shut down, silent ones first. All of
this works on Linux only; elsewhere only Granian's own limits apply.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from types import CoroutineType
from typing import Any, Protocol, TypeAlias

from dragoman.core.log import Logger
from dragoman.settings import Limits

from ..strangers import network_of
from .asgi import Handler, Receive, Scope, Send
from .descriptors import (
    AVAILABLE,
    open_descriptors,
    peer,
    shut_down,
    socket_inode,
    spare,
    transferred,
)
from .request_body import LEFT_HTTP2

log = Logger("connections")

METER = "dragoman.socket_meter"
"""The key in a WebSocket's scope under which its `SocketMeter` is found, if it has one."""
LOOK, BUSY_LOOK = 1.0, 0.1
"""The seconds between two scans, and those while more than half of the connections are in use."""
SLICE, PAUSE = 200, 0.005
"""The descriptors that one step of a scan examines (under a millisecond), and the seconds until the
next step."""
MEASURE, MEASURE_STRANGERS = 0.1, 0.02
"""The seconds between two measurements of WebSockets, and those while some are not authenticated.
What all of them can send in that time is what they can make us keep in memory."""
FREE_RATE = 64 * 1024
"""The bytes a second that a client may send beside bodies: acknowledgements, window updates,
pings."""
READ_RATE = 1024
"""The bytes a second at which a response counts as being read, and a request that was not reported
yet counts as being sent."""
LOW = 32
"""The number of free descriptors below which idle connections are shut down."""


Client = tuple[str, str]
"""The address and the port of a client, as Granian puts them into a scope."""
Coroutine: TypeAlias = "CoroutineType[Any, Any, None]"


class RunningExchange(Protocol):
    """A request that is being answered: the coroutine of its handler, or an equivalent."""

    @property
    def cr_frame(self) -> object:
        """Is None as soon as the exchange has ended."""


class Connection:
    """One open connection with the observations of the last scan."""

    __slots__ = (
        *("acked", "active", "address", "client", "ended", "exchange", "fd", "inode"),
        *("looked", "received", "running", "sent", "shut", "since"),
    )

    def __init__(self, fd: int, inode: int, client: Client, now: float) -> None:
        self.fd, self.inode, self.client = fd, inode, client
        self.address = network_of(client[0])
        self.since = self.active = self.ended = self.looked = now
        self.exchange: RunningExchange | None = None
        """The latest exchange at the last scan."""
        self.running = 0
        self.acked = self.sent = self.received = 0
        """The bytes that the client had acknowledged and sent at the last scan, and those that it
        had sent when its latest exchange was first seen, or was seen to have ended."""
        self.shut = False


class SocketMeter:
    """Measures how much of an unfinished message a WebSocket's client has sent.

    Granian buffers messages of up to 64 MB before the app sees them, so their size is taken from
    the connection: the bytes that arrived since the last whole message.
    """

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        """The limit in bytes; 0 while the reader does not count messages yet."""
        self.heard = 0
        """The number of whole messages, which the reader of the WebSocket counts."""
        self.on_excess: Callable[[], None] = lambda: None
        self.on_bytes: Callable[[], None] | None = None
        """Called when anything has arrived, which may be a ping that no app sees."""
        self._received = 0
        self._noted, self._base = -1, 0

    def exceeds(self, received: int) -> bool:
        """Returns whether an unfinished message is too large. `received` is the number of bytes
        that the client has sent on the connection."""
        if self.on_bytes is not None and received != self._received:
            self._received = received
            self.on_bytes()
        if self.heard != self._noted:
            self._noted, self._base = self.heard, received
        return 0 < self.limit < received - self._base


class Connections:
    """Enforces the limits of the connections of one listening socket."""

    app: Handler
    """What answers requests."""

    def __init__(
        self, limits: Limits, exempt: Callable[[str], bool] | None = None, *, late: bool = False
    ) -> None:
        """`late` means that exchanges are noted when their request has arrived, not when it
        begins."""
        self.limits = limits
        self._unseen = int(late)
        """The requests of a connection that may be arriving before they are noted."""
        self.shut: Counter[str] = Counter()
        """The number of connections that were shut down, by reason."""
        self.capacity = min(limits.connections, spare())
        self._exempt = exempt or (lambda address: False)
        """Returns whether an address belongs to a proxy, which many callers share."""
        self._port = 0
        self._open: dict[int, Connection] = {}
        self._by_client: dict[Client, Connection] = {}
        self._others: dict[int, int] = {}
        """The sockets that are no connections of this listener: descriptor to inode."""
        self._latest: dict[Client, RunningExchange] = {}
        self._earlier: dict[Client, list[RunningExchange]] = {}
        """The exchanges of HTTP/2 that were still running when the next one began."""
        self._gone: set[Client] = set()
        self._meters: dict[Client, SocketMeter] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._measuring: asyncio.TimerHandle | None = None
        self._looking: Iterator[None] | None = None
        shortest = min(limits.hello_time, limits.head_time)
        self._pace = min(LOOK, shortest / 4)

    def watched(self, app: Handler) -> Callable[[Scope, Receive, Send], Coroutine]:
        """Wraps the app to note which exchange runs on which connection. This is called for every
        request, so it only stores the coroutine; the scan finds out whether it has ended."""
        self.app = app
        if not AVAILABLE:
            return app  # type: ignore[return-value]  # `async def`; there is no scan here
        note = self.note

        def watched(scope: Scope, receive: Receive, send: Send) -> Coroutine:
            client: Client = scope["client"]
            if scope["type"] == "websocket":
                self._meter(scope, client)
            exchange: Coroutine = self.app(scope, receive, send)  # type: ignore[assignment]
            note(client, exchange)
            return exchange

        return watched

    def note(self, client: Client, exchange: RunningExchange) -> None:
        """Notes that an exchange begins on the connection of this client."""
        before = self._latest.get(client)
        if before is not None and before.cr_frame is not None:
            self._keep(client, before)
        self._latest[client] = exchange

    def _keep(self, client: Client, running: RunningExchange) -> None:
        earlier = self._earlier.setdefault(client, [])
        if len(earlier) >= 2 * self.limits.http2_streams:
            earlier[:] = [each for each in earlier if each.cr_frame is not None]
        earlier.append(running)

    def start(self, port: int) -> None:
        """Starts to scan the connections to this port."""
        self._port = port
        if AVAILABLE:
            self._schedule(self._pace)

    def stop(self) -> None:
        """Stops the scan."""
        for timer in (self._timer, self._measuring):
            if timer is not None:
                timer.cancel()
        self._port, self._timer, self._measuring, self._looking = 0, None, None, None

    # The scan of all connections.

    def _schedule(self, seconds: float) -> None:
        if self._port:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._turn)

    def _turn(self) -> None:
        """Makes the next step of the scan, or starts a new scan."""
        if self._looking is None:
            self._looking = self._look(asyncio.get_running_loop().time)
        if next(self._looking, self) is None:
            self._schedule(PAUSE)
            return
        self._looking = None
        crowded = 2 * len(self._open) > self.capacity
        # The pause grows with the number of connections, so that scanning takes at most a twentieth
        # of a core.
        seconds = 0.02 * (len(self._open) // SLICE)
        self._schedule(min(self._pace, BUSY_LOOK) if crowded else max(self._pace, seconds))

    def _look(self, clock: Callable[[], float]) -> Iterator[None]:
        found: dict[int, Connection] = {}
        others: dict[int, int] = {}
        descriptors, limit = open_descriptors()
        for number, fd in enumerate(descriptors, 1):
            if number % SLICE == 0:
                yield
            now = clock()
            connection = self._connection(fd, others, now)
            if connection is not None:
                found[fd] = connection
                if reason := self._reason(connection, now):
                    self._shut(connection, reason)
        self._open, self._others = found, others
        self._by_client = {each.client: each for each in found.values()}
        self._forget()
        share, scarce = (
            self.limits.connections_per_address,
            limit and len(descriptors) > limit - LOW,
        )
        if scarce or len(found) >= self.capacity:
            # Granian accepts no more connections now, whoever dials.
            share = min(share, max(1, self.capacity // 2))
        if len(found) > share:
            self._share(found.values(), share)
        if len(found) > self.capacity:  # Granian accepts no more by itself; gRPC does
            self._shed(found.values(), len(found) - self.capacity, "full")
        if scarce:
            self._make_room(found.values())
        if self.shut:
            log.debug("Connections were closed", **self.shut)

    def _connection(self, fd: int, others: dict[int, int], now: float) -> Connection | None:
        """Returns the connection of this descriptor, or None if it is not one of this listener."""
        inode = socket_inode(fd)
        if not inode:
            return None
        known = self._open.get(fd)
        if known is not None and known.inode == inode:
            return known
        client = peer(fd, self._port) if self._others.get(fd) != inode else None
        if client is None:
            others[fd] = inode
            return None
        return Connection(fd, inode, client, now)

    def _running(self, client: Client, latest: RunningExchange) -> int:
        """Returns how many exchanges are running on a connection."""
        running = int(latest.cr_frame is not None)
        if client in self._earlier:
            earlier = [each for each in self._earlier[client] if each.cr_frame is not None]
            if earlier:
                self._earlier[client] = earlier
            else:
                del self._earlier[client]
            running += len(earlier)
        return running

    def _reason(self, connection: Connection, now: float) -> str:
        """Returns the reason to shut a connection down, or an empty text if there is none."""
        if connection.shut or connection.client in self._meters:
            return ""
        limits = self.limits
        acked, received = transferred(connection.fd)
        latest = self._latest.get(connection.client)
        unseen = self._unseen * limits.body_size
        if latest is None:
            begun = unseen and received > limits.hello_size
            if now - connection.since > (limits.body_time if begun else limits.hello_time):
                return "silent"
            # A new connection may have a request that was not noted yet.
            loud = received > limits.hello_size + unseen and connection.since < now
            return "loud" if loud else ""
        before, running = connection.running, self._running(connection.client, latest)
        connection.running = running
        passed, connection.looked = now - connection.looked, now
        got_on, connection.acked = acked - connection.acked, acked
        if unseen:
            got_on, connection.sent = max(got_on, received - connection.sent), received
        if latest is not connection.exchange or (before and not running):
            connection.exchange = latest
            connection.ended, connection.received = now, received
        if running or connection.ended == now or got_on > READ_RATE * passed:
            connection.active = now
        bodies = running * max(limits.body_size, LEFT_HTTP2) + unseen
        free = limits.hello_size + FREE_RATE * (now - connection.ended)
        if received - connection.received > bodies + free:
            return "loud"
        if now - connection.active > limits.head_time:
            return "idle"
        return "slow" if not running and now - connection.ended > limits.answer_time else ""

    def _forget(self) -> None:
        """Drops the notes about closed connections, one scan after they were missed: during a scan
        a request may be noted on a connection that was not there when the scan began."""
        missed = {
            client
            for client, exchange in self._latest.items()
            if client not in self._by_client and exchange.cr_frame is None
        }
        for client in missed & self._gone:
            del self._latest[client]
            self._earlier.pop(client, None)
            self._meters.pop(client, None)
        self._gone = missed

    def _share(self, found: Collection[Connection], share: int) -> None:
        """Shuts down the connections that an address has beyond its share."""
        by_address: dict[str, list[Connection]] = {}
        for each in found:
            if not each.shut:
                by_address.setdefault(each.address, []).append(each)
        for address, connections in by_address.items():
            surplus = len(connections) - share
            if surplus > 0 and not self._exempt(connections[0].client[0]):
                log.warning("An address has too many connections", address=address, surplus=surplus)
                self._shed(connections, surplus, "share")

    def _make_room(self, found: Collection[Connection]) -> None:
        """Shuts idle connections down. Without free descriptors Granian would try to accept in a
        busy loop."""
        idle = [each for each in found if not each.running and not each.shut]
        log.error("Few file descriptors are left, so idle connections are closed", idle=len(idle))
        self._shed(idle, 2 * LOW, "room")

    def _shed(self, connections: Collection[Connection], most: int, reason: str) -> None:
        for each in sorted(connections, key=_expendable)[:most]:
            if not each.shut:
                self._shut(each, reason)

    def _shut(self, connection: Connection, reason: str) -> None:
        if shut_down(connection.fd, connection.inode, abort=reason != "idle"):
            self.shut[reason] += 1
            connection.shut = True

    # WebSockets.

    def _meter(self, scope: Scope, client: Client) -> None:
        if not AVAILABLE or not self._port:
            return
        scope[METER] = self._meters[client] = SocketMeter()
        if self._measuring is None:
            loop = asyncio.get_running_loop()
            self._measuring = loop.call_later(MEASURE_STRANGERS, self._measure)

    def _measure(self) -> None:
        self._measuring = None
        unknown = strangers = False
        for client, meter in list(self._meters.items()):
            exchange, connection = self._latest.get(client), self._by_client.get(client)
            if exchange is None or exchange.cr_frame is None:  # the WebSocket is closed
                del self._meters[client]
            elif connection is None:
                unknown = True
            elif meter.exceeds(transferred(connection.fd)[1]):
                del self._meters[client]
                meter.on_excess()
                self._shut(connection, "message")
            elif 0 < meter.limit <= self.limits.hello_size:
                strangers = True
        if unknown and self._looking is None and self._timer is not None:
            self._timer.cancel()
            self._turn()
        if self._meters and self._port:
            pace = MEASURE_STRANGERS if strangers or unknown else MEASURE
            seconds = max(pace, len(self._meters) / 5_000)
            self._measuring = asyncio.get_running_loop().call_later(seconds, self._measure)


def _expendable(connection: Connection) -> tuple[bool, bool, float]:
    """Returns the key for the order in which connections are shut down: those that never had a
    request, then idle ones, then busy ones, and the newest first among equals."""
    return connection.running > 0, connection.exchange is not None, -connection.since
