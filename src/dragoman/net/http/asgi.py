"""The types of ASGI, and functions to read headers, drain a body and send a response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

# Mutable mappings, as in Starlette and asgiref: an app that asks for dicts fits into neither.
Scope = MutableMapping[str, Any]
AsgiEvent = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiEvent]]
Send = Callable[[AsgiEvent], Awaitable[None]]
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


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Returns a `receive` that delivers the body again, as if the request had not been read yet."""
    parts: list[AsgiEvent] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> AsgiEvent:
        return parts.pop() if parts else await receive()

    return received


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
