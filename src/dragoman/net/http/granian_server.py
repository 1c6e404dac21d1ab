"""Granian inside our own event loop, on a socket that we bind ourselves.

Granian would bind with SO_REUSEPORT, so a second server on the same port would start and steal half
of the requests. With our own socket the second start fails as it should, port 0 finds a free
port, and the kernel takes connections from the first moment on. The embedded server costs the
same CPU per request as the ordinary one (36 us for a bare handler) and leaves signals to us.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import math
import socket
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from time import monotonic
from types import coroutine
from typing import Any

from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings, HTTP2Settings
from granian.server.embed import Server as Embedded

from dragoman.core.errors import ConfigError
from dragoman.security.tls import granian_options
from dragoman.settings import Limits, Tls

from .asgi import Handler
from .connections import Connections
from .descriptors import RESERVE

BACKLOG = 1024
HEADER_LINES, LINE_COST = 100, 32
"""How many header lines HTTP/1 takes, and what HTTP/2 adds to the size of each (RFC 9113 §6.5.2):
with both, one limit lets the same requests through in either version."""
SEND_BUFFER = 128 * 1024
"""Bytes of one answer that wait for its reader inside of an HTTP/2 connection."""
DEFER = 3
"""Seconds in which the system takes a connection that sends nothing; it rounds to 1, 3, 7..."""
_THREADS = Path("/proc/self/task")
_LINUX = _THREADS.is_dir()
_GONE, _PATIENT = 1.0, 0.03
"""Seconds for Granian's threads to end, once it says that it has."""
_FIRST_LOOK, _LATER_LOOKS = 0.002, 0.02
"""Seconds before the first look for them, and between two later ones at the most."""
_UNSEEN = 0.05
"""The same where nothing tells whether they have."""
_numbers = count(1)


def bind(host: str, port: int, flag: str = "--port", limits: Limits | None = None) -> socket.socket:
    """A listening socket, or a `ConfigError` that says what to do; `flag` is what set the port."""
    limits = limits or Limits()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.getaddrinfo(host, port)
        sock = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # Connections inherit it. Without, an event after the headers waits 40 ms for the reader's
        # delayed acknowledgement.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _LINUX:
            # The system itself keeps connections that send nothing, for a while;
            seconds = math.ceil(min(limits.hello_time, DEFER))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, seconds)
            # and ends those whose peer reads nothing or is gone.
            stall = math.ceil(limits.stall * 1000)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stall)
        return sock
    except socket.gaierror:
        raise ConfigError(
            f"There is no address '{host}'; give --host an address of ours."
        ) from None
    except OverflowError:
        raise ConfigError(f"port must lie between 0 and 65535, not {port}.") from None
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            text = (
                f"Port {port} is in use. Stop what runs there or choose another: {flag} {port + 1}"
            )
        elif exc.errno == errno.EACCES:
            text = f"Port {port} needs more rights. Choose one above 1023: {flag} 8420"
        elif exc.errno == errno.EADDRNOTAVAIL:
            text = f"'{host}' is not an address of this machine; give --host one that is."
        else:
            text = f"Cannot listen on {host}:{port}: {exc.strerror or exc}."
        raise ConfigError(text) from None


