"""How a channel sends: at the pace of its service, and again if that could not be reached."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from dragoman.core.errors import PeerUnreachable
from dragoman.net.reconnect_policy import ReconnectPolicy
from dragoman.security.rate_limits import TokenBucket

from .channel import ChannelLimits

PATIENCE = 120.0
"""The seconds for which a message waits until the service can be reached."""

SHORTEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 60.0
"""The limits of the pauses that a service may ask for: none at all would be a busy loop, and an
hour would be silence."""

T = TypeVar("T")


def pause_in(seconds: float | None, default: float = 5.0) -> float:
    """Returns how long to wait when a service asks for a pause, within limits."""
    asked = seconds if seconds is not None else default
    return min(max(asked, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)


class Pace:
    """Lets one message pass after the other, at most so many per second in the long run.

    The messages leave in the order of the calls: `asyncio.Lock` is fair.
    """

    def __init__(self, per_second: float, burst: int) -> None:
        self._bucket = TokenBucket(burst, per_second, time.monotonic())
        self._lock = asyncio.Lock()
        self._not_before = 0.0

    @classmethod
    def within(cls, limits: ChannelLimits, burst: int) -> Pace:
        """Returns the pace of a channel, in which so many messages or more may go at once."""
        rate = limits.messages_per_second
        return cls(rate, max(burst, round(rate)))

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        try:
            await self.wait()
        except BaseException:
            self._lock.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()

    async def wait(self) -> None:
        """Takes the place of one more message. It is for the one that has entered."""
        while True:
            now = time.monotonic()
            pause = max(self._not_before - now, 0.0) or self._bucket.take(now)
            if not pause:
                return
            await asyncio.sleep(pause)

    def hold(self, seconds: float) -> None:
        """Lets nothing pass for a while, since the server asks for it."""
        self._not_before = max(self._not_before, time.monotonic() + seconds)


async def deliver(
    pace: Pace, attempt: Callable[[], Awaitable[T]], *, repeatable: bool = False
) -> T:
    """Sends one message when it is its turn, and tries again while the service cannot be reached.
    One that may have arrived is sent again only if it is `repeatable`: the service recognises
    it."""
    policy = ReconnectPolicy(first=0.5, tries=None)
    deadline = time.monotonic() + PATIENCE
    while True:
        async with pace:
            try:
                return await attempt()
            except PeerUnreachable as exc:
                pause = policy.next_pause(0.0) or 1.0
                if (exc.sent and not repeatable) or time.monotonic() + pause > deadline:
                    raise
        await asyncio.sleep(pause)
