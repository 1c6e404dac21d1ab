"""Server-sent events: writes the frames of a stream, and parses bytes as they arrive.

The parser accepts what the HTML standard defines and what servers send: CR, LF and CRLF, comments,
several data lines, an id that holds until the next one, and a last event without its blank line.
Its cost is linear in the number of bytes, and it keeps no more than one event of `max_size` bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dragoman.core.errors import PeerMisbehaved
from dragoman.core.session import Frame

KEEP_ALIVE = b": keep-alive\n"
"""A comment, without a blank line: behind an `id:` that would be an empty event to httpx-sse."""
MAX_SIZE = 16 * 1024 * 1024

_USUAL = re.compile(rb"(?:id: (.+)\n)?data: (.*)\n\n|((?s:.+))")
"""An event as nearly all servers write it, or all bytes from one on that looks otherwise."""
_NO_HEADERS: Mapping[str, str] = {}
_CR, _NUL = b"\r\0"


def event(body: bytes, mark: str = "", name: str = "") -> bytes:
    """One event. `body` is JSON as our encoder writes it, which has no line ends."""
    if name:
        return b"event: %b\n%b" % (name.encode(), event(body, mark))
    if mark:
        return b"id: %b\ndata: %b\n\n" % (mark.encode(), body)
    return b"data: %b\n\n" % body


class SseParser:
    """Bytes in, events out. The mark of an event is the id that holds there, set by this event or
    by one before it."""

    def __init__(self, max_size: int = MAX_SIZE) -> None:
        self._max_size = max_size
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._line_size = self._data_size = 0
        self._mark = self._name = ""
        self._after_cr, self._first_line = False, True

    def feed(self, chunk: bytes) -> list[Frame]:
        """Returns the events that end in these bytes. Raises `PeerMisbehaved` when one is too
        large."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")  # the other half of a CRLF cut in two
        events: list[Frame] = []
        # As numbers, because bytes in bytes are first taken for a number, which raises an error.
        if not (self._line_size or self._data or self._name or _CR in chunk or _NUL in chunk):
            events, chunk = self._take_usual(chunk)
            if not chunk:
                return events
        if chunk.endswith(b"\r"):
            self._after_cr = True
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            if self._line_size:  # its beginning came in other bytes
                self._grow(line)
                self._end_line(events)
            elif len(line) + self._data_size > self._max_size:
                raise self._too_large()
            else:
                self._take(line, events)
        if rest:
            self._grow(rest)
        return events

    def _take_usual(self, chunk: bytes) -> tuple[list[Frame], bytes]:
        """Takes the events at the beginning of these bytes that look as nearly all do: line by
        line they would cost more than their JSON. Returns them, and the rest."""
        found, rest = _USUAL.findall(chunk), b""
        if found and found[-1][2]:
            rest = found.pop()[2]
        most = self._max_size - 6  # the name of the field counts, as elsewhere
        if len(chunk) > most and any(len(data) > most for _, data, _ in found):
            raise self._too_large()
        mark = self._mark
        events = [
            Frame(data, "", _NO_HEADERS, 200, mark := id.decode("utf-8", "replace") if id else mark)
            for id, data, _ in found
        ]
        if events:
            self._mark, self._first_line = mark, False
        return events, rest

    def close(self) -> list[Frame]:
        """Returns the event that was still open when the stream ended, if there is one."""
        events: list[Frame] = []
        self._end_line(events)
        self._take(b"", events)
        return events

    def _grow(self, piece: bytes) -> None:
        self._line.append(piece)
        self._line_size += len(piece)
        if self._line_size + self._data_size > self._max_size:
            raise self._too_large()

    def _too_large(self) -> PeerMisbehaved:
        return PeerMisbehaved(f"An event is larger than {self._max_size} bytes")

    def _end_line(self, events: list[Frame]) -> None:
        line = b"".join(self._line)
        self._line.clear()
        self._line_size = 0
        self._take(line, events)

    def _take(self, line: bytes, events: list[Frame]) -> None:
        """Takes a line, of which a blank one ends an event."""
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if self._data:
                data = b"\n".join(self._data)
                events.append(Frame(data, "", _NO_HEADERS, 200, self._mark, self._name))
                self._data, self._data_size = [], 0
            self._name = ""
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_size += len(value) + 1  # its line end counts, or empty lines were free
        elif field == b"id" and b"\0" not in value:
            self._mark = value.decode(errors="replace")
        elif field == b"event":
            self._name = value.decode(errors="replace")
