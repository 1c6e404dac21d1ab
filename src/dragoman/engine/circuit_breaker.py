"""A circuit breaker per host: a host that keeps failing gets only occasional probes."""

from __future__ import annotations

from collections import OrderedDict

from dragoman.core.log import Logger

log = Logger("webhooks")

MOST_HOSTS = 10_000
"""The number of failing hosts that are remembered."""


class CircuitBreaker:
    """Counts the failures of hosts in a row. Times are those of the event loop."""

    def __init__(self, failures: int, probe: float) -> None:
        """The breaker of a host opens after `failures` consecutive failures, and then lets one call
        through every `probe` seconds."""
        self._failures = failures
        self._probe = probe
        self._hosts: OrderedDict[str, tuple[int, float]] = OrderedDict()

    @property
    def open(self) -> int:
        """Returns the number of hosts whose breaker is open."""
        return sum(count >= self._failures for count, _ in self._hosts.values())

    def wait(self, host: str, now: float) -> float:
        """Returns the seconds until a host may be called. If it is 0, this call is the probe, and
        the next call waits for its outcome. A webhook without a host fails by itself."""
        count, until = self._hosts.get(host, (0, 0.0))
        if count < self._failures:
            return 0.0
        if until > now:
            return until - now
        self._hosts[host] = (count, now + self._probe)
        return 0.0

    def record(self, host: str, now: float, *, failed: bool) -> None:
        """Notes the outcome of a call."""
        if not failed or not host:
            self._hosts.pop(host, None)
            return
        count, _ = self._hosts.pop(host, (0, 0.0))
        self._hosts[host] = (count + 1, now + self._probe)
        if count + 1 == self._failures:
            log.warning(
                "A host keeps failing, so its circuit breaker opens", host=host, seconds=self._probe
            )
        if len(self._hosts) > MOST_HOSTS:
            self._hosts.popitem(last=False)
