"""A connection to a checked address as a stream of bytes, directly on the event loop.

HTTP/1.1 and HTTP/2 read and write through it. It takes the place of a general layer between them
and the event loop, which cost a call more than the agent's whole dialect did.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from .failures import ConnectError, ConnectTimeout, ReadError, ReadTimeout, WriteTimeout

NEXT_ADDRESS = 0.25
"""The seconds after which the next address of a host is tried beside the one before."""
MOST_UNREAD = 256 * 1024
"""The bytes that may wait for their reader before the other side has to stop sending."""


class SocketStream(asyncio.Protocol):
    """A connected socket, with or without TLS. It has at most one reader and one writer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._readable: Callable[[], object]
        self._deliver: Callable[[bytes], None] | None = None
        self._on_loss: Callable[[Exception | None], None] | None = None
        self._unread = b""
        self._ended = False
        self._failure: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._reading_paused = self._writing_paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._silence: float | None = None
        self._silent_at = 0.0
        self._unsent = 0

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._readable = _readability(transport.get_extra_info("socket").fileno())

    def data_received(self, data: bytes) -> None:
        """Keeps the bytes for the reader."""
        if self._deliver is not None:
            self._deliver(data)
            return
        self._unread += data
        if self._reader is not None:
            _wake(self._reader)
        elif len(self._unread) > MOST_UNREAD and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """Ends the stream; the connection is closed, because nothing of ours is half closed."""
        self._end()
        self._tell_loss()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the stream, in an error if there was one."""
        self._failure = exc
        self._forget_timer()
        self._end()
        if not self._lost.done():
            self._lost.set_result(None)
        self._tell_loss()

    def pause_writing(self) -> None:
        """Holds up writers: the other side reads slower than we write."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """Lets writers go on."""
        self._writing_paused = False
        if self._writer is not None:
            _wake(self._writer)

    def _end(self) -> None:
        self._ended = True
        for waiter in (self._reader, self._writer):
            if waiter is not None:
                _wake(waiter)

    def _tell_loss(self) -> None:
        on_loss, self._on_loss = self._on_loss, None
        if on_loss is not None:
            on_loss(self._failure)

    # What HTTP calls.

    def deliver(
        self, received: Callable[[bytes], None], lost: Callable[[Exception | None], None]
    ) -> None:
        """Passes on all bytes as they arrive, and the end of the connection. Nobody reads then."""
        self._deliver, self._on_loss = received, lost
        unread, self._unread = self._unread, b""
        if unread:
            received(unread)
        if self._ended:
            self._tell_loss()

    def send(self, data: bytes) -> None:
        """Writes what is in memory anyway, without waiting for the other side to take it."""
        if not self._ended:
            self._transport.write(data)
            self._unsent = self._transport.get_write_buffer_size()

    async def read(
        self,
        max_bytes: int = MOST_UNREAD,
        timeout: float | None = None,  # noqa: ASYNC109  (the interface says so)
    ) -> bytes:
        """Returns what has arrived, about `max_bytes` at most, or nothing at the end. Raises
        `ReadTimeout` when the other side is silent for longer than `timeout`."""
        if not self._unread and not self._ended:
            self._reader = waiter = self._loop.create_future()
            if timeout is not None:
                self._expect(timeout)
            try:
                await waiter
            finally:
                self._reader = None
        data, self._unread = self._unread, b""
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()
        if not data and self._failure is not None:
            raise ReadError(self._failure) from self._failure
        return data

    async def write(
        self,
        buffer: bytes,
        timeout: float | None = None,  # noqa: ASYNC109  (the interface says so)
    ) -> None:
        """Writes, at the pace of the other side. When that has closed the connection, what it said
        before is still to be read, and only reading ends in an error."""
        self.send(buffer)
        while self._writing_paused and not self._ended:
            self._writer = self._loop.create_future()
            try:
                async with asyncio.timeout(timeout):
                    await self._writer
            except TimeoutError:
                raise WriteTimeout from None
            finally:
                self._writer = None

    @property
    def is_open(self) -> bool:
        """Whether the other side has not closed the connection, as far as it is known."""
        return not self._ended

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come that nobody asked for, as far as it is known; the end would be
        that, too."""
        return not self._unread and not self._ended

    def is_fresh(self) -> bool:
        """Returns the same, and asks the socket itself, because the event loop may not have seen
        it yet."""
        return not self._unread and not self._ended and not self._readable()

    def close(self) -> None:
        """Ends the connection at once."""
        self._ended = True
        self._forget_timer()
        self._transport.abort()

    async def aclose(self) -> None:
        """Ends the connection and waits until the socket is closed."""
        self.close()
        await asyncio.shield(self._lost)

    def get_extra_info(self, info: str) -> Any:
        """Returns what is known about the connection."""
        return self._transport.get_extra_info(info)

    # Silence. A timer for each read would cost as much as the read, so there is one timer that
    # looks when the reader's patience would end if nothing had come since it was set.

    def _expect(self, seconds: float) -> None:
        self._silence = seconds
        self._silent_at = self._loop.time() + seconds
        if self._timer is None or self._timer.when() > self._silent_at:
            self._forget_timer()
            self._timer = self._loop.call_at(self._silent_at, self._check_silence)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_silence(self) -> None:
        self._timer = None
        waiter = self._reader
        if waiter is None or waiter.done() or self._silence is None:
            return
        now, unsent = self._loop.time(), self._transport.get_write_buffer_size()
        if 0 < unsent < self._unsent:  # the other side still takes what we send
            self._unsent, self._silent_at = unsent, now + self._silence
        if now < self._silent_at:
            self._timer = self._loop.call_at(self._silent_at, self._check_silence)
        else:
            waiter.set_exception(ReadTimeout())


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _readability(handle: int) -> Callable[[], object]:
    """Returns what tells whether a socket has something to read."""
    if not hasattr(select, "poll"):  # Windows
        return lambda: select.select([handle], [], [], 0)[0]
    found = select.poll()
    found.register(handle, select.POLLIN)
    return partial(found.poll, 0)


