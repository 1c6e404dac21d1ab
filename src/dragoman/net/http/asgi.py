"""The types of ASGI, and functions to read headers, drain a body and send a response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Handler = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON: Header = (b"content-type", b"application/json")
KNOWN = {
    name.encode(): name
    for name in (
        *("host", "accept", "accept-encoding", "connection", "user-agent"),
        *("content-type", "content-length", "authorization", "traceparent"),
        *("a2a-version", "a2a-extensions", "last-event-id", "idempotency-key"),
    )
}
"""The decoded names of frequent headers."""
TEXT: Header = (b"content-type", b"text/plain; charset=utf-8")
CLOSE: Header = (b"connection", b"close")
LEFT_SIZE, LEFT_TIME = 65_536, 2.0
"""The bytes and the seconds for which an unwanted body is read."""


def headers_in(pairs: list[Header]) -> dict[str, str]:
    """Returns header lines as a dictionary. The values of repeated names are joined by commas."""
    headers = {
        KNOWN.get(name) or name.decode("latin-1"): value.decode("latin-1") for name, value in pairs
    }
    if len(headers) != len(pairs):  # a name is repeated, which is rare
        # Joined once at the end: adding to a string line by line is quadratic, and an HTTP/2
        # request of 8 KB can unpack to thousands of lines.
        values: dict[str, list[str]] = {}
        for raw_name, raw_value in pairs:
            values.setdefault(raw_name.decode("latin-1"), []).append(raw_value.decode("latin-1"))
        headers = {name: ", ".join(lines) for name, lines in values.items()}
    return headers


async def drain_body(
    scope: Scope, receive: Receive, headers: Mapping[str, str]
) -> tuple[bytes, tuple[Header, ...]]:
    """Reads the body of a request that is refused. Returns it if it came whole, and the headers to
    add to the response if it is too long to be read.

    The server closes a connection whose request was answered before all of it had arrived, and a
    client that has not noticed that would lose its next request.
    """
    body = await _read_through(scope, receive, headers)
    return body or b"", (CLOSE,) if body is None and ends_by_length(scope) else ()


def ends_by_length(scope: Scope) -> bool:
    """Returns whether a body of known length ends with its last byte. Over HTTP/2 it ends with a
    flag that may follow in a frame of its own. A request that is answered before that is reset
    (RFC 9113 §8.1), which httpx reports as a failure."""
    return bool(scope["http_version"] in ("1.1", "1.0"))


async def _read_through(scope: Scope, receive: Receive, headers: Mapping[str, str]) -> bytes | None:
    declared = headers.get("content-length", "")
    size = int(declared) if declared.isdigit() and len(declared) < 20 else -1
    if size == 0 or (size < 0 and "transfer-encoding" not in headers):
        return b""
    whole, have, body = size if ends_by_length(scope) else -1, 0, bytearray()
    try:
        async with asyncio.timeout(LEFT_TIME):
            while max(have, size) <= LEFT_SIZE:
                message = await receive()
                body += message.get("body", b"")
                have = len(body)
                if have == whole or not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        pass
    return None


async def answer(
    send: Send,
    status: int,
    body: bytes = b"",
    kind: Header = JSON,
    extra: tuple[Header, ...] = (),
    *,
    head: bool = False,
) -> None:
    """Sends a whole response. For a HEAD request (`head`) the body is left out, but not its
    length."""
    headers = [*extra]
    if status not in (204, 304):
        headers = [kind, (b"content-length", b"%d" % len(body)), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else body, "more_body": False})
