"""Ids that sort by time (UUIDv7). An id is never a capability: every look-up checks the owner."""

from __future__ import annotations

import os
import time

_RANDOM = 8
"""Bytes of randomness in an id; the system is asked for many at once."""

_COUNTS = tuple(f"-7{n:03x}-8" for n in range(0x1000))


class _Ids:
    """Ids of one moment share their head, so that is made once. Ids of one process sort in
    the order in which they were made, also within a millisecond: lists and queues rely on it."""

    def __init__(self) -> None:
        self._digits: list[str] = []
        self._millis = 0
        self._count = 0
        self._head = ""

    def __call__(self) -> str:
        if not self._digits:
            pool = os.urandom(_RANDOM * 256).hex()
            starts = range(0, len(pool), 2 * _RANDOM)
            self._digits = [f"{pool[i : i + 3]}-{pool[i + 3 : i + 15]}" for i in starts]
        digits = self._digits.pop()
        millis = time.time_ns() // 1_000_000
        if millis <= self._millis and self._count < 0xFFF:
            self._count += 1
        else:
            self._millis, self._count = max(millis, self._millis + 1), 0
            self._head = f"{self._millis >> 16:08x}-{self._millis & 0xFFFF:04x}"
        return f"{self._head}{_COUNTS[self._count]}{digits}"


new_id = _Ids()
"""A UUIDv7: 48 bits of milliseconds, 12 of a counter, then 60 random bits."""


def now_ms() -> int:
    """The time as the log writes it."""
    return time.time_ns() // 1_000_000
