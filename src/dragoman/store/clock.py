"""Two clocks: the time of day, which people and NTP may set, and a steady one, which nobody can.

Events are stamped with the time of day. Durations, such as a lease, are measured by the steady
clock. It starts anew with the machine, so its times are stored together with the id of that boot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

Clock = Callable[[], int]
"""Returns milliseconds since the epoch. A clock may have a method `steady` for the steady time."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SystemClock:
    """The clocks of this machine."""

    def __call__(self) -> int:
        """Returns milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def steady(self) -> int:
        """Returns milliseconds since a moment that is the same for all processes of a machine."""
        return time.monotonic_ns() // 1_000_000


wall_clock = SystemClock()


def steady_of(clock: Clock) -> Clock:
    """Returns the steady clock that belongs to a clock. A clock without one, as in a test, is
    itself steady."""
    steady: Clock = getattr(clock, "steady", clock)
    return steady


@cache
def boot_id() -> str:
    """Returns the id of this boot of the machine, or "unknown" if the system has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"
