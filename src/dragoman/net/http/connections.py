"""The open connections of a listener, found by their descriptors, each within its limits.

Granian knows when a request has come whole, and little before and after: a peer that sends half a
handshake, half of its headers or nothing at all stays as long as it likes, and so does one that
leaves its answer unread. It has no setting for that and tells nobody about connections. gRPC, which
has a port of its own, is no better there, and its calls are noted only when their message has come
whole (`late`). But connections are descriptors of our own process. So every second we look at all
of them: the kernel says whose each is and how many bytes went either way (`TCP_INFO`), the wrapper
around the app says what was asked on it, and one that does nothing useful is shut down. The
listener then closes it as if the peer had left.

    no request yet          `hello_time` seconds, `hello_size` bytes
    an exchange is running  its own limits, see `exchange`; bytes beyond bodies at `FREE_RATE`
    a WebSocket             its own limits; an unfinished message is measured as it comes
    between two exchanges   `head_time` seconds, longer while an answer is being read

One address may have `connections_per_address`; the surplus is shut, silent ones first. All of this
is for Linux; elsewhere only Granian's own limits hold.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from ipaddress import IPv6Address, ip_address
from types import CoroutineType
from typing import Any, Protocol, TypeAlias

from dragoman.core.log import Logger
from dragoman.settings import Limits

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
"""Key of a WebSocket's scope: its `SocketMeter`, where there is one."""
LOOK, BUSY_LOOK = 1.0, 0.1
"""Seconds between two looks; while more than half of the connections are taken."""
SLICE, PAUSE = 200, 0.005
"""Descriptors looked at in one go (under a millisecond), and seconds until the next."""
MEASURE, MEASURE_STRANGERS = 0.1, 0.02
"""Seconds between two looks at WebSockets; while there are some that have not said who they are.
What all of them can send in that time is what they can make us hold."""
FREE_RATE = 64 * 1024
"""Bytes a second that a peer may send beside bodies: acknowledgements, window updates, pings."""
READ_RATE = 1024
"""Bytes a second by which an answer must get on to count as being read (and a request that has no
note yet, as being sent)."""
LOW = 32
"""With fewer free descriptors than this, idle connections are shut."""


Client = tuple[str, str]
"""Address and port as Granian has them in a scope."""
Coroutine: TypeAlias = "CoroutineType[Any, Any, None]"


class RunningExchange(Protocol):
    """One request and its answer: the coroutine that answers it, or what stands for it."""

    @property
    def cr_frame(self) -> object:
        """None as soon as it has ended."""


class Connection:
    """One open connection, and what was seen of it."""

    __slots__ = (
        *("acked", "active", "address", "client", "ended", "exchange", "fd", "inode"),
        *("looked", "received", "running", "sent", "shut", "since"),
    )

    def __init__(self, fd: int, inode: int, client: Client, now: float) -> None:
        self.fd, self.inode, self.client = fd, inode, client
        self.address = _network(client[0])
        self.since = self.active = self.ended = self.looked = now
        self.exchange: RunningExchange | None = None
        """The latest one when we looked last."""
        self.running = 0
        self.acked = self.sent = self.received = 0
        """Bytes: what the peer had acknowledged and sent at the last look, and what it had sent
        when its latest exchange was first seen, or was seen to have ended."""
        self.shut = False


class SocketMeter:
    """Measures what a WebSocket's peer sends of a message that is not whole yet.

    Granian puts messages of up to 64 MB together before anybody sees them, so their size is taken
    from the connection: bytes that came since the last whole message.
    """

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        """Bytes; 0 as long as nobody counts what is heard."""
        self.heard = 0
        """Whole messages; whoever reads them counts."""
        self.on_excess: Callable[[], None] = lambda: None
        self._noted, self._base = -1, 0

    def exceeds(self, received: int) -> bool:
        """Whether too much came, this being all that the peer ever sent."""
        if self.heard != self._noted:
            self._noted, self._base = self.heard, received
        return 0 < self.limit < received - self._base


