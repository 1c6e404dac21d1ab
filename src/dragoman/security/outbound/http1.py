"""HTTP/1.1 over one connection: one exchange after the other."""

from __future__ import annotations

import re
from typing import NamedTuple

import httpcore2

from .http1_response import ResponseParser
from .socket_stream import SocketStream
from .target import Target

# Written with every field on a line of its own: whether one field makes two lines is seen by
# counting lines.
_HEAD = re.compile(
    rb"[A-Z]+ [\x21-\x7e]+ HTTP/1\.1\r\n"
    rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*\r\n)+\r\n"
)


class OutgoingRequest(NamedTuple):
    """A request as it goes on the wire, and the seconds that it may take."""

    method: str
    target: Target
    path: str
    fields: list[tuple[bytes, bytes]]
    body: bytes
    connect: float | None
    idle: float | None


class Http1Connection:
    """A connection that carries one exchange at a time."""

    def __init__(self, stream: SocketStream, origin: str) -> None:
        self.stream = stream
        self.origin = origin
        self.unused_since = 0.0
        self._parser = ResponseParser()
        self._idle: float | None = None

    async def begin(self, request: OutgoingRequest) -> tuple[int, dict[str, str]]:
        """Sends a request, and returns the status and the headers of the response."""
        parser = self._parser
        # A body that the other side does not want is no reason to wait: its answer may say why.
        self.stream.send(_head(request) + request.body)
        self._idle = request.idle
        parser.expect(request.method)
        while (found := parser.head()) is None:
            parser.receive(await self.stream.read(timeout=self._idle))
        return found

    async def read(self) -> bytes:
        """Returns the next bytes of the body; nothing at its end."""
        parser = self._parser
        while not (data := parser.body()) and not parser.over:
            parser.receive(await self.stream.read(timeout=self._idle))
        return data

    def end(self) -> bool:
        """Ends the exchange, and returns whether the connection can carry another one, as far as it
        is known now; the socket is asked when it is used again."""
        return self._parser.reusable and self.stream.is_open


def _head(request: OutgoingRequest) -> bytes:
    fields = request.fields
    lines = [
        f"{request.method} {request.path} HTTP/1.1".encode(),
        *map(b": ".join, fields),
        b"\r\n",
    ]
    head = b"\r\n".join(lines)
    if head.count(b"\n") != len(fields) + 2 or not _HEAD.fullmatch(head):
        raise httpcore2.LocalProtocolError(
            "The request holds characters that HTTP has no place for"
        )
    return head
