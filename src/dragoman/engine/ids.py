"""Ids that sort by time (UUIDv7). An id is never a capability: every look-up checks the owner."""

from __future__ import annotations

import os
import random
import time

_bits = random.Random(os.urandom(32)).getrandbits


def new_id() -> str:
    """A UUIDv7: 48 bits of milliseconds, then 74 random bits."""
    millis = time.time_ns() // 1_000_000
    rand = _bits(76)
    return (
        f"{millis >> 16:08x}-{millis & 0xFFFF:04x}-7{rand & 0xFFF:03x}"
        f"-{0x8000 | rand >> 12 & 0x3FFF:04x}-{rand >> 26 & 0xFFFFFFFFFFFF:012x}"
    )


def now_ms() -> int:
    """The time as the log writes it."""
    return time.time_ns() // 1_000_000
