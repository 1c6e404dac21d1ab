"""Opening a WebSocket: the one place that knows the `websockets` package."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage

from dragoman.core.errors import PeerUnreachable

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@asynccontextmanager
async def dialed(
    url: str, max_size: int, headers: Mapping[str, str]
) -> AsyncIterator[tuple[Receive, Send]]:
    """A socket to this address, as ASGI has its two halves. Certificates are verified."""
    try:
        socket = await connect(
            url,
            max_size=max_size,
            additional_headers=headers,
            open_timeout=10,
            close_timeout=1,
            proxy=None,
            max_queue=32,
        )
    except (InvalidHandshake, InvalidMessage, OSError, TimeoutError) as exc:
        raise PeerUnreachable(f"The host cannot be reached: {exc}") from exc

    async def receive() -> dict[str, Any]:
        try:
            said = await socket.recv()
        except ConnectionClosed:
            return {"type": "websocket.disconnect"}
        key = "text" if isinstance(said, str) else "bytes"
        return {"type": "websocket.receive", key: said}

    async def send(message: dict[str, Any]) -> None:
        try:
            await socket.send(message["text"])
        except ConnectionClosed as exc:
            raise PeerUnreachable("The connection was closed", sent=True) from exc

    try:
        yield receive, send
    finally:
        await socket.close()
