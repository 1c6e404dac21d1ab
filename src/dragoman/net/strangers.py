"""Limits for callers that are not authenticated yet: slots, and a share of them per address.

Theory. A caller may hold a slot (a WebSocket, a request whose body has not arrived) before it has
authenticated. If such strangers could take all slots, a few of them would shut everybody else out.
So half of the slots are reserved for known callers, and strangers at one address may have only a
share of all slots. An address that many callers have in common, such as that of a proxy, is passed
as an empty string and has no such limit of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from dragoman.core.log import Logger

RECENT = 3600.0
"""The seconds for which an address is remembered."""
MOST_RECENT = 10_000
BARRED = 1.0
"""The seconds for which strangers at an address get no slot after one of them sent too much."""


REFUSAL_LOG_INTERVAL_SECONDS = 1.0


class Slots:
    """A fixed number of slots that callers take for a while."""

    def __init__(self, most: int, share: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Strangers at one address may have one in `share` of the slots."""
        self.most, self._share = most, share
        self.barred = RecentAddresses(clock, BARRED)
        """The networks of strangers that sent too much a moment ago. Without it, one that is cut
        off could dial and send again at once, as fast as the machine can read."""
        self.taken = 0
        self.strangers: Counter[str] = Counter()
        """The number of slots by network whose callers are not authenticated yet."""

    def take(self, address: str, *, known: bool) -> Slot | None:
        """Returns a slot for a caller at this address (empty if it is unknown), or None if there is
        none for this caller at the moment."""
        if self.taken >= self.most:
            return None
        network = "" if known else network_of(address)
        if not known:
            share = max(1, self.most // self._share)
            crowded = bool(network) and self.strangers[network] >= share
            if (
                crowded
                or network in self.barred
                or self.strangers.total() >= max(1, self.most // 2)
            ):
                return None
            self.strangers[network] += 1
        self.taken += 1
        return Slot(self, network, known)


class Slot:
    """One slot that a caller holds."""

    __slots__ = ("_known", "_network", "_slots")

    def __init__(self, slots: Slots, network: str, known: bool) -> None:
        self._slots, self._network, self._known = slots, network, known

    def recognize(self) -> None:
        """Notes that the caller is authenticated now."""
        if self._known:
            return
        self._known = True
        strangers = self._slots.strangers
        strangers[self._network] -= 1
        if strangers[self._network] <= 0:
            del strangers[self._network]

    def bar(self) -> None:
        """Notes that the caller sent too much. Other strangers at its address have to wait."""
        if not self._known:
            self._slots.barred.add(self._network)

    def release(self) -> None:
        """Gives the slot back. It must be called exactly once."""
        self.recognize()
        self._slots.taken -= 1


class RecentAddresses:
    """Addresses that are remembered for a while, such as those of authenticated callers."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, seconds: float = RECENT
    ) -> None:
        self._clock, self._seconds = clock, seconds
        self._until: OrderedDict[str, float] = OrderedDict()

    def add(self, address: str) -> None:
        """Remembers an address."""
        if not address:
            return
        self._until[address] = self._clock() + self._seconds
        self._until.move_to_end(address)
        if len(self._until) > MOST_RECENT:
            self._until.popitem(last=False)

    def __contains__(self, address: str) -> bool:
        return self._until.get(address, 0.0) > self._clock()


class RefusalLog:
    """Logs refusals that strangers can cause as often as they like: at most one line a second.

    The first refusal is logged at once. Those of the next second become one line with their count
    and what the last of them was.
    """

    def __init__(self, log: Logger, event: str) -> None:
        self._log, self._event = log, event
        self._count = 0
        """The refusals that are not logged yet."""
        self._last: dict[str, object] = {}
        self._pause: asyncio.TimerHandle | None = None

    def add(self, **fields: object) -> None:
        """Logs a refusal, now or with those that follow."""
        self._count, self._last = self._count + 1, fields
        if self._pause is None:
            self._flush()

    def _flush(self) -> None:
        self._pause = None
        if not self._count:
            return
        self._log.warning(self._event, count=self._count, **self._last)
        self._count = 0
        loop = asyncio.get_running_loop()
        self._pause = loop.call_later(REFUSAL_LOG_INTERVAL_SECONDS, self._flush)


def network_of(address: str) -> str:
    """Returns what counts as one address: in IPv6 the network of 64 bits, all of which belongs to
    one customer."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Address(int(found) >> 64 << 64)) + "/64"
