"""A load generator light enough that the server is the bottleneck: raw HTTP/1.1, keep-alive.

It knows just as much HTTP as A2A servers speak: a status, a length or chunks, server-sent
events. One request at a time per connection.
"""

import asyncio
import gc
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeVar, cast

HOST = "127.0.0.1"
EventSink = Callable[[bytes], None]


class BrokenExchange(Exception):
    """The server closed the connection, or answered with something other than HTTP 200."""


class EventSplitter:
    """Cuts a stream of bytes into the data of its server-sent events."""

    __slots__ = ("_pending", "_sink")

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self._pending = b""

    def feed(self, data: bytes) -> None:
        pending = self._pending + data if self._pending else data
        if b"\r" in pending:
            pending = pending.replace(b"\r\n", b"\n")
        *events, self._pending = pending.split(b"\n\n")
        for event in events:
            lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
            if lines:
                self._sink(b"\n".join(lines))


class Line(asyncio.Protocol, ABC):
    """A connection whose bytes are read piece by piece."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._pending = b""

    @abstractmethod
    def _step(self) -> bool:
        """Take one piece off what has arrived; False when more must arrive first."""

    @abstractmethod
    def _fail(self, error: Exception) -> None:
        """Tell whoever waits."""

    def _write(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            raise BrokenExchange("the server closed a connection that was to be kept open")
        self._transport.write(data)

    def close(self) -> None:
        """Leave."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # create_connection makes nothing else, but uvloop's class does not say that it is one.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(BrokenExchange("the server closed the connection within an answer"))

    def data_received(self, data: bytes) -> None:
        self._pending = self._pending + data if self._pending else data
        try:
            while self._pending and self._step():
                pass
        except Exception as exc:
            # Whatever is wrong with the answer belongs to whoever waits for it.
            self._fail(exc)
            self.close()


class Connection(Line):
    """One keep-alive connection that carries one exchange at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._done: asyncio.Future[bytes] | None = None
        self._sink: EventSplitter | None = None
        self._in_body = False
        self._length: int | None = None
        self._body: list[bytes] = []

    def start(self, request: bytes, on_event: EventSink | None = None) -> asyncio.Future[bytes]:
        """Send the request; the future holds the body, or nothing once events went to the sink."""
        self._sink = EventSplitter(on_event) if on_event else None
        self._done = asyncio.get_running_loop().create_future()
        self._write(request)
        return self._done

    def close(self) -> None:
        """Leave, even in the middle of an answer."""
        if self._done is not None:
            self._done.cancel()
        super().close()

    def _step(self) -> bool:
        if not self._in_body:
            return self._take_head()
        if self._length is None:
            return self._take_chunk()
        if len(self._pending) < self._length:
            return False
        body, self._pending = self._pending[: self._length], self._pending[self._length :]
        self._body.append(body)
        self._end()
        return True

    def _take_head(self) -> bool:
        end = self._pending.find(b"\r\n\r\n")
        if end < 0:
            return False
        head, self._pending = self._pending[:end].lower(), self._pending[end + 4 :]
        if not head.startswith(b"http/1.1 200"):
            raise BrokenExchange(f"{head!r} {self._pending!r}")
        self._length = None
        self._in_body = True
        at = head.find(b"\r\ncontent-length:")
        if at >= 0:
            self._length = int(head[at + 17 :].split(b"\r\n", 1)[0])
        elif b"\r\ntransfer-encoding: chunked" not in head:
            raise BrokenExchange(f"neither a length nor chunks: {head!r}")
        return True

    def _take_chunk(self) -> bool:
        line_end = self._pending.find(b"\r\n")
        if line_end < 0:
            return False
        size = int(self._pending[:line_end].partition(b";")[0], 16)
        chunk_end = line_end + 2 + size
        if len(self._pending) < chunk_end + 2:
            return False
        chunk = self._pending[line_end + 2 : chunk_end]
        self._pending = self._pending[chunk_end + 2 :]
        if not size:
            self._end()
        elif self._sink is not None:
            self._sink.feed(chunk)
        else:
            self._body.append(chunk)
        return True

    def _end(self) -> None:
        body, self._body, self._in_body = b"".join(self._body), [], False
        if self._done is not None and not self._done.done():
            self._done.set_result(body)

    def _fail(self, error: Exception) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)


@asynccontextmanager
async def connections(port: int, count: int) -> AsyncIterator[list[Connection]]:
    """So many open connections, closed in the end."""
    loop = asyncio.get_running_loop()
    opened: list[Connection] = []
    try:
        for _ in range(count):
            _, connection = await loop.create_connection(Connection, HOST, port)
            opened.append(connection)
        yield opened
    finally:
        for connection in opened:
            connection.close()
        # One turn of the loop, so that the transports really close.
        await asyncio.sleep(0)


Exchange = Callable[[Connection, int], Awaitable[None]]
C = TypeVar("C")
"""A connection of whatever kind."""


@dataclass(frozen=True, slots=True)
class Burst:
    """What a stretch of load came to."""

    latencies: list[float]
    seconds: float
    load_cpu_seconds: float

    @property
    def count(self) -> int:
        return len(self.latencies)

    def percentile(self, share: float) -> float:
        """The latency in seconds that this share of the exchanges stayed within."""
        ordered = sorted(self.latencies)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


async def drive(
    opened: list[C],
    exchange: Callable[[C, int], Awaitable[None]],
    *,
    numbers: Iterator[int],
    seconds: float | None = None,
) -> Burst:
    """Keep every connection busy until the numbers run out or the time is up.

    An exchange under way when the time is up is finished and counted, so that the server's CPU
    belongs to exactly the exchanges counted.
    """
    clock = time.perf_counter
    latencies: list[float] = []
    began, load_cpu = clock(), time.process_time()
    deadline = began + seconds if seconds is not None else float("inf")

    async def keep_busy(connection: C) -> None:
        for number in numbers:
            started = clock()
            await exchange(connection, number)
            ended = clock()
            latencies.append(ended - started)
            if ended >= deadline:
                return

    with _no_collection():
        async with asyncio.TaskGroup() as group:
            for connection in opened:
                group.create_task(keep_busy(connection))
    return Burst(latencies, clock() - began, time.process_time() - load_cpu)


@contextmanager
def _no_collection() -> Iterator[None]:
    # A collection here would show as a server's slow answer.
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
