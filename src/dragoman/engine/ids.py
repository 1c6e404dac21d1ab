"""Ids that sort by time (UUIDv7). An id is never a capability: every look-up checks the owner."""

from __future__ import annotations

import os
import random
import time

_dice = random.Random(os.urandom(32))


def new_id() -> str:
    """A UUIDv7: 48 bits of milliseconds, then 74 random bits."""
    millis = time.time_ns() // 1_000_000
    rand = _dice.getrandbits(74)
    number = millis << 80 | 0x7 << 76 | (rand >> 62) << 64 | 0b10 << 62 | rand & (1 << 62) - 1
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def now_ms() -> int:
    """The time as the log writes it."""
    return time.time_ns() // 1_000_000
