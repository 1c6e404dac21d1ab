"""Rate limits: how often one caller may call, and what it may hold open.

A principal's bucket holds a minute's worth of calls and fills evenly. Nothing is kept of principals
whose bucket is full again. Calls and streams count in this process: behind a balancer each replica
has its own. Live tasks are those in the store, whoever runs them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from dragoman.core.errors import TooMany
from dragoman.core.peer import Context
from dragoman.settings import Rates

SWEEP = 1024
"""The number of buckets between two clean-ups."""

Who = tuple[str, str]


class TokenBucket:
    """Holds up to `size` tokens, `rate` new ones a second; it begins full.

    Time is passed in: a bucket costs two numbers and no timer.
    """

    __slots__ = ("_left", "_since", "rate", "size")

    def __init__(self, size: float, rate: float, now: float) -> None:
        self.size, self.rate = size, rate
        self._left, self._since = size, now

    def take(self, now: float) -> float:
        """Takes one token and returns 0, or returns the seconds until there will be one."""
        self._left = min(self.size, self._left + (now - self._since) * self.rate)
        self._since = now
        if self._left < 1.0:
            return (1.0 - self._left) / self.rate
        self._left -= 1.0
        return 0.0

    def is_full(self, now: float) -> bool:
        """Returns whether the bucket is full, so that a new one would be the same."""
        return self._left + (now - self._since) * self.rate >= self.size


class Meter:
    """Counts what each principal uses."""

    def __init__(self, rates: Rates, clock: Callable[[], float] = time.monotonic) -> None:
        self.rates = rates
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}
        self._sweep_at = SWEEP
        self._streams: dict[Who, int] = {}

    def take(self, caller: Context) -> None:
        """Counts one call. Raises `TooMany`, which says when the next is free. The tenants of a
        principal share it."""
        most = self.rates.calls_per_minute
        if not most:
            return
        now = self._clock()
        bucket = self._buckets.get(caller.principal)
        if bucket is None:
            bucket = self._buckets[caller.principal] = TokenBucket(most, most / 60.0, now)
        if wait := bucket.take(now):
            raise _too_many("calls", math.ceil(wait))
        if len(self._buckets) > self._sweep_at:
            self._clean(now)

    def _clean(self, now: float) -> None:
        self._buckets = {who: each for who, each in self._buckets.items() if not each.is_full(now)}
        self._sweep_at = max(SWEEP, 2 * len(self._buckets))

    def open_stream(self, caller: Context) -> Callable[[], None]:
        """Counts one more open stream, and returns the function that ends it."""
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
        """Raises `TooMany` if a caller with this many live tasks may not open another."""
        if self.rates.live_tasks and live >= self.rates.live_tasks:
            raise _too_many("live tasks", 5)


def _too_many(what: str, seconds: int) -> TooMany:
    return TooMany(f"Too many {what}; try again later.", retry_after=str(seconds))


def _nothing() -> None:
    pass
