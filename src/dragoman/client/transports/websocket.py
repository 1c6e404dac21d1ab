"""The WebSocket transport, for every dialect. Only this module imports the `websockets` package.

Calls share a WebSocket. A stream has one of its own while it lasts: a slow reader then delays no
other call, since nothing waits behind its events, and closing the WebSocket tells the server at
once that the reader left. A stream that came to its end leaves its WebSocket to the next request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from time import monotonic
from typing import Any
from urllib.parse import urlencode

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus

from dragoman.core.errors import (
    DragomanError,
    PeerRefused,
    PeerUnreachable,
    Unauthenticated,
    Unsupported,
)
from dragoman.core.operations import Streamed
from dragoman.core.peer import Batch, Begun, Context, begin_stream
from dragoman.core.session import CallerSession, Frame, Signal
from dragoman.dialects.refusals import explanation_in
from dragoman.net.http.asgi import AsgiEvent, Receive, Send
from dragoman.net.websocket.peer import WebSocketPeer
from dragoman.security.outbound.connection_pool import KEEP

from ..credentials import Credentials
from .http import Address, Http
from .transport import Asking, Destination, Transport, new_id

CLOSING = 1.0
"""The seconds for which we wait for the other side's close frame."""
MOST_IDLE = 4
"""The number of idle WebSockets that are kept open."""
_NOT_HERE = frozenset((404, 405))


class _Connect(connect):
    """Connects without following redirects, since only the checked address may be called."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class WatchedConnection(ClientConnection):
    """A connection that knows when anything arrived last: a message, a ping, or a part of one."""

    heard_at = 0.0

    def data_received(self, data: bytes) -> None:
        self.heard_at = self.loop.time()
        super().data_received(data)


async def open_websocket(
    http: Http,
    address: Address,
    path: str,
    headers: Mapping[str, str],
    max_size: int,
    *,
    watched: bool = False,
    tls: ssl.SSLContext | None = None,
) -> ClientConnection:
    """Opens a WebSocket to a checked address. Certificates are verified, and no proxy is used.
    A `watched` connection is a `WatchedConnection`, whose user sends the pings; `tls` takes the
    place of the usual verification."""
    target, limits = address.target, http.limits
    secure = target.scheme == "https"
    pause = None if watched else limits.idle / 2
    where = await http.reachable(address)
    try:
        return await _Connect(
            f"{'wss' if secure else 'ws'}://{target.authority}{path}",
            host=where,
            port=target.port,
            ssl=(tls or http.tls_for(address.origin)) if secure else None,
            max_size=max_size,
            additional_headers=headers,
            user_agent_header=None,
            open_timeout=limits.connect,
            close_timeout=CLOSING,
            # TCP may not report for hours that the other side is gone, so unanswered pings end the
            # connection.
            ping_interval=pause,
            ping_timeout=pause,
            create_connection=WatchedConnection if watched else ClientConnection,
            proxy=None,
            # The number of messages that wait in the library. Each may be `max_size` long.
            max_queue=8,
        )
    except InvalidStatus as exc:
        raise _refusal(exc, address, headers) from exc
    except (InvalidHandshake, InvalidMessage, OSError, EOFError, TimeoutError) as exc:
        why = str(exc) or "it did not answer in time"
        raise PeerUnreachable(f"{address.origin} cannot be reached: {why}") from None


def _refusal(exc: InvalidStatus, address: Address, headers: Mapping[str, str]) -> DragomanError:
    status, given = exc.response.status_code, exc.response.headers
    why = explanation_in(bytes(exc.response.body or b""))
    why = f": {why}" if why else ""
    if status == 401 or (status == 403 and "authorization" in headers):
        challenge = given.get("www-authenticate", "")
        refusal = f"The other side did not open a WebSocket{why}"
        return Unauthenticated(refusal, challenge=challenge)
    if 300 <= status < 400:
        where = given.get("location", "")
        return PeerUnreachable(f"This address has moved to {where[:200]}: use that one")
    if status in _NOT_HERE:
        return PeerRefused(f"There is no WebSocket at {address.origin}", code=status)
    return PeerUnreachable(f"{address.origin} opens no WebSocket: HTTP status {status}{why}")


def halves(socket: ClientConnection) -> tuple[Receive, Send]:
    """Returns a WebSocket as the `receive` and `send` functions of ASGI."""

    async def receive() -> AsgiEvent:
        try:
            said = await socket.recv()
        except ConnectionClosed:
            return {"type": "websocket.disconnect"}
        key = "text" if isinstance(said, str) else "bytes"
        return {"type": "websocket.receive", key: said}

    async def send(message: AsgiEvent) -> None:
        try:
            await socket.send(message["text"])
        except ConnectionClosed:
            raise PeerUnreachable("The connection was closed", sent=True) from None

    return receive, send


class _Channel:
    """One open WebSocket with the calls that wait for their answers."""

    def __init__(self, caller: CallerSession, era: int) -> None:
        self.era = era
        """The transport's era at the time when this was opened."""
        self.peer = WebSocketPeer(caller, self._say, new_id=new_id)
        self._socket: ClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None
        self.calls = 0
        self.streams = False
        self.latest = monotonic()
        """The time of the last use."""

    def begin(self, socket: ClientConnection) -> None:
        """Starts to read from the open WebSocket."""
        self._socket = socket
        self._reader = asyncio.get_running_loop().create_task(self._read(socket))

    async def _say(self, frame: Frame) -> None:
        assert self._socket is not None  # noqa: S101  nothing is said before it is open
        try:
            await self._socket.send(frame.body.decode())
        except ConnectionClosed:
            raise PeerUnreachable("The connection was closed", sent=True) from None

    async def _read(self, socket: ClientConnection) -> None:
        try:
            async for body in socket:
                frame = Frame(body.encode() if isinstance(body, str) else body)
                if self.peer.caller.expects(frame):
                    await self.peer.hear(frame)
        except (ConnectionClosed, DragomanError):
            pass  # `lost` fails the calls that still wait for an answer
        finally:
            self.peer.lost()

    async def close(self) -> None:
        """Closes the WebSocket."""
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader
        if self._socket is not None:
            await self._socket.close()


