"""How tasks look at rest: msgpack, or JSON where a number is too large for it.

A log is kept as *pieces*: the events of one write, encoded once, never touched again. Both codings
can be told apart by the first byte, since everything here is an object or an array: in JSON that is
a bracket, which in msgpack would be a bare small number.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from dragoman.core.errors import StoreError
from dragoman.core.events import Stamped
from dragoman.core.model import Json, Task

from .writes import Input

_msgpack = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode
_BRACKETS = b"[{"

BRIEF = 8
"""Events of a task that ended in its first write, up to which its log alone will do."""

A = TypeVar("A")
T = TypeVar("T")


def pack(value: Json) -> bytes:
    """Bytes for a value; `StoreError` if it cannot be written down at all."""
    try:
        return _msgpack(value)
    except OverflowError:
        return _json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"This cannot be kept: {error}.") from error


_DEEPER = 8
"""How much deeper than Python's own limit what was written may be read."""
_deeper = threading.Lock()


def deeply(way: Callable[[A], T], value: A) -> T:
    """What a coder makes of a value, however deep it is: what could be written must be readable,
    also further down the stack, and inside of something else."""
    try:
        return way(value)
    except RecursionError:
        with _deeper:
            limit = sys.getrecursionlimit()
            sys.setrecursionlimit(limit * _DEEPER)
            try:
                return way(value)
            finally:
                sys.setrecursionlimit(limit)


class Unpacker(Generic[T]):
    """The way back for one type."""

    __slots__ = ("_json", "_msgpack")

    def __init__(self, kind: type[T]) -> None:
        self._msgpack = msgspec.msgpack.Decoder(kind).decode
        self._json = msgspec.json.Decoder(kind).decode

    def __call__(self, data: bytes) -> T:
        return deeply(self._json if data[0] in _BRACKETS else self._msgpack, data)


unpack_task = Unpacker(Task)
unpack_input = Unpacker(Input)
unpack_piece = Unpacker(list[Stamped])


unpack_log = Unpacker(list[bytes])


def cut(pieces: Sequence[bytes], after: int, limit: int) -> list[Stamped]:
    """The events behind `after`, at most `limit`, decoding no more than it needs."""
    found: list[Stamped] = []
    for piece in pieces[max(0, bisect_right(pieces, after + 1, key=_start) - 1) :]:
        found += unpack_piece(piece)
        if found[-1].seq >= after + limit:
            break
    return [entry for entry in found if after < entry.seq <= after + limit]


def _start(piece: bytes) -> int:
    return unpack_piece(piece)[0].seq
