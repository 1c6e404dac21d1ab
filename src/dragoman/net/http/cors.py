"""Tells browsers which pages of other origins may call us and read the answers (Fetch §3.2)."""

from __future__ import annotations

from collections.abc import Awaitable

from dragoman.settings import Cors

from .asgi import AsgiEvent, Header, Scope, Send, answer

METHODS = b"GET, POST, DELETE"
REQUEST_HEADERS = (
    *("a2a-extensions", "a2a-version", "accept", "authorization", "content-type"),
    *("idempotency-key", "last-event-id", "traceparent", "tracestate", "x-a2a-extensions"),
    "x-api-key",
)
"""What callers of our dialects send."""
RESPONSE_HEADERS = (
    b"a2a-extensions, content-disposition, etag, retry-after, www-authenticate, x-a2a-extensions"
)
"""What a page may read of an answer, beside what every page may read."""


class CrossOrigin:
    """Answers preflight requests, and marks the answers that a page may read."""

    def __init__(self, cors: Cors) -> None:
        self._any = "*" in cors.origins
        self._origins = frozenset(origin.lower().encode() for origin in cors.origins)
        shared: list[Header] = []
        if cors.credentials:
            shared.append((b"access-control-allow-credentials", b"true"))
        allowed = dict.fromkeys((*REQUEST_HEADERS, *(name.lower() for name in cors.headers)))
        self._answer = (*shared, (b"access-control-expose-headers", RESPONSE_HEADERS))
        self._preflight = (
            *shared,
            (b"vary", b"Origin"),
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", ", ".join(allowed).encode()),
            (b"access-control-max-age", b"%d" % cors.max_age),
        )

    def origin_in(self, scope: Scope) -> bytes:
        """Returns the origin of the page that makes a browser send this, if it may; else an empty
        text."""
        for name, value in scope["headers"]:
            if name == b"origin":
                origin: bytes = value
                return origin if self._any or origin.lower() in self._origins else b""
        return b""

    def is_preflight(self, scope: Scope) -> bool:
        """Returns whether a browser asks what a page may do."""
        return scope["method"] == "OPTIONS" and any(
            name == b"access-control-request-method" for name, _ in scope["headers"]
        )

    def preflight(self, send: Send, origin: bytes) -> Awaitable[None]:
        """Answers what a page of this origin may do."""
        return answer(send, 204, extra=(_allow(origin), *self._preflight))

    def marking(self, send: Send, origin: bytes) -> Send:
        """Returns a `send` whose answer the pages of this origin may read."""

        async def marked(message: AsgiEvent) -> None:
            if message["type"] == "http.response.start":
                varies = [value for name, value in message["headers"] if name == b"vary"]
                headers = [header for header in message["headers"] if header[0] != b"vary"]
                vary = b"vary", b", ".join((*varies, b"Origin"))
                message = {**message, "headers": [*headers, vary, _allow(origin), *self._answer]}
            await send(message)

        return marked


def _allow(origin: bytes) -> Header:
    return b"access-control-allow-origin", origin
