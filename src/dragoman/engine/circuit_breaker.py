"""A circuit breaker per host: one that fails again and again is left alone but for probes."""

from __future__ import annotations

from collections import OrderedDict

from dragoman.core.log import Logger

log = Logger("webhooks")

MOST_HOSTS = 10_000
"""The number of failing hosts that are remembered."""


class CircuitBreaker:
    """Counts the failures of hosts in a row. Times are those of the event loop."""

    def __init__(self, failures: int, probe: float) -> None:
        """The breaker of a host opens after so many failures, and lets a call through every `probe`
        seconds."""
        self._failures = failures
        self._probe = probe
        self._hosts: OrderedDict[str, tuple[int, float]] = OrderedDict()

    @property
    def open(self) -> int:
        """Returns the number of hosts that are left alone."""
        return sum(count >= self._failures for count, _ in self._hosts.values())

    def wait(self, host: str, now: float) -> float:
        """Returns the seconds for which a host is to be left alone. After 0 the caller is the
        probe, and the next one waits for its outcome. A hook without a host fails by itself."""
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
            log.warning("A host fails, and is only probed now", host=host, seconds=self._probe)
        if len(self._hosts) > MOST_HOSTS:
            self._hosts.popitem(last=False)