class WebSocketTransport(Transport):
    """Calls one address over a few WebSockets."""

    def __init__(self, to: Destination) -> None:
        super().__init__(to)
        self._paths = list(to.paths) or [self._address.path]
        self._channels: set[_Channel] = set()

    async def _answer(
        self, make: Callable[[Any], Asking], ctx: Context, who: Credentials
    ) -> Signal:
        async with self._using(who) as channel:
            seconds = self._seconds(make(""))
            return await channel.peer.ask(make, ctx, seconds)

    @asynccontextmanager
    async def _using(self, who: Credentials) -> AsyncIterator[_Channel]:
        """Lends a WebSocket to one call, which other calls may share."""
        channel = await self._open(who, alone=False)
        channel.calls += 1
        try:
            yield channel
        finally:
            channel.calls -= 1
            await self._release(channel)

    def _begin(self, op: Streamed, ctx: Context, who: Credentials) -> Awaitable[Begun]:
        return begin_stream(self._stream(op, ctx, who))

    async def _stream(
        self, op: Streamed, ctx: Context, who: Credentials
    ) -> AsyncGenerator[Batch, None]:
        channel = await self._open(who, alone=True)
        channel.streams = True
        ended = False
        try:
            async with aclosing(channel.peer.stream(op, ctx, self.limits.idle / 2)) as batches:
                async for batch in batches:
                    if not batch.entries and not batch.last:
                        await self._check(channel)
                    yield batch
                    ended = batch.last
        finally:
            channel.streams = False
            if not ended:
                # The other side would go on sending events that nobody reads.
                await self._drop(channel)
            else:
                await self._release(channel)

    async def _check(self, channel: _Channel) -> None:
        """Pings the other side of a silent stream, since servers close WebSockets that are silent
        for too long."""
        with suppress(Unsupported):
            await channel.peer.ping(self.limits.idle / 2)

    async def _open(self, who: Credentials, *, alone: bool) -> _Channel:
        """Returns an open WebSocket: an unused one if `alone`, otherwise one without a stream."""
        channel = await self._found(alone=alone)
        if channel is not None:
            return channel
        talk = self._talk(who)
        if alone and (talk is None or talk.recognized):
            channel, _ = await self._connect(who)
            return channel
        async with self._introducing:  # calls that are made meanwhile wait for it
            channel = await self._found(alone=alone)
            if channel is None:
                channel, _ = await self._connect(who)
            return channel

    async def _found(self, *, alone: bool) -> _Channel | None:
        now = monotonic()
        for channel in tuple(self._channels):
            free = not channel.calls and not channel.streams
            old = channel.era != self._era
            # The other side may be about to close a WebSocket that was idle for long, and a request
            # over it would be lost.
            if channel.peer.closed or (free and (old or now - channel.latest > KEEP)):
                await self._drop(channel)
            elif not old and (free or (not alone and not channel.streams)):
                return channel
        return None

    async def _introduce(self, who: Credentials) -> Signal | None:
        async with self._introducing:
            _, welcome = await self._connect(who)
            return welcome

    async def _connect(self, who: Credentials) -> tuple[_Channel, Signal | None]:
        """Opens a new WebSocket and introduces us, unless the other side knows us already."""
        talk = self._talk(who)
        session = talk.begin() if talk is not None else self.dialect.caller()
        assert isinstance(session, CallerSession)  # noqa: S101  as dialects of this wire have it
        channel = _Channel(session, self._era)
        hello = None
        headers = dict(who.headers)
        if talk is not None and not talk.recognized:
            # The proof in the handshake's headers is a signature over the first frame.
            hello = channel.peer.prepare(self._hello)
            headers |= self._proof(hello[1][0], who)
        channel.begin(await self._handshake(headers, who))
        welcome = None
        if hello is not None:
            try:
                said = channel.peer.say_prepared(*hello, self.limits.answer)
                welcome = await self._welcome(said)
            except BaseException:
                await channel.close()
                raise
        self._channels.add(channel)
        return channel, welcome

    async def _handshake(self, headers: Mapping[str, str], who: Credentials) -> ClientConnection:
        while True:
            path = self._paths[0]
            if who.query:
                path += ("&" if "?" in path else "?") + urlencode(who.query)
            try:
                return await open_websocket(
                    self._http, self._address, path, headers, self.limits.event_size
                )
            except PeerRefused:
                if len(self._paths) == 1:
                    raise
                del self._paths[0]

    async def _release(self, channel: _Channel) -> None:
        channel.latest = monotonic()
        idle = [each for each in self._channels if not each.calls and not each.streams]
        if channel.peer.closed or (len(idle) > MOST_IDLE and channel in idle):
            await self._drop(channel)

    async def _drop(self, channel: _Channel) -> None:
        self._channels.discard(channel)
        await channel.close()

    async def close(self) -> None:
        """Closes every WebSocket."""
        channels, self._channels = self._channels, set()
        for channel in channels:
            await channel.close()