async def dial(address: str, port: int) -> socket.socket:
    """Returns a socket that is connected to an address. No other HTTP of ours opens sockets."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setblocking(False)
        # asyncio does this only for sockets that were made with the number of TCP. Without it the
        # second write of a request waits for a delayed acknowledgement, which takes 40 ms.
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(found, (address, port))
    except BaseException:
        found.close()
        raise
    return found


async def connect_socket(
    addresses: Sequence[str],
    port: int,
    *,
    seconds: float | None,
    tls: ssl.SSLContext | None = None,
    name: str = "",
) -> SocketStream:
    """Connects to the first of these addresses that answers; with `tls`, to the server of that
    name."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            opened = await _race(addresses, port)
            _, stream = await loop.create_connection(
                SocketStream, sock=opened, ssl=tls, server_hostname=name if tls else None
            )
    except TimeoutError:
        raise ConnectTimeout from None
    except OSError as exc:
        raise ConnectError(exc) from exc
    return stream


async def _race(addresses: Sequence[str], port: int) -> socket.socket:
    """Returns the first connection that succeeds. The next address is tried when one fails or is
    slow (RFC 8305): otherwise a machine with broken IPv6 would wait long for each connection."""
    if len(addresses) == 1:
        return await dial(addresses[0], port)
    left = [*addresses]
    trying: set[asyncio.Task[socket.socket]] = set()
    failure: BaseException = OSError("no address")
    try:
        while left or trying:
            if left:
                trying.add(asyncio.ensure_future(dial(left.pop(0), port)))
            done, _ = await asyncio.wait(
                trying,
                timeout=NEXT_ADDRESS if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                trying.discard(task)
                error = task.exception()
                if error is None:
                    return task.result()
                failure = error
        raise failure
    finally:
        for task in trying:
            task.cancel()
        for late in await asyncio.gather(*trying, return_exceptions=True):
            if isinstance(late, socket.socket):
                late.close()