class Connections:
    """Keeps the connections of one listening socket within their limits."""

    def __init__(
        self, limits: Limits, exempt: Callable[[str], bool] | None = None, *, late: bool = False
    ) -> None:
        """`late`: exchanges are noted when their request has come whole, not when it begins."""
        self.limits = limits
        self._unseen = int(late)
        """Requests of a connection that may be on their way without a note."""
        self.shut: Counter[str] = Counter()
        """How many were shut, by reason."""
        self.capacity = min(limits.connections, spare())
        self._exempt = exempt or (lambda address: False)
        """Whether many callers share an address: a proxy's."""
        self._port = 0
        self._open: dict[int, Connection] = {}
        self._by_client: dict[Client, Connection] = {}
        self._others: dict[int, int] = {}
        """Sockets that are not ours: descriptor to inode."""
        self._latest: dict[Client, RunningExchange] = {}
        self._earlier: dict[Client, list[RunningExchange]] = {}
        """HTTP/2: exchanges that were still running when the next one began."""
        self._gone: set[Client] = set()
        self._meters: dict[Client, SocketMeter] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._measuring: asyncio.TimerHandle | None = None
        self._looking: Iterator[None] | None = None
        shortest = min(limits.hello_time, limits.head_time)
        self._pace = min(LOOK, shortest / 4)

    def watched(self, app: Handler) -> Callable[[Scope, Receive, Send], Coroutine]:
        """The app, with a note of what is asked on which connection. This runs for every request,
        so it only keeps the coroutine: whether that has ended is seen when we look."""
        if not AVAILABLE:
            return app  # type: ignore[return-value]  # `async def`; nobody would look
        note = self.note

        def watched(scope: Scope, receive: Receive, send: Send) -> Coroutine:
            client: Client = scope["client"]
            if scope["type"] == "websocket":
                self._meter(scope, client)
            exchange: Coroutine = app(scope, receive, send)  # type: ignore[assignment]  # `async def`
            note(client, exchange)
            return exchange

        return watched

    def note(self, client: Client, exchange: RunningExchange) -> None:
        """An exchange begins on the connection of this peer."""
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
        """Begins to look after the connections that come in on this port."""
        self._port = port
        if AVAILABLE:
            self._schedule(self._pace)

    def stop(self) -> None:
        """Looks no more."""
        for timer in (self._timer, self._measuring):
            if timer is not None:
                timer.cancel()
        self._port, self._timer, self._measuring, self._looking = 0, None, None, None

    # The look at all connections.

    def _schedule(self, seconds: float) -> None:
        if self._port:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._turn)

    def _turn(self) -> None:
        """Looks at the next few, or begins anew."""
        if self._looking is None:
            self._looking = self._look(asyncio.get_running_loop().time)
        if next(self._looking, self) is None:
            self._schedule(PAUSE)
            return
        self._looking = None
        crowded = 2 * len(self._open) > self.capacity
        # However many there are, looking costs a twentieth of a core at the most.
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
        if len(found) > self.limits.connections_per_address:
            self._share(found.values())
        if len(found) > self.capacity:  # Granian takes no more by itself; gRPC does
            self._shed(found.values(), len(found) - self.capacity, "full")
        if limit and len(descriptors) > limit - LOW:
            self._make_room(found.values())
        if self.shut:
            log.debug("Connections were closed", **self.shut)

    def _connection(self, fd: int, others: dict[int, int], now: float) -> Connection | None:
        """What this descriptor is, if it is a connection of ours."""
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
        """How many exchanges are under way on a connection."""
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
        """Why this connection must end, if it must."""
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
            # What is new may have a request that we were not told of yet.
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
        """Drops the notes about connections that are gone, one look after they were missed: a
        request may be noted while we look, on a connection that was not there when we began."""
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

    def _share(self, found: Collection[Connection]) -> None:
        """Shuts what an address has beyond its share."""
        by_address: dict[str, list[Connection]] = {}
        for each in found:
            if not each.shut:
                by_address.setdefault(each.address, []).append(each)
        for address, connections in by_address.items():
            surplus = len(connections) - self.limits.connections_per_address
            if surplus > 0 and not self._exempt(connections[0].client[0]):
                log.warning("An address has too many connections", address=address, surplus=surplus)
                self._shed(connections, surplus, "share")

    def _make_room(self, found: Collection[Connection]) -> None:
        """Without free descriptors Granian would try to take connections without a pause."""
        idle = [each for each in found if not each.running and not each.shut]
        log.error("Almost no file descriptors are left, so idle connections end", idle=len(idle))
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
            if exchange is None or exchange.cr_frame is None:  # closed: it is one like all others
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
    """What is shut first: what has asked for nothing, then what is idle; the newest of them."""
    return connection.running > 0, connection.exchange is not None, -connection.since


def _network(address: str) -> str:
    """What counts as one address: whoever has one of IPv6 has its whole network of 64 bits."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Address(int(found) >> 64 << 64)) + "/64"
