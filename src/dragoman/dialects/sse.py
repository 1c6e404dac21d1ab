"""Server-sent events: how a frame of a stream is written, and a parser fed with bytes as they come.

The parser takes what the HTML standard and the wild have: CR, LF and CRLF, comments, several data
lines, an id that holds until the next, a last event without its blank line. Its cost is linear in
the bytes fed, and it keeps no more than one event of `max_size` bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from dragoman.core.errors import PeerMisbehaved

KEEP_ALIVE = b": keep-alive\n"
"""A comment, without a blank line: behind an `id:` that would be an empty event to httpx-sse."""
MAX_SIZE = 16 * 1024 * 1024


def event(body: bytes, mark: str = "", name: str = "") -> bytes:
    """One event. `body` is JSON as our encoder writes it, which has no line ends."""
    if name:
        return b"event: %b\n%b" % (name.encode(), event(body, mark))
    if mark:
        return b"id: %b\ndata: %b\n\n" % (mark.encode(), body)
    return b"data: %b\n\n" % body


class SseEvent(NamedTuple):
    """What was between two blank lines."""

    data: bytes
    mark: str = ""
    """The id that holds here, set by this event or by one before it."""
    name: str = ""


class SseParser:
    """Bytes in, events out."""

    def __init__(self, max_size: int = MAX_SIZE) -> None:
        self._max_size = max_size
        self._line: list[bytes] = []
        self._line_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._mark = ""
        self._name = ""
        self._after_cr = False
        self._first_line = True

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that end in these bytes. Raises `PeerMisbehaved` when one is too large."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")  # the other half of a CRLF cut in two
        if chunk.endswith(b"\r"):
            self._after_cr = True
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events: list[SseEvent] = []
        for line in lines:
            self._grow(line)
            events += self._end_line()
        self._grow(rest)
        return events

    def close(self) -> list[SseEvent]:
        """The event that was still open when the stream ended, if there is one."""
        return [*self._end_line(), *self._dispatch()]

    def _grow(self, piece: bytes) -> None:
        self._line.append(piece)
        self._line_size += len(piece)
        if self._line_size + self._data_size > self._max_size:
            raise PeerMisbehaved(f"An event is larger than {self._max_size} bytes")

    def _end_line(self) -> list[SseEvent]:
        line = b"".join(self._line)
        self._line.clear()
        self._line_size = 0
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"data":
                self._data.append(value)
                self._data_size += len(value) + 1  # its line end counts, or empty lines were free
            case b"id" if b"\0" not in value:
                self._mark = value.decode(errors="replace")
            case b"event":
                self._name = value.decode(errors="replace")
        return []

    def _dispatch(self) -> list[SseEvent]:
        data, name = self._data, self._name
        self._data, self._data_size, self._name = [], 0, ""
        return [SseEvent(b"\n".join(data), self._mark, name)] if data else []
