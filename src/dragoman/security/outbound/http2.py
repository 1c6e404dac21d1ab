"""HTTP/2 over one of our connections: any number of exchanges at once (RFC 9113).

Theory. `h2` keeps the state of the protocol, and this module moves its bytes. What arrives is
handled as the event loop delivers it, so a stream that nobody reads holds up no other one: the
window of the connection is opened again at once, and only that of the stream waits for its reader.
Each exchange has its own time limit, and one that is given up is reset, so that the server stops
working for it. A server that announces no limit of concurrent streams has none (§6.5.2).

This module is imported when a server is found to speak HTTP/2, because `h2` takes longer to import
than all of our client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic

from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import H2Error, NoAvailableStreamIDError, StreamClosedError
from h2.settings import SettingCodes, Settings

from .failures import ConnectionFailed, ReadError, ReadTimeout, RemoteProtocolError
from .http1 import encode_head
from .socket_stream import SocketStream
from .target import OutgoingRequest

STREAM_WINDOW_BYTES = 1024 * 1024
"""The bytes of one response that may wait for their reader."""
CONNECTION_WINDOW_BYTES = 16 * 1024 * 1024
"""The bytes that may be on their way to us over one connection."""
MAX_HEADER_LIST_BYTES = 65_536
_CONFIG = H2Configuration(client_side=True, validate_outbound_headers=False)
_HOP_BY_HOP = frozenset(("host", "connection", "keep-alive", "transfer-encoding", "upgrade"))


class Retired(Exception):
    """The connection takes no more requests, and has not processed this one."""


class Http2Connection:
    """A connection that carries many exchanges with its origin at once."""

    def __init__(
        self,
        stream: SocketStream,
        on_change: Callable[[Http2Connection], None],
        *,
        assumed_streams: int = 1,
    ) -> None:
        """`on_change` is called when a stream has become free, and when the connection has ended.
        `assumed_streams` is how many may be open until the server has announced its limit."""
        self.socket = stream
        self.unused_since = monotonic()
        self.max_streams = assumed_streams
        self.settled = False
        """Whether the server has announced its settings."""
        self._on_change = on_change
        self._streams: dict[int, Http2Response] = {}
        self._failure: ConnectionFailed | None = None
        self._unacknowledged = 0
        self._has_numbers = True
        """Whether there are numbers of streams left; a connection has two thousand million."""
        self._h2 = H2Connection(_CONFIG)
        # Assigned as a whole: h2 would announce each change on its own, the defaults first.
        self._h2.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW_BYTES,
                SettingCodes.MAX_HEADER_LIST_SIZE: MAX_HEADER_LIST_BYTES,
            },
        )
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(CONNECTION_WINDOW_BYTES)
        self._flush()
        stream.deliver(self._receive, self._lose)

    @property
    def is_usable(self) -> bool:
        """Whether requests can go over it, now or when a stream becomes free."""
        return self._failure is None and self._h2.state_machine.state is not ConnectionState.CLOSED

    @property
    def free_streams(self) -> int:
        """How many more exchanges the server allows at the moment."""
        if not self.is_usable or not self._has_numbers:
            return 0
        return max(0, self.max_streams - len(self._streams))

    @property
    def is_unused(self) -> bool:
        """Whether no response is arriving over it."""
        return not self._streams

    async def begin(self, request: OutgoingRequest) -> Http2Response:
        """Sends a request, and returns the response as soon as its headers are there. Raises
        `Retired` if the request has to go over another connection."""
        response = self._open(request)
        try:
            await self._upload(response, request.body)
            await response.wait_for_headers()
        except BaseException:
            await response.close()
            raise
        return response

    async def close(self) -> None:
        """Closes the connection, and what is still arriving over it."""
        self._fail(ReadError("The connection is closed"))
        await self.socket.aclose()

    # Sending.

    def _open(self, request: OutgoingRequest) -> Http2Response:
        headers = _headers(request)
        if not self.free_streams:
            raise Retired
        try:
            number = self._h2.get_next_available_stream_id()
        except NoAvailableStreamIDError:
            self._has_numbers = False
            raise Retired from None
        self._h2.send_headers(number, headers, end_stream=not request.body)
        response = self._streams[number] = Http2Response(self, number, request.idle)
        return response

    async def _upload(self, response: Http2Response, body: bytes) -> None:
        """Sends a body at the pace of the server, until it has refused the request."""
        sent, number = 0, response.number
        while sent < len(body) and not response.is_refused:
            window = self._h2.local_flow_control_window(number)
            size = min(window, self._h2.max_outbound_frame_size, len(body) - sent)
            if size > 0:
                last = sent + size == len(body)
                self._h2.send_data(number, body[sent : sent + size], end_stream=last)
                sent += size
            else:
                self._flush()
                await response.wait()
        response.uploaded = sent == len(body)
        self._flush()

    def _flush(self) -> None:
        if data := self._h2.data_to_send():
            self.socket.send(data)

    # Receiving.

    def _receive(self, data: bytes) -> None:
        try:
            events = self._h2.receive_data(data)
        except H2Error as exc:
            self._flush()  # it tells the server why
            self._fail(RemoteProtocolError(f"This is not HTTP/2: {exc}"))
            return
        for event in events:
            self._handle(event)
        self._flush()

    def _handle(self, event: Event) -> None:
        match event:
            case DataReceived():
                self._take(event)
            case ResponseReceived() if response := self._streams.get(event.stream_id):
                response.start(event.headers)
            case StreamEnded() if response := self._streams.get(event.stream_id):
                response.end()
            case StreamReset() if response := self._streams.get(event.stream_id):
                refused = event.error_code == ErrorCodes.REFUSED_STREAM
                response.fail(Retired() if refused else RemoteProtocolError(_reset(event)))
            case WindowUpdated(stream_id=0):
                self._wake_all()
            case WindowUpdated() if response := self._streams.get(event.stream_id or 0):
                response.wake()
            case RemoteSettingsChanged():
                self.settled = True
                self.max_streams = self._h2.remote_settings.max_concurrent_streams
                self._wake_all()  # the windows may be larger now
                self._on_change(self)
            case ConnectionTerminated():
                self._leave(event.last_stream_id or 0)

    def _take(self, event: DataReceived) -> None:
        size = event.flow_controlled_length or 0
        self._unacknowledged += size
        if self._unacknowledged >= CONNECTION_WINDOW_BYTES // 4:
            self._h2.increment_flow_control_window(self._unacknowledged)
            self._unacknowledged = 0
        if (response := self._streams.get(event.stream_id or 0)) is not None:
            response.receive(event.data or b"", size)

    def _wake_all(self) -> None:
        for response in self._streams.values():
            response.wake()

    def _leave(self, last: int) -> None:
        """Ends the connection as the server wants it; it has processed the streams up to `last`."""
        for number, response in self._streams.items():
            if number > last:
                response.fail(Retired())
        self._fail(RemoteProtocolError("The server closed the connection"))
        self.socket.close()

    def _lose(self, exc: Exception | None) -> None:
        if exc is not None:
            self._fail(ReadError(exc))
        else:
            self._fail(RemoteProtocolError("Server disconnected without sending a response."))

    def _fail(self, failure: ConnectionFailed) -> None:
        if self._failure is None:
            self._failure = failure
            for response in self._streams.values():
                response.fail(type(failure)(*failure.args))
            self._on_change(self)

    # For the responses.

    def acknowledge(self, number: int, size: int) -> None:
        """Lets the server send more over a stream."""
        if self.is_usable and number in self._streams:
            self._h2.increment_flow_control_window(size, number)
            self._flush()

    def release(self, number: int, *, over: bool) -> None:
        """Forgets a stream; one that is not over is reset."""
        if self._streams.pop(number, None) is None:
            return
        if not over and self.is_usable:
            with suppress(StreamClosedError):  # by the server, who sent no error with it
                self._h2.reset_stream(number, ErrorCodes.CANCEL)
            self._flush()
        if not self._streams:
            self.unused_since = monotonic()
        self._on_change(self)


class Http2Response:
    """A response whose body is still arriving."""

    def __init__(self, connection: Http2Connection, number: int, idle: float | None) -> None:
        self.number = number
        self.status = 0
        self.headers: dict[str, str] = {}
        self.uploaded = False
        """Whether the request was sent to its end."""
        self._connection = connection
        self._idle = idle
        self._chunks: deque[bytes] = deque()
        self._unread = self._consumed = 0
        self._ended = False
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_refused(self) -> bool:
        """Whether the server has answered that it does not want the rest of the request."""
        return self._ended or self.status >= 400

    async def read(self) -> bytes:
        """Returns the next bytes of the body; nothing at its end."""
        while not self._chunks and not self._ended:
            await self.wait()
        if not self._chunks:
            return b""
        data = b"".join(self._chunks) if len(self._chunks) > 1 else self._chunks[0]
        self._chunks.clear()
        self._consumed, self._unread = self._consumed + self._unread, 0
        if self._consumed >= STREAM_WINDOW_BYTES // 2 and not self._ended:
            self._connection.acknowledge(self.number, self._consumed)
            self._consumed = 0
        return data

    async def close(self) -> None:
        """Ends the exchange; the rest of the body, if any, is not read."""
        self._connection.release(self.number, over=self._ended and self.uploaded)

    async def wait_for_headers(self) -> None:
        """Returns when the headers have arrived."""
        while not self.status:
            if self._ended:
                raise RemoteProtocolError("The response has no headers")
            await self.wait()

    async def wait(self) -> None:
        """Returns when something has happened. Raises `ReadTimeout` if nothing does in time."""
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        timer = None if self._idle is None else loop.call_later(self._idle, _time_out, waiter)
        try:
            if self._failure is None:
                await waiter
            if self._failure is not None:
                raise self._failure
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    # What the connection calls.

    def start(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Takes the status and the headers."""
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        self.status, self.headers = int(found.pop(":status")), found
        self.wake()

    def receive(self, data: bytes, size: int) -> None:
        """Takes bytes of the body; `size` is what they take of the window."""
        if data:
            self._chunks.append(data)
        self._unread += size
        self.wake()

    def end(self) -> None:
        """Notes the end of the body."""
        self._ended = True
        self.wake()

    def fail(self, failure: Exception) -> None:
        """Ends the exchange in an error, unless it is over."""
        if not self._ended and self._failure is None:
            self._failure = failure
            self.wake()

    def wake(self) -> None:
        """Lets the reader or the writer look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _time_out(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(ReadTimeout())


def _headers(request: OutgoingRequest) -> list[tuple[bytes, bytes]]:
    encode_head(request)  # raises an error if the request holds what HTTP has no place for
    target = request.target
    found = [
        (b":method", request.method.encode()),
        (b":scheme", target.scheme.encode()),
        (b":authority", target.authority.encode()),
        (b":path", request.path.encode()),
    ]
    for name, value in request.fields:
        lower = name.lower()
        if lower not in _HOP_BY_HOP:
            found.append((lower.encode(), value.strip(" \t").encode("latin-1", "replace")))
    return found


def _reset(event: StreamReset) -> str:
    code = event.error_code
    name = code.name if isinstance(code, ErrorCodes) else str(code)
    return f"The server reset the stream: {name}"
