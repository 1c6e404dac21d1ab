"""Runs Granian inside our own event loop, on a socket that we bind ourselves.

Granian would bind with SO_REUSEPORT, so a second server on the same port would start and take half
of the requests. With our own socket the second start fails as it should, port 0 selects a free
port, and the kernel accepts connections from the first moment on. The embedded server needs the
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

from dragoman.core.errors import ConfigError
from dragoman.security.tls import granian_options
from dragoman.settings import Limits, Tls

from .asgi import Handler
from .connections import Connections
from .descriptors import RESERVE
from .drain import SETTLE, closing, ignore_new_connections, no_connections

GRANIAN = "granian>=2.8,<2.9"
"""The versions whose private names are those below, as pyproject.toml has them."""
try:
    from granian._granian import SocketHolder
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings, HTTP2Settings
    from granian.server.embed import Server as Embedded

    # We override the first and call the second, and neither is public. A version that renamed the
    # first would bind a socket of its own, and nobody would notice until two servers share a port.
    _ = Embedded._init_shared_socket, Embedded._spawn_asgi_worker
except (ImportError, AttributeError) as exc:
    from importlib.metadata import version

    raise ConfigError(
        f"Granian {version('granian')} is not a version that Dragoman can use ({exc}). "
        f"Install one that it can: pip install '{GRANIAN}'"
    ) from exc

BACKLOG = 1024
HEADER_LINES, LINE_COST = 100, 32
"""The number of header lines that HTTP/1 accepts, and what HTTP/2 adds to the size of each
(RFC 9113 §6.5.2). With both, one limit accepts the same requests in either version."""
SEND_BUFFER = 128 * 1024
"""The bytes of one response that an HTTP/2 connection buffers for its reader."""
DEFER = 3
"""The seconds after which the system passes on a connection that has sent nothing
(TCP_DEFER_ACCEPT); it rounds to 1, 3, 7..."""
_THREADS = Path("/proc/self/task")
_LINUX = _THREADS.is_dir()
_GONE, _PATIENT = 1.0, 0.03
"""The seconds in which Granian's threads have to end after it reports its own end."""
_FIRST_LOOK, _LATER_LOOKS = 0.002, 0.02
"""The seconds before the first check for these threads, and at most between two later checks."""
_ACCEPTED = 0.2
"""The seconds in which the first request of an accepted connection must have been read."""
_UNSEEN = 0.05
"""The seconds to wait on systems that do not show whether a thread has ended."""
_numbers = count(1)


def bind(
    host: str,
    port: int,
    flag: str = "--port",
    limits: Limits | None = None,
    reserved: int = 0,
    *,
    shared: bool = False,
) -> socket.socket:
    """Returns a listening socket, or raises a `ConfigError` that says what to do. `flag` is the
    option that sets the port; `reserved` is another port of ours, which is not suggested instead
    of this one. Several sockets can be bound to a port if all of them are `shared`."""
    limits = limits or Limits()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # As bytes, a name needs no table of the characters of all languages.
        socket.getaddrinfo(host.encode() if host.isascii() else host, port)
        sock = socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=shared)
        # Connections inherit TCP_NODELAY. Without it, an event after the headers waits 40 ms for
        # the client's delayed acknowledgement.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _LINUX:
            # The system holds back connections that send nothing for a while,
            seconds = math.ceil(min(limits.hello_time, DEFER))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, seconds)
            # and ends those whose client reads nothing or is gone.
            stall = math.ceil(limits.stall * 1000)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stall)
        return sock
    except socket.gaierror:
        raise ConfigError(
            f"'{host}' is not a known address; set --host to an address of this machine."
        ) from None
    except OverflowError:
        raise ConfigError(f"port must be between 0 and 65535, not {port}.") from None
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            free = _free_port(host, family, port, reserved)
            text = f"Port {port} is in use. Stop what runs there or choose another: {flag} {free}"
        elif exc.errno == errno.EACCES:
            text = f"Port {port} needs more privileges. Choose one above 1023: {flag} 8420"
        elif exc.errno == errno.EADDRNOTAVAIL:
            text = f"'{host}' is not an address of this machine; set --host to one that is."
        else:
            text = f"Cannot listen on {host}:{port}: {exc.strerror or exc}."
        raise ConfigError(text) from None


