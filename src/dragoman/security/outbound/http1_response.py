"""Reads HTTP/1.1 responses (RFC 9112) from bytes, without any input or output.

Theory. A general parser for both sides costs a client more than all the rest of a call. This one
knows what a client needs and refuses the rest. Where a response ends is a matter of security: a
server that can make two readers disagree about it can slip in a response of its own. So a length
is a plain number, the only transfer coding is chunked, and what was said beyond the end of a
response ends the use of the connection. The tests compare it with h11: what it takes, h11 takes
too and reads in the same way.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from .failures import RemoteProtocolError

LARGEST_HEAD = 100 * 1024
"""The bytes that the head of a response may have. Its trailers and the line before a chunk have
the same limit."""

_END_OF_HEAD = re.compile(rb"\n\r?\n")
_STATUS = re.compile(r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?\r?")
_FIELD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*\r?"
_FIELDS = re.compile(rf"(?:\n{_FIELD})*")
_TRAILER = re.compile(_FIELD.encode())
_FOLD = re.compile(r"\r?\n[\t ]+")
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*)?[\t ]*\r")
_USUAL_CHUNK = re.compile(rb"([1-9a-fA-F][0-9a-fA-F]{0,15})\r\n")
_LAST_CHUNK = b"0\r\n\r\n"
_LENGTH = re.compile(r"[0-9]{1,19}")
_LISTS = ("content-length", "transfer-encoding", "connection")
"""Fields that decide where a response ends: each of them counts, not only the last."""
_NO_BODY = (204, 304)


class ResponseParser:
    """The responses of one connection, one after the other."""

    def __init__(self) -> None:
        self._unread = b""
        self._searched = 0
        """How far there is no end of a head."""
        self._ended = False
        self._method = ""
        self.over = True
        """Whether the response is complete."""
        self._lasts = True
        self._left: int | None = 0
        """The bytes that are left of the body, or of its chunk; None: all until the end."""
        self._line = ""
        """What a body in chunks is at: its data (nothing), or a `size`, `end` or `trailer` line."""
        self._chunked = False
        self._trailers = 0

    @property
    def reusable(self) -> bool:
        """Whether another response may follow."""
        return self.over and self._lasts and not self._ended and not self._unread

    def expect(self, method: str) -> None:
        """Begins with the response to a request of this method."""
        self._method, self.over = method, False

    def receive(self, data: bytes) -> None:
        """Takes what has arrived; nothing means that the connection has ended."""
        if data:
            self._unread += data
        else:
            self._ended = True

    def head(self) -> tuple[int, dict[str, str]] | None:
        """Returns the status and the fields of the response, with their names in lower case; None
        if they are not there yet."""
        while (found := _END_OF_HEAD.search(self._unread, self._searched)) is not None:
            if found.start() > LARGEST_HEAD:
                break
            self._searched = 0
            text = self._unread[: found.start()].decode("latin-1")
            self._unread = self._unread[found.end() :]
            head = _head_in(text)
            if head.status == 101:
                raise RemoteProtocolError("The server changes to another protocol")
            if head.status >= 200:
                self._begin_body(head)
                return head.status, head.fields.copy()
        self._searched = max(0, len(self._unread) - 2)
        if len(self._unread) > LARGEST_HEAD:
            raise RemoteProtocolError("The head of the response is too large")
        if self._ended:
            raise RemoteProtocolError("Server disconnected without sending a response.")
        return None

    def body(self) -> bytes:
        """Returns what has arrived of the body since the last call."""
        if self.over:
            return b""
        data = self._dechunked() if self._chunked else self._plain()
        if self._ended and not self.over:
            if self._chunked or self._left is not None:
                raise RemoteProtocolError("The response ends before its end")
            self.over = True
        return data

    def _begin_body(self, head: _Head) -> None:
        self._lasts = head.lasts
        if self._method == "HEAD" or head.status in _NO_BODY:
            self._chunked, self._left = False, 0
        elif head.chunked:
            self._chunked, self._left, self._line, self._trailers = True, 0, "size", 0
            # Somebody on the way may have gone by the length (RFC 9112 §6.3, 3).
            self._lasts = head.lasts and head.length is None
        else:
            self._chunked, self._left = False, head.length
        self.over = self._left == 0 and not self._chunked

    def _plain(self) -> bytes:
        data, left = self._unread, self._left
        if left is None or len(data) < left:
            self._unread = b""
        else:
            data, self._unread = data[:left], data[left:]
            self.over = True
        if left is not None:
            self._left = left - len(data)
        return data

    def _dechunked(self) -> bytes:
        """The data of all chunks that are there."""
        unread, at = self._unread, 0
        parts: list[bytes] = []
        left = self._left or 0
        if self._line == "size":
            at = self._take_whole_chunks(parts)
        while not self.over:
            if left:
                part = unread[at : at + left]
                parts.append(part)
                at += len(part)
                left -= len(part)
                if left:
                    break
                self._line = "end"
            stop = unread.find(b"\n", at)
            if stop < 0:
                if len(unread) - at > LARGEST_HEAD:
                    raise RemoteProtocolError("A line of the response is too long")
                break
            left = self._chunk_line(unread[at:stop])
            at = stop + 1
        self._left, self._unread = left, unread[at:]
        return b"".join(parts)

    def _take_whole_chunks(self, parts: list[bytes]) -> int:
        """Takes the chunks that have arrived from their first byte to their last, as nearly all do:
        line by line they would cost five times as much. Returns where the rest begins."""
        unread, at = self._unread, 0
        while (found := _USUAL_CHUNK.match(unread, at)) is not None:
            begin = found.end()
            end = begin + int(found[1], 16)
            if not unread.startswith(b"\r\n", end):
                return at
            parts.append(unread[begin:end])
            at = end + 2
        if unread.startswith(_LAST_CHUNK, at):
            self.over = True
            at += len(_LAST_CHUNK)
        return at

    def _chunk_line(self, line: bytes) -> int:
        """Reads a line between chunks, and returns the size of the chunk behind it."""
        if self._line == "size" and (found := _CHUNK.fullmatch(line)):
            size = int(found[1], 16)
            if not size:
                self._line = "trailer"
            return size
        if self._line == "end" and line == b"\r":
            self._line = "size"
            return 0
        if self._line == "trailer":
            self._trailers += len(line)
            if line in (b"\r", b""):
                self.over = True
                return 0
            if _TRAILER.fullmatch(line) and self._trailers < LARGEST_HEAD:
                return 0
        raise RemoteProtocolError("The chunks of the response are malformed")


class _Head(NamedTuple):
    """The head of a response, and what it says about the end of the body (RFC 9112 §6.3)."""

    status: int
    fields: dict[str, str]
    lasts: bool
    """Whether the connection outlives the response."""
    chunked: bool
    length: int | None


@lru_cache(maxsize=64)  # a server repeats itself, at least within a second
def _head_in(text: str) -> _Head:
    line, newline, rest = text.partition("\n")
    rest = newline + rest
    if "\n " in rest or "\n\t" in rest:
        rest = _FOLD.sub(" ", rest)
    start = _STATUS.fullmatch(line)
    if start is None or not _FIELDS.fullmatch(rest):
        raise RemoteProtocolError("The head of the response is malformed")
    fields: dict[str, str] = {}
    for field in rest.split("\n")[1:]:
        name, _, value = field.partition(":")
        name, value = name.lower(), value.strip("\t\r ")
        if name in _LISTS and name in fields:
            value = f"{fields[name]},{value}"
        fields[name] = value
    version, status = start[1], int(start[2])
    if status < 200:
        return _Head(status, fields, lasts=True, chunked=False, length=None)
    coding, told = fields.get("transfer-encoding"), fields.get("content-length")
    if coding is not None and coding.lower() != "chunked":
        raise RemoteProtocolError(f"Unknown transfer coding: {coding[:40]}")
    length = None if told is None else _length(told)
    lasts = version == "1" and "close" not in fields.get("connection", "").lower()
    return _Head(status, fields, lasts, coding is not None, length)


def _length(told: str) -> int:
    lengths = {each.strip("\t ") for each in told.split(",")}
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        raise RemoteProtocolError(f"No content length: {told[:40]}")
    return int(length)
