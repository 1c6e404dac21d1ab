"""Two times: that of day, which people and NTP may set, and one that only passes.

What others see is stamped with the time of day. How long something may take (a lease) is measured
by the steady time, which starts anew with the machine: with it goes the id of that start.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

Clock = Callable[[], int]
"""Milliseconds since the epoch. It may have a method `steady` that tells the other time."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SystemClock:
    """The clocks of this machine."""

    def __call__(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def steady(self) -> int:
        """Milliseconds since some moment, the same one for all processes of this machine."""
        return time.monotonic_ns() // 1_000_000


wall_clock = SystemClock()


def steady_of(clock: Clock) -> Clock:
    """How a clock tells durations. One that knows no other time, as in a test, is steady itself."""
    steady: Clock = getattr(clock, "steady", clock)
    return steady


@cache
def boot_id() -> str:
    """Names the start of this machine; where nobody tells, all starts have the same name."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"
