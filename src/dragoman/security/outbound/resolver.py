"""Resolves host names for calls to addresses that others gave us.

Theory. The system's resolver blocks a thread for as long as a name server keeps silent, and nothing
can end that wait: giving up frees the caller, not the thread. So lookups have threads of their own,
never the pool that the rest of the process shares, and a bound on how many there are. Names under
one domain have a smaller bound, since they usually share a name server: one that is silent holds
up its own names only. Of one name there is one lookup at a time, which all that ask share, and an
answer is kept for a short while. Keeping it is safe: the address that is checked is the address
that is called, however old it is.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from .address_scopes import Unreachable

LOOKUPS = 256
"""The number of threads at a time; each ends with its lookup."""
PER_DOMAIN = 8
"""The number of threads for the names under one domain, which is its last two labels."""
KEPT = 30.0
"""The seconds for which the addresses of a name are kept."""
NAMES = 1_000
"""The number of names whose addresses are kept."""

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""A function that returns the addresses of a name."""


class _Lookup:
    """A name that is looked up, or waits for its turn."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.domain = ".".join(host.rsplit(".", 2)[-2:])
        self.waiters: set[asyncio.Future[list[str]]] = set()

    def tell(self, found: list[str] | Exception) -> None:
        for waiter in self.waiters:
            if waiter.done():
                continue
            if isinstance(found, Exception):
                waiter.set_exception(found)
            else:
                waiter.set_result(found)


class Resolver:
    """The system's resolver, as `Resolve` wants it."""

    def __init__(self) -> None:
        self._running: dict[str, _Lookup] = {}
        self._domains: Counter[str] = Counter()
        self._line: OrderedDict[str, _Lookup] = OrderedDict()
        """The lookups that wait for a thread, the oldest first."""
        self._kept: OrderedDict[str, tuple[float, list[str]]] = OrderedDict()

    async def __call__(self, host: str, port: int) -> list[str]:
        """Returns the addresses of a name. Raises `Unreachable` if it has none."""
        loop = asyncio.get_running_loop()
        until, kept = self._kept.get(host, (0.0, []))
        if until > loop.time():
            return kept
        lookup = self._running.get(host) or self._line.get(host)
        if lookup is None:
            lookup = self._line[host] = _Lookup(host)
            self._start(loop)
        waiter: asyncio.Future[list[str]] = loop.create_future()
        lookup.waiters.add(waiter)
        try:
            return await waiter
        finally:
            lookup.waiters.discard(waiter)
            if not lookup.waiters:
                self._line.pop(host, None)  # nobody waits for it any more

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts the waiting lookups for which there is room."""
        for lookup in list(self._line.values()):
            if len(self._running) >= LOOKUPS:
                return
            if self._domains[lookup.domain] < PER_DOMAIN:
                del self._line[lookup.host]
                self._running[lookup.host] = lookup
                self._domains[lookup.domain] += 1
                _in_thread(loop, lookup.host, partial(self._end, loop, lookup))

    def _end(
        self, loop: asyncio.AbstractEventLoop, lookup: _Lookup, found: list[str] | Exception
    ) -> None:
        del self._running[lookup.host]
        self._domains -= Counter((lookup.domain,))  # and forgets those that have none
        if isinstance(found, list):
            self._kept[lookup.host] = (loop.time() + KEPT, found)
            self._kept.move_to_end(lookup.host)
            if len(self._kept) > NAMES:
                self._kept.popitem(last=False)
        lookup.tell(found)
        self._start(loop)


async def system_resolver(host: str, port: int) -> list[str]:
    """Asks the system once, in a thread of its own."""
    loop = asyncio.get_running_loop()
    lookup = _Lookup(host)
    waiter: asyncio.Future[list[str]] = loop.create_future()
    lookup.waiters.add(waiter)
    _in_thread(loop, host, lookup.tell)
    return await waiter


def _in_thread(
    loop: asyncio.AbstractEventLoop, host: str, tell: Callable[[list[str] | Exception], None]
) -> None:
    """Asks the system, in a thread that nobody waits for when the process ends."""

    def work() -> None:
        found: list[str] | Exception
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found = list(dict.fromkeys(str(address[0]) for *_, address in infos))
        except (OSError, UnicodeError) as exc:
            found = Unreachable("unknown name")
            found.__cause__ = exc
        with suppress(RuntimeError):  # the loop is gone, and with it whoever asked
            loop.call_soon_threadsafe(tell, found)

    threading.Thread(target=work, name="dragoman-resolver", daemon=True).start()
