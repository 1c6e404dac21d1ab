"""How much one principal may ask for: calls per minute, open streams, live tasks.

A bucket holds a minute's worth of calls and fills evenly. Nothing is kept of principals whose
bucket is full again. Calls and streams count in this process: behind a balancer each replica has
its own. Live tasks are those in the store, whoever runs them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from dragoman.core.errors import TooMany
from dragoman.core.peer import Context
from dragoman.settings import Rates

SWEEP = 1024
"""Buckets between two clean-ups."""

Who = tuple[str, str]


class Meter:
    """Counts what each principal uses."""

    def __init__(self, rates: Rates, clock: Callable[[], float] = time.monotonic) -> None:
        self.rates = rates
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """What is left, and since when."""
        self._sweep_at = SWEEP
        self._streams: dict[Who, int] = {}

    def take(self, caller: Context) -> None:
        """One call; `TooMany` says when the next is free. Tenants of one principal share it."""
        most = self.rates.calls_per_minute
        if not most:
            return
        now, rate = self._clock(), most / 60.0
        left, since = self._buckets.get(caller.principal, (float(most), now))
        left = min(float(most), left + (now - since) * rate)
        if left < 1.0:
            self._buckets[caller.principal] = left, now
            raise _too_many("calls", math.ceil((1.0 - left) / rate))
        self._buckets[caller.principal] = left - 1.0, now
        if len(self._buckets) > self._sweep_at:
            self._clean(now, most, rate)

    def _clean(self, now: float, most: float, rate: float) -> None:
        self._buckets = {
            who: kept
            for who, kept in self._buckets.items()
            if kept[0] + (now - kept[1]) * rate < most
        }
        self._sweep_at = max(SWEEP, 2 * len(self._buckets))

    def open_stream(self, caller: Context) -> Callable[[], None]:
        """One more open stream; gives what ends it."""
        most = self.rates.streams
        if not most:
            return _nothing
        who = (caller.tenant, caller.principal)
        if self._streams.get(who, 0) >= most:
            raise _too_many("open streams", 1)
        self._streams[who] = self._streams.get(who, 0) + 1

        def close() -> None:
            left = self._streams[who] - 1
            if left:
                self._streams[who] = left
            else:
                del self._streams[who]

        return close

    def check_live(self, live: int) -> None:
        """Whether a caller with this many live tasks may open another."""
        if self.rates.live_tasks and live >= self.rates.live_tasks:
            raise _too_many("live tasks", 5)


def _too_many(what: str, seconds: int) -> TooMany:
    return TooMany(f"Too many {what}; try again later.", retry_after=str(seconds))


def _nothing() -> None:
    pass
