"""A circuit breaker per host: a host that keeps failing gets only occasional probes.

Where callers choose what is called, as with webhooks, each of them has a breaker of its own for a
host (`caller`): else one could close a host to all others by having calls to it fail.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import StrEnum
from typing import NamedTuple

from dragoman.core.log import Logger

MAX_FAILING_HOSTS = 10_000
"""The number of failing hosts that are remembered."""
Caller = tuple[str, str]
NOBODY: Caller = ("", "")
"""The caller where all share the breaker of a host."""


class BreakerState(StrEnum):
    """Whether a host is called."""

    CLOSED = "closed"
    """It is called."""
    OPEN = "open"
    """It keeps failing and is not called."""
    HALF_OPEN = "half-open"
    """One call is or may be made, and its outcome decides."""


class _Failing(NamedTuple):
    failures: int
    """Failures in a row."""
    until: float
    """When the next call may be made, once the breaker is open."""
    probing: bool = False


class CircuitBreaker:
    """Counts the failures of hosts in a row. Times are those of the event loop."""

    def __init__(self, failures: int, probe: float, log: Logger) -> None:
        """The breaker of a host opens after `failures` consecutive failures, and then lets one call
        through every `probe` seconds."""
        self._failures = failures
        self._probe = probe
        self._log = log
        self.failing: OrderedDict[tuple[Caller, str], _Failing] = OrderedDict()
        """The hosts that have failed since they last answered."""

    @property
    def open(self) -> int:
        """Returns the number of hosts whose breaker is open."""
        failing = self.failing.items()
        return len({host for (_, host), each in failing if each.failures >= self._failures})

    def state(self, host: str, now: float, caller: Caller = NOBODY) -> BreakerState:
        """Returns the state of the breaker of a host."""
        found = self.failing.get((caller, host))
        if found is None or found.failures < self._failures:
            return BreakerState.CLOSED
        if found.probing or found.until <= now:
            return BreakerState.HALF_OPEN
        return BreakerState.OPEN

    def seconds_left(self, host: str, now: float, caller: Caller = NOBODY) -> float:
        """Returns the seconds until a host may be called."""
        found = self.failing.get((caller, host))
        if found is None or found.failures < self._failures:
            return 0.0
        return max(0.0, found.until - now)

    def wait(self, host: str, now: float, caller: Caller = NOBODY) -> float:
        """Returns the seconds until a host may be called. If it is 0, this call is the probe, and
        the next call waits for its outcome. A webhook without a host fails by itself."""
        found = self.failing.get((caller, host))
        if found is None or found.failures < self._failures:
            return 0.0
        if found.until > now:
            return found.until - now
        self.failing[caller, host] = _Failing(found.failures, now + self._probe, probing=True)
        return 0.0

    def record(self, host: str, now: float, *, failed: bool, caller: Caller = NOBODY) -> None:
        """Notes the outcome of a call."""
        if not failed or not host:
            self.failing.pop((caller, host), None)
            return
        found = self.failing.pop((caller, host), None)
        count = (found.failures if found is not None else 0) + 1
        self.failing[caller, host] = _Failing(count, now + self._probe)
        if count == self._failures:
            self._log.warning(
                "A host keeps failing, so its circuit breaker opens", host=host, seconds=self._probe
            )
        if len(self.failing) > MAX_FAILING_HOSTS:
            self.failing.popitem(last=False)

    def probe_now(self, host: str, now: float, caller: Caller = NOBODY) -> None:
        """Lets the next call to a host through, because it gave another sign of life, or because
        the probe ended without an outcome."""
        found = self.failing.get((caller, host))
        if found is not None:
            self.failing[caller, host] = _Failing(found.failures, now)
