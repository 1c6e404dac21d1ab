"""HTTP/1.1 over one connection: one exchange after the other."""

from __future__ import annotations

import re
from functools import lru_cache
from operator import itemgetter

from .failures import LocalProtocolError
from .http1_response import ResponseParser
from .socket_stream import SocketStream
from .target import OutgoingRequest

_FIRST_LINE = re.compile(r"[A-Z]+ [\x21-\x7e]+ HTTP/1\.1")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_WITHIN_LINES = b"\t" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100))
"""What a line may hold. Without it nothing but the ends of lines is left of a head."""


LARGE = 65_536
"""The size of a body above which a second write costs less than a copy."""


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
        head, body = encode_head(request), request.body
        if len(body) > LARGE:
            self.stream.send(head)
            self.stream.send(body)
        else:
            self.stream.send(head + body)
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
        """Ends the exchange, and returns whether the connection can carry another one."""
        # The socket itself is asked when the connection is taken again.
        return self._parser.reusable and self.stream.is_silent


def encode_head(request: OutgoingRequest) -> bytes:
    """Returns the head of a request. Raises `LocalProtocolError` if it would not be one."""
    fields = request.fields
    line = f"{request.method} {request.path} HTTP/1.1"
    head = "\r\n".join([line, *map(": ".join, fields), "\r\n"]).encode("latin-1", "replace")
    # Each field is on a line of its own, so whether one makes two lines is seen by their number.
    ends = head.translate(None, _WITHIN_LINES)
    is_clean = ends == b"\r\n" * (len(fields) + 2) and _FIRST_LINE.fullmatch(line)
    if not is_clean or not _are_names(tuple(map(itemgetter(0), fields))):
        raise LocalProtocolError("The request holds characters that HTTP has no place for")
    return head


@lru_cache(maxsize=256)  # requests have different values, but nearly always the same fields
def _are_names(names: tuple[str, ...]) -> bool:
    return all(map(_NAME.fullmatch, names))