def _free_port(host: str, family: socket.AddressFamily, port: int, reserved: int) -> int:
    """Returns a port near this one that can be used now, or 0, which means any."""
    for near in range(port + 1, min(port + 100, 65536)):
        if near != reserved:
            with suppress(OSError), socket.create_server((host, near), family=family):
                return near
    return 0


def raise_file_limit(wanted: int) -> None:
    """Raises the limit of open files to what the settings need, as far as the system allows it."""
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
    """Gives this name to threads that are started inside the block, and to those that they
    start."""
    mine = Path("/proc/thread-self/comm")  # at most 15 letters, see proc(5)
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
    """Awaits the work. The threads that it starts before its first wait have this name."""
    with _names_threads(name):
        waits_for = work.send(None)
    yield waits_for
    yield from work


def _lives(name: str) -> bool:
    """Returns whether a thread of this name is alive. One that ends meanwhile counts as ended."""
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
                # Pings reveal a client that vanished without closing its connection.
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
        self._port = 0
        self._serving: asyncio.Task[None] | None = None
        self._name = f"listener-{next(_numbers) % 100_000}"

    def _init_shared_socket(self) -> None:
        # Granian does the same on systems without SO_REUSEPORT. It owns the descriptor from now on.
        # Its stub lacks the constructor that its own pickling uses.
        holder = SocketHolder(self._socket.detach(), False, BACKLOG)  # type: ignore[call-arg]
        self._shd, self._sfd, self._ssp = holder, holder.get_fd(), None  # type: ignore[assignment]

    def begin(self) -> asyncio.Task[None]:
        """Starts to serve, and returns a task that ends with the server."""
        self._port = self._socket.getsockname()[1]
        self.connections.start(self._port)
        self._serving = asyncio.get_running_loop().create_task(
            self.serve(self._work)  # type: ignore[arg-type]  # its own are coroutines too
        )
        return self._serving

    async def _work(self, *args: Any) -> None:
        await _with_named_threads(self._spawn_asgi_worker(*args), self._name)

    def say_goodbye(self) -> None:
        """Has each answer end its connection from now on."""
        self.connections.app = closing(self.connections.app)

    async def empty(self, seconds: float) -> None:
        """Returns when no connection is open any more, or after so many seconds."""
        await no_connections(self._port, seconds)

    async def ignore_new(self) -> None:
        """Has the system begin no new connection, and waits for those that were begun."""
        if self._sfd is not None and ignore_new_connections(self._sfd):
            await asyncio.sleep(SETTLE)

    def refuse(self) -> None:
        """Accepts no more connections and closes idle ones. Running exchanges go on."""
        self.stop()  # type: ignore[no-untyped-call]

    async def settle(self) -> None:
        """After `refuse`: returns when the requests on connections that were accepted just before
        have begun, so that they are still answered."""
        if self._serving is not None:
            await asyncio.wait({self._serving}, timeout=_ACCEPTED)

    async def end(self, wait: float) -> None:
        """Waits at most `wait` seconds for the running exchanges to end. A client that never sends
        the rest of its request would otherwise delay the stop until its time limit."""
        serving = self._serving
        if serving is None:
            return
        await asyncio.wait({serving}, timeout=wait)
        self.connections.stop()
        if serving.done():
            await self._threads_gone()
        else:
            # Granian will later set a future that is cancelled by then, which does no harm.
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)

    async def _threads_gone(self) -> None:
        """Waits for Granian's threads, which Granian does not join: the one that reported the end,
        and the one that calls the app, which lives as long as a request can still be answered. Both
        need the interpreter once more before they end, and abort the process if it is shutting down
        by then."""
        began = monotonic()
        pause, looked = _FIRST_LOOK if _LINUX else _UNSEEN, False
        while monotonic() < began + _GONE:
            await asyncio.sleep(pause)
            if not (_LINUX and _lives(self._name)):
                return
            if not looked and monotonic() > began + _PATIENT:
                looked = True
                gc.collect()  # a failed exchange may be kept alive by its own traceback
            pause = min(2 * pause, _LATER_LOOKS)
