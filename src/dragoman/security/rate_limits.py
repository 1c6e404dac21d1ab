"""Rate limits: how often one caller may call, and what it may have at a time.

A principal's bucket holds a minute's worth of calls and fills evenly. Nothing is kept of principals
whose bucket is full again. A process that is alone on its store counts by itself; several processes
share one budget (`server/services/shared_budgets.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from dragoman.core.errors import TooMany
from dragoman.core.peer import Context
from dragoman.settings import Rates
from dragoman.store.task_row import Scope

SWEEP = 1024
"""The number of buckets between two clean-ups."""

STREAMS, TASKS = "streams", "tasks"
"""The kinds of quotas."""

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

    def used(self, now: float) -> float:
        """Returns how many tokens are missing."""
        return max(0.0, self.size - self._left - (now - self._since) * self.rate)

    def empty(self, left: float) -> None:
        """Leaves only so many tokens in the bucket."""
        self._left = left


class Sharing(Protocol):
    """What several processes share of the budgets of callers."""

    active: bool
    """Whether there are other processes to share with."""

    def take_call(self, kind: str, owner: str, most: int) -> Awaitable[None] | None:
        """Counts one of a caller's calls: at once, or after the store was asked. Raises
        `TooMany`."""

    def take_place(
        self, kind: str, owner: str, most: int, in_use: Callable[[], int], scope: Scope | None
    ) -> Awaitable[None] | None:
        """Takes a place of a caller's quota. `in_use` counts the places that are in use here, and
        the unfinished tasks of a `scope` take places too."""

    def free_place(self, kind: str, owner: str) -> None:
        """Gives back a place of a caller's quota that is not in use any more."""


class CountsTasks(Protocol):
    """Knows the tasks of a caller, such as the engine."""

    def scope_of(self, ctx: Context) -> Scope:
        """Returns the scope of the caller's own tasks."""

    def count_unfinished(self, ctx: Context) -> Awaitable[int]:
        """Returns how many tasks of this caller run or wait."""

    def count_uncommitted(self, ctx: Context) -> int:
        """Returns how many tasks of this caller are new, and not in the store yet."""


class Meter:
    """Counts what each principal uses."""

    def __init__(
        self, rates: Rates, clock: Callable[[], float] = time.monotonic, kind: str = "calls"
    ) -> None:
        """`kind` tells the budget of calls from those of other meters."""
        self.rates = rates
        self.kind = kind
        self.sharing: Sharing | None = None
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}
        self._sweep_at = SWEEP
        self.streams: dict[Who, int] = {}
        """The open streams of each caller in this process."""

    @property
    def limits(self) -> bool:
        """Whether anything is limited."""
        rates = self.rates
        return bool(rates.calls_per_minute or rates.streams or rates.live_tasks)

    def take(self, caller: Context) -> Awaitable[None] | None:
        """Counts one call; what it returns must be awaited, unless it is None. Raises `TooMany`,
        which says when the next is free. The tenants of a principal share it."""
        most = self.rates.calls_per_minute
        if not most:
            return None
        if self.sharing is not None and self.sharing.active:
            return self.sharing.take_call(self.kind, caller.principal, most)
        now = self._clock()
        bucket = self._buckets.get(caller.principal)
        if bucket is None:
            bucket = self._buckets[caller.principal] = TokenBucket(most, most / 60.0, now)
        if wait := bucket.take(now):
            raise too_many("calls", wait)
        if len(self._buckets) > self._sweep_at:
            self._clean(now)
        return None

    def _clean(self, now: float) -> None:
        self._buckets = {who: each for who, each in self._buckets.items() if not each.is_full(now)}
        self._sweep_at = max(SWEEP, 2 * len(self._buckets))

    def hand_over(self) -> dict[str, float]:
        """Returns how many calls are missing in each bucket, because the budgets are shared from
        now on."""
        now = self._clock()
        used = {who: bucket.used(now) for who, bucket in self._buckets.items()}
        self._buckets = {}
        return used

    def take_over(self, who: str, left: float) -> None:
        """Goes on alone with the rest of a shared budget."""
        most = self.rates.calls_per_minute
        self._buckets[who] = TokenBucket(most, most / 60.0, self._clock())
        self._buckets[who].empty(left)

    async def open_stream(self, caller: Context) -> Callable[[], None]:
        """Counts one more open stream, and returns the function that ends it."""
        most = self.rates.streams
        if not most:
            return _nothing
        who = (caller.tenant, caller.principal)
        sharing = self.sharing if self.sharing is not None and self.sharing.active else None
        if sharing is not None:
            in_use = self.count_streams(who)
            waiting = sharing.take_place(STREAMS, name_of(who), most, in_use, None)
            if waiting is not None:
                await waiting
        elif self.streams.get(who, 0) >= most:
            raise too_many("open streams", 1)
        self.streams[who] = self.streams.get(who, 0) + 1

        def close() -> None:
            left = self.streams[who] - 1
            if left:
                self.streams[who] = left
            else:
                del self.streams[who]
            if self.sharing is not None and self.sharing.active:
                self.sharing.free_place(STREAMS, name_of(who))

        return close

    def count_streams(self, who: Who) -> Callable[[], int]:
        """Returns a function that counts the open streams of a caller in this process."""
        return lambda: self.streams.get(who, 0)

    async def open_task(self, caller: Context, tasks: CountsTasks) -> None:
        """Raises `TooMany` if the caller has as many live tasks as it may have."""
        most = self.rates.live_tasks
        if not most:
            return
        if self.sharing is not None and self.sharing.active:
            scope = tasks.scope_of(caller)
            owner = name_of((scope.agent, scope.tenant, scope.principal))
            waiting = self.sharing.take_place(
                TASKS, owner, most, lambda: tasks.count_uncommitted(caller), scope
            )
            if waiting is not None:
                await waiting
        elif await tasks.count_unfinished(caller) >= most:
            raise too_many("live tasks", 5)


def name_of(who: tuple[str, ...]) -> str:
    """Returns the name of an owner in the store, where a text has no NUL."""
    return "\x1f".join(who).replace("\0", "\x1e")


def too_many(what: str, seconds: float) -> TooMany:
    """Returns the refusal of something that the caller has too many of."""
    return TooMany(f"Too many {what}; try again later.", retry_after=str(math.ceil(seconds)))


def _nothing() -> None:
    pass
