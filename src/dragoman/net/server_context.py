"""The state that all conversations of a server share, and that those with one agent share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from typing import Any

from dragoman.core.card import Card
from dragoman.core.errors import DragomanError
from dragoman.core.peer import Context, Peer
from dragoman.observability.log import Log
from dragoman.observability.metrics import Metrics
from dragoman.security.authentication import Admit, Recognizer
from dragoman.settings import Limits

from .http.asgi import Header
from .http.deadlines import Deadlines
from .http.mount_point import MountPoint
from .strangers import RecentAddresses, Slots


class OpenStream:
    """An open stream or WebSocket; `why` says what ended it, if it was not the task."""

    __slots__ = ("position", "server", "task", "why")

    def __init__(self, task: asyncio.Task[Any], server: ServerContext) -> None:
        self.task = task
        self.server = server
        """The context of the agent whose stream it is."""
        self.position = ""
        """The position of the last event that gRPC has sent, which the trailers tell."""
        self.why = ""

    def end(self, why: str) -> None:
        """Ends it before its task does: the client is `gone`, or the server is `stopping`."""
        if not self.why:
            self.why = why
            self.task.cancel()


class OpenStreams:
    """The open streams and WebSockets of a server, for all its agents."""

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.streams: set[OpenStream] = set()
        """All open streams over HTTP and gRPC, and all WebSockets."""
        self.sockets: set[OpenStream] = set()
        self._slots: dict[str, Slots] = {}

    def socket_slots(self, target: str, most: int) -> Slots:
        """Returns the slots for WebSockets at this path, which several agents share. Strangers at
        one address may have a tenth of them."""
        slots = self._slots.setdefault(target, Slots(most, 10))
        slots.most = most  # the settings may have changed
        return slots

    async def close_sockets(self, seconds: float, of: Contexts | None = None) -> None:
        """Closes every WebSocket, or those of these contexts, within so many seconds. The listeners
        would drop them without a close frame, and the other side would notice only by missing
        heartbeats. Tasks go on, and callers can subscribe to them again."""
        closing = [each for each in self.sockets if of is None or each.server in of]
        for stream in closing:
            stream.end("stopping")
        if closing:
            await asyncio.wait({stream.task for stream in closing}, timeout=seconds)

    def end_streams(self, of: Contexts | None = None) -> None:
        """Ends every open stream, or those of these contexts, for which a stopping server would
        wait without limit."""
        for stream in tuple(self.streams):
            if of is None or stream.server in of:
                stream.end("stopping")


class ServerContext:
    """The state of the conversations with one agent: the peer, the authentication of its callers,
    limits, metrics, and the open streams, which the agents of a server share."""

    def __init__(
        self,
        peer: Peer,
        admit: Admit,
        limits: Limits,
        log: Log,
        opened: OpenStreams | None = None,
    ) -> None:
        self.peer, self.admit, self.limits, self.log = peer, admit, limits, log
        self.metrics = Metrics()
        self.opened = opened or OpenStreams()
        self.deadlines = self.opened.deadlines
        self.streams = self.opened.streams
        self.sockets = self.opened.sockets
        self.mount_point = MountPoint()
        self.draining = False
        """Whether new WebSockets are refused, since the server or the agent stops."""
        self.recognizes = Recognizer()
        """Returns whether this agent knows the caller of a call that may be for another agent."""
        self.extensions: frozenset[str] = frozenset()
        """The extensions on the card. The answer names those of them that the caller activates."""
        self.refusal_headers: Callable[[Exception], tuple[Header, ...]] = _no_headers
        """Returns the response headers of a refusal: `Authenticator.refusal_headers`."""
        self.on_refusal: Callable[[Context, str, DragomanError], None] | None = None
        """Called for a call that is refused before its operation is known, with the caller and the
        dialect."""
        self.public_card: Callable[[Context, str], Card | None] = _no_card
        """Returns the public card for a caller at this address, or None if it may not read it."""
        self.has_agent: Callable[[str], bool] = _no_agent
        """Returns whether the server has an agent of this name."""
        self.recognized = RecentAddresses()
        """The addresses whose messages have the limits of known callers, in dialects that
        authenticate a caller by the message itself."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self.trusts: Callable[[str], bool] | None = None
        """Returns whether an address belongs to a trusted proxy, which many callers share."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Returns the event loop of the server. It is kept, since `get_running_loop` makes a system
        call in Python 3.11, where a `cached_property` would make all fields slow to read."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop


Contexts = Container[ServerContext]
"""The contexts of the agents whose streams are closed."""


def _no_card(caller: Context, address: str) -> None:
    return None


def _no_agent(name: str) -> bool:
    return False


def _no_headers(error: Exception) -> tuple[Header, ...]:
    return ()
