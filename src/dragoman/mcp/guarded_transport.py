"""The HTTP client of the `mcp` package, over our own guarded one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import httpx2

from dragoman.core.errors import DragomanError
from dragoman.security.outbound.guarded_http import (
    ALL_PORTS,
    GuardedHttp,
    HttpStream,
    Rules,
    TypedHost,
    Unreachable,
)

OURS = frozenset(("host", "content-length", "accept-encoding", "connection"))
"""Headers that the guarded client writes itself, or that it cannot undo."""
CONNECT = 15.0
"""Seconds that a connection may take."""


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests to the host in the settings, which must stay in the network where it was
    found first."""

    def __init__(self, url: str, max_size: int) -> None:
        self._max_size = max_size
        typed = TypedHost((urlsplit(url).hostname or "").lower(), Rules(ports=ALL_PORTS))
        self._http = GuardedHttp(Rules(ports=ALL_PORTS), typed=typed, http2=True)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Returns the answer to a request, as it comes."""
        body = await request.aread()
        headers = {name: value for name, value in request.headers.items() if name not in OURS}
        stack = AsyncExitStack()
        try:
            target = self._http.target(str(request.url))
            found = await stack.enter_async_context(
                self._http.open(request.method, target, headers=headers, body=body, connect=CONNECT)
            )
        except (DragomanError, Unreachable) as exc:
            raise httpx2.ConnectError(str(exc), request=request) from exc
        events = found.headers.get("content-type", "").startswith("text/event-stream")
        # The package itself limits each event of a stream.
        most = None if events else self._max_size
        return httpx2.Response(
            found.status, headers=dict(found.headers), stream=_Body(found, stack, most)
        )

    async def aclose(self) -> None:
        """Closes all connections."""
        await self._http.close()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, found: HttpStream, stack: AsyncExitStack, most: int | None) -> None:
        self._found, self._stack, self._most = found, stack, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for chunk in self._found.chunks:
                size += len(chunk)
                if self._most is not None and size > self._most:
                    raise httpx2.ReadError(f"The answer is larger than {self._most} bytes")
                yield chunk
        except Unreachable as exc:
            raise httpx2.ReadError(str(exc)) from exc

    async def aclose(self) -> None:
        await self._stack.aclose()
