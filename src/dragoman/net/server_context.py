"""What all conversations of a server, and those with one of its agents, share."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from dragoman.core.peer import Peer
from dragoman.observability.log import Log
from dragoman.observability.metrics import Metrics
from dragoman.security.authentication import Admit, Recognizes
from dragoman.settings import Limits

from .http.asgi import Header
from .http.deadlines import Deadlines
from .http.mount_point import MountPoint

RECENT = 3600.0
"""Seconds for which an address is known."""
MOST_RECENT = 10_000


class OpenStream:
    """A stream or a socket that someone reads; `why` says who ended it if it was not the task."""

    __slots__ = ("task", "why")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.why = ""

    def end(self, why: str) -> None:
        """Ends it from outside: the client is `gone`, or we are `stopping`."""
        if not self.why:
            self.why = why
            self.task.cancel()


class RecentAddresses:
    """The addresses at which somebody was authenticated lately."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: OrderedDict[str, float] = OrderedDict()

    def add(self, address: str) -> None:
        """Remembers an address for `RECENT` seconds from now on."""
        if not address:
            return
        self._until[address] = self._clock() + RECENT
        self._until.move_to_end(address)
        if len(self._until) > MOST_RECENT:
            self._until.popitem(last=False)

    def __contains__(self, address: str) -> bool:
        return self._until.get(address, 0.0) > self._clock()


class OpenSockets:
    """The WebSockets open at one path, below whichever mount point."""

    def __init__(self) -> None:
        self.all: set[OpenStream] = set()
        self.strangers: Counter[str] = Counter()
        """Those that have not said whose they are, by address."""


class OpenStreams:
    """What is open on a server, whichever of its agents it is for."""

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.streams: set[OpenStream] = set()
        """All that is open: streams over HTTP and gRPC, and sockets."""
        self.sockets: set[OpenStream] = set()
        self._at: dict[str, OpenSockets] = {}
        self.draining = False
        """No more sockets are taken: nobody would serve them."""

    def sockets_at(self, target: str) -> OpenSockets:
        """The sockets at this path: several agents share the places for them."""
        return self._at.setdefault(target, OpenSockets())

    async def close_sockets(self, seconds: float) -> None:
        """Closes every WebSocket, with this long for its last words, and takes no more. Listeners
        know nothing of sockets and would drop them without a word, so the other side would notice
        only by missed heartbeats. Tasks go on, and can be followed again."""
        self.draining = True
        ending = {stream.task for stream in self.sockets}
        for stream in tuple(self.sockets):
            stream.end("stopping")
        if ending:
            await asyncio.wait(ending, timeout=seconds)

    def end_streams(self) -> None:
        """Ends every open stream: the server stops, and would wait for them without limit."""
        for stream in tuple(self.streams):
            stream.end("stopping")


class ServerContext:
    """What the conversations with one agent share: the peer that is asked, who may ask it, limits,
    counters, and the streams now open, which are those of the whole server."""

    def __init__(
        self,
        peer: Peer,
        admit: Admit,
        limits: Limits,
        log: Log,
        opened: OpenStreams | None = None,
    ) -> None:
        self.peer = peer
        self.admit = admit
        self.limits = limits
        self.log = log
        self.metrics = Metrics()
        self.opened = opened or OpenStreams()
        self.deadlines = self.opened.deadlines
        self.streams = self.opened.streams
        self.sockets = self.opened.sockets
        self.mount_point = MountPoint()
        self.recognizes: Recognizes = _everyone
        """Whether a caller may be let in, for a call that may be for another agent."""
        self.extensions: frozenset[str] = frozenset()
        """What the card declares; of these we echo what a caller activates."""
        self.refusal_headers: Callable[[Exception], tuple[Header, ...]] = _no_headers
        """What a refused caller is told in headers: `Authenticator.refusal_headers`."""
        self.recognized = RecentAddresses()
        """Whoever calls from one of these has the limits of a caller that is known, in dialects
        where only the message itself says whose it is."""
        self.trusts: Callable[[str], bool] | None = None
        """Whether an address is one of our proxies', which many callers share."""

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that serves. Asked for once: in Python 3.11 that is a system call."""
        return asyncio.get_running_loop()


async def _everyone(headers: Mapping[str, str], target: str, certificate: str) -> bool:
    return True


def _no_headers(error: Exception) -> tuple[Header, ...]:
    return ()