def raise_file_limit(wanted: int) -> None:
    """Lets the process open as many connections as the settings allow, if the system does."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted += RESERVE
    goal = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < goal:
        resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))


@contextmanager
def _names_threads(name: str) -> Iterator[None]:
    """Threads that are started in this block have this name, and so have those they start."""
    mine = Path("/proc/thread-self/comm")  # of at most 15 letters, see proc(5)
    try:
        before = mine.read_text().rstrip("\n")
        mine.write_text(name)
    except OSError:  # not Linux, or not allowed
        yield
        return
    try:
        yield
    finally:
        mine.write_text(before)


@coroutine
def _with_named_threads(work: Coroutine[Any, Any, None], name: str) -> Generator[Any, Any, None]:
    """Does the work. The threads that it starts before it first waits have this name."""
    with _names_threads(name):
        waits_for = work.send(None)
    yield waits_for
    yield from work


def _lives(name: str) -> bool:
    """Whether a thread of this name does. What is gone while we look does not."""
    for thread in _THREADS.iterdir():
        with suppress(OSError):
            if (thread / "comm").read_text().rstrip("\n") == name:
                return True
    return False


class GranianServer(Embedded):
    """Serves an ASGI app on a socket until `end`."""

    def __init__(
        self,
        app: Handler,
        sock: socket.socket,
        limits: Limits,
        tls: Tls | None = None,
        exempt: Callable[[str], bool] | None = None,
    ) -> None:
        self.connections = Connections(limits, exempt)
        super().__init__(
            self.connections.watched(app),
            interface=Interfaces.ASGINL,  # we start and stop the app ourselves
            http=HTTPModes.auto,
            backlog=BACKLOG,
            backpressure=self.connections.capacity,
            http1_settings=HTTP1Settings(
                header_read_timeout=int(limits.head_time * 1000), max_buffer_size=limits.head_size
            ),
            http2_settings=HTTP2Settings(
                # A peer that is gone without a word answers no ping.
                keep_alive_interval=int(limits.head_time * 1000),
                keep_alive_timeout=math.ceil(limits.stall),
                max_concurrent_streams=limits.http2_streams,
                max_headers_size=limits.head_size + HEADER_LINES * LINE_COST,
                max_send_buffer_size=SEND_BUFFER,
            ),
            log_enabled=False,
            **granian_options(tls or Tls()),
        )
        self._socket = sock
        self._serving: asyncio.Task[None] | None = None
        self._name = f"listener-{next(_numbers) % 100_000}"

    def _init_shared_socket(self) -> None:
        # As Granian itself does where there is no SO_REUSEPORT; the descriptor is now Granian's.
        # Granian's stub does not know the constructor that its own pickling uses.
        holder = SocketHolder(self._socket.detach(), False, BACKLOG)  # type: ignore[call-arg]
        self._shd, self._sfd, self._ssp = holder, holder.get_fd(), None  # type: ignore[assignment]

    def begin(self) -> asyncio.Task[None]:
        """Starts to serve; the task ends when the server does."""
        self.connections.start(self._socket.getsockname()[1])
        self._serving = asyncio.get_running_loop().create_task(
            self.serve(self._work)  # type: ignore[arg-type]  # its own are coroutines too
        )
        return self._serving

    async def _work(self, *args: Any) -> None:
        await _with_named_threads(self._spawn_asgi_worker(*args), self._name)

    def refuse(self) -> None:
        """Takes no more connections, closes the idle ones; open exchanges go on."""
        self.stop()  # type: ignore[no-untyped-call]

    async def end(self, wait: float) -> None:
        """Waits for the open exchanges to end, but only so long: a client that never sends the
        rest of its request would hold us until its time is up."""
        serving = self._serving
        if serving is None:
            return
        await asyncio.wait({serving}, timeout=wait)
        self.connections.stop()
        if serving.done():
            await self._threads_gone()
        else:
            # Granian will come back later to a future that is then cancelled; nobody cares.
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)

    async def _threads_gone(self) -> None:
        """Waits for Granian's threads, which it leaves to themselves: the one that told us, and
        the one that calls the app, which lives as long as anybody can still be answered. Both want
        the interpreter once more before they end, and abort the process if it is closing then."""
        began = monotonic()
        pause, looked = _FIRST_LOOK if _LINUX else _UNSEEN, False
        while monotonic() < began + _GONE:
            await asyncio.sleep(pause)
            if not (_LINUX and _lives(self._name)):
                return
            if not looked and monotonic() > began + _PATIENT:
                looked = True
                gc.collect()  # an exchange that failed may hang on its own traceback
            pause = min(2 * pause, _LATER_LOOKS)
