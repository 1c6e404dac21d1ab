"""HTTP/2 over one of our connections.

httpcore2 speaks it. No other module knows that package or its errors, and this one is imported when
a server is found to speak HTTP/2: the package takes longer to import than all of our client.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import cast

import httpcore2

from .failures import (
    ConnectionFailed,
    LocalProtocolError,
    ReadError,
    ReadTimeout,
    RemoteProtocolError,
    WriteTimeout,
)
from .socket_stream import SocketStream
from .target import OutgoingRequest

_OURS: dict[type[Exception], type[ConnectionFailed]] = {
    httpcore2.WriteTimeout: WriteTimeout,
    httpcore2.TimeoutException: ReadTimeout,
    httpcore2.LocalProtocolError: LocalProtocolError,
    httpcore2.ProtocolError: RemoteProtocolError,
    httpcore2.NetworkError: ReadError,
}
"""Our errors for those of httpcore2, the narrower ones first. Those of the stream are ours already,
and connections are opened by us."""


class Retired(Exception):
    """The connection takes no more requests, and has not processed this one."""


class Http2Connection:
    """A connection that carries all exchanges with its origin."""

    def __init__(self, request: OutgoingRequest, stream: SocketStream, keep: float) -> None:
        """`request` is the first one, and `keep` the seconds for which the connection is kept when
        it is not used."""
        self._stream = stream
        wanted = cast(httpcore2.AsyncNetworkStream, stream)
        self._connection = httpcore2.AsyncHTTP2Connection(_url(request).origin, wanted, keep)

    def is_usable(self) -> bool:
        """Returns whether another request can go over it."""
        connection = self._connection
        return self._stream.is_open and connection.is_available() and not connection.has_expired()

    def is_over(self) -> bool:
        """Returns whether no response is arriving over it."""
        return self._connection.is_idle() or self._connection.is_closed()

    async def begin(self, request: OutgoingRequest) -> Http2Response:
        """Sends a request, and returns the response as soon as its headers are there. Raises
        `Retired` if the request has to go over another connection."""
        times = {"read": request.idle, "write": request.idle}
        sent = httpcore2.Request(
            request.method,
            _url(request),
            headers=[(k.encode(), v.encode("latin-1", "replace")) for k, v in request.fields],
            content=request.body,
            extensions={"timeout": times},
        )
        with _our_errors():
            return Http2Response(await self._connection.handle_async_request(sent))

    async def close(self) -> None:
        """Closes the connection, and what is still arriving over it."""
        await self._connection.aclose()


class Http2Response:
    """A response whose body is still arriving."""

    def __init__(self, response: httpcore2.Response) -> None:
        self.status = response.status
        self.headers = {
            k.decode("latin-1").lower(): v.decode("latin-1") for k, v in response.headers
        }
        self._response = response
        self._chunks: AsyncGenerator[bytes, None] = response.aiter_stream()

    async def read(self) -> bytes:
        """Returns the next bytes of the body; nothing at its end."""
        with _our_errors():
            while (chunk := await anext(self._chunks, None)) is not None:
                if chunk:
                    return chunk
        return b""

    async def close(self) -> None:
        """Ends the exchange; the rest of the body, if any, is not read."""
        with _our_errors():
            await self._chunks.aclose()
            await self._response.aclose()


@contextmanager
def _our_errors() -> Iterator[None]:
    try:
        yield
    except httpcore2.ConnectionNotAvailable:
        raise Retired from None
    except tuple(_OURS) as exc:
        found = next(ours for theirs, ours in _OURS.items() if isinstance(exc, theirs))
        raise found(*exc.args) from exc


def _url(request: OutgoingRequest) -> httpcore2.URL:
    target = request.target
    return httpcore2.URL(
        scheme=target.scheme.encode(),
        host=target.host.encode(),
        port=target.port,
        target=request.path.encode(),
    )
