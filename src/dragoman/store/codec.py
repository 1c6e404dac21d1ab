"""Encodes tasks for a store: as msgpack, or as JSON where a number is too large for msgpack.

A log is kept in *pieces*. A piece holds the events of one write; it is encoded once and never
changed. It names its task and context once, which makes a short log shorter by a third. The first
byte tells the two encodings apart, since every value here is an object or an array: JSON begins
with a bracket, which in msgpack would be a small number.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Generic, TypeVar

import msgspec

from dragoman.core.errors import StoreError
from dragoman.core.events import AnyEvent, Stamped
from dragoman.core.model import Json, Task

from .writes import Input

_msgpack = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode
_BRACKETS = b"[{"

BRIEF = 8
"""The maximum number of events of a task that is stored as its log alone. Such a task ends with its
first write, and is computed from its log when it is read."""

A = TypeVar("A")
T = TypeVar("T")


def pack(value: Json) -> bytes:
    """Encodes a value. Raises `StoreError` if it cannot be encoded at all."""
    try:
        return _msgpack(value)
    except OverflowError:
        return _json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"This cannot be stored: {error}.") from error


_DEEPER = 8
"""The factor by which the recursion limit is raised to decode what we have encoded."""
_deeper = threading.Lock()


def deeply(way: Callable[[A], T], value: A) -> T:
    """Encodes or decodes a value that may be nested deeply. What could be encoded must be readable
    again, even further down the stack or inside another value."""
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
    """Decodes values of one type."""

    __slots__ = ("_json", "_msgpack")

    def __init__(self, kind: type[T]) -> None:
        self._msgpack = msgspec.msgpack.Decoder(kind).decode
        self._json = msgspec.json.Decoder(kind).decode

    def __call__(self, data: bytes) -> T:
        return deeply(self._json if data[0] in _BRACKETS else self._msgpack, data)


unpack_task = Unpacker(Task)
unpack_input = Unpacker(Input)
unpack_log = Unpacker(list[bytes])


class _Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    seq: int
    at: int
    event: AnyEvent


class _Piece(msgspec.Struct, frozen=True, gc=False, array_like=True):
    task_id: str
    context_id: str
    entries: list[_Entry]


_unpack_piece = Unpacker(_Piece)
_unpack_stamped = Unpacker(list[Stamped])
_STRING = 0xA0
"""In msgpack, an array of up to 15 begins with a smaller byte; a string, and a longer array, with
this or a larger one."""
_QUOTE = b'"'[0]
_entry_of = attrgetter("seq", "at", "event")


def pack_piece(entries: Sequence[Stamped]) -> bytes:
    """Encodes the events of one write, which are of one task."""
    first = entries[0]
    return pack((first.task_id, first.context_id, [*map(_entry_of, entries)]))


def unpack_piece(data: bytes) -> list[Stamped]:
    """Decodes a piece. In older ones, each event names the task and the context."""
    first, second = data[:2]
    if first >= _STRING or not (second == _QUOTE if first in _BRACKETS else second >= _STRING):
        return _unpack_stamped(data)
    piece = _unpack_piece(data)
    task_id, context_id = piece.task_id, piece.context_id
    return [Stamped(task_id, context_id, e.seq, e.at, e.event) for e in piece.entries]


def cut(pieces: Sequence[bytes], after: int, limit: int) -> list[Stamped]:
    """Returns the events after the seq `after`, at most `limit`. Decodes no more pieces than it
    needs."""
    found: list[Stamped] = []
    for piece in pieces[max(0, bisect_right(pieces, after + 1, key=_start) - 1) :]:
        found += unpack_piece(piece)
        if found[-1].seq >= after + limit:
            break
    return [entry for entry in found if after < entry.seq <= after + limit]


def _start(piece: bytes) -> int:
    return unpack_piece(piece)[0].seq
