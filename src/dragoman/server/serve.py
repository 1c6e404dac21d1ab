"""Serves one agent or several until the process is told to stop."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from dragoman import settings as config
from dragoman.agent import Agent
from dragoman.core.errors import ConfigError
from dragoman.core.log import Logger
from dragoman.observability.log import Log, set_up
from dragoman.security.access_control import check_certificates, check_exposure
from dragoman.security.server_secret import key_file
from dragoman.settings import Settings
from dragoman.store.writes import resolve

from .agent_names import Agents, by_name
from .app import App
from .engines import engines_for
from .process import tuning
from .services.factories import GRACE, LINGER
from .workers import current_worker, settings_of_worker

server_log = Logger("server")

START_CHECK_SECONDS = 0.2
DRAIN_SECONDS = 2 * LINGER
"""The most seconds for refusing new work."""
STOP_SECONDS = GRACE + LINGER
"""The most seconds for returning all tasks and closing the store, whatever else is away."""

if TYPE_CHECKING:
    from dragoman.gateway.registry import Factory
    from dragoman.net.http.granian_server import GranianServer


def serve(agents: Agents, **options: Any) -> None:
    """Serves an agent until Ctrl-C or SIGTERM. The options are the keys of `[server]` in the
    settings. Several agents, in a list or by their names, are served at `/agents/{name}`. With
    `xiaoyi`, the keys of `[agents.NAME.xiaoyi]`, the only agent opens no port and dials XiaoYi."""
    on_start, file = options.pop("on_start", None), options.pop("config", None)
    auth = options.pop("auth", None) or {}
    for agent in by_name(agents).values():
        agent.auth |= auth
    link = options.pop("xiaoyi", None)
    if link is not None:
        from .xiaoyi.agent_link import run_link

        (only,) = by_name(agents).values()
        return run_link(only, config.load(options, os.environ, file), config.LinkSettings(**link))
    run(agents, config.load(options, os.environ, file), on_start)


def run(
    agents: Agents,
    settings: Settings,
    on_start: Callable[[str], None] | None = None,
    *,
    several: bool | None = None,
    registers: Factory | None = None,
    beside: Callable[[App], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Serves the agents with these settings; `on_start` is called with the address. A server for
    `several` agents serves them at `/agents/{name}`, even if there is only one, and may also serve
    the agents that are registered in its store: `registers` creates an agent from an entry.
    `beside` runs until the server stops."""
    from dragoman.net.http.granian_server import bind, raise_file_limit

    tuning.postpone_collection()
    named = by_name(agents, several=several)
    for agent in named.values():
        check_agent(settings, agent)
    server, worker = settings.server, current_worker()
    log = set_up(settings.server.log_level, settings.server.log_format)
    if worker is not None:
        sock, on_start = worker.listening_socket(), None
        settings = settings_of_worker(settings, worker)
    elif server.workers > 1:
        _supervise(settings, log, on_start)
    else:
        sock = bind(server.host, server.port, limits=settings.limits, reserved=server.grpc_port)
    raise_file_limit(settings.limits.connections)
    key = key_file(settings.server.store)
    had_key = key is None or key.exists()
    try:
        run_loop(_serve(named, settings, sock, log, on_start, several, registers, beside))
    except ConfigError:
        # A start that was refused leaves no new key: beside a copy of a store, it would be taken
        # for the key of what is in there.
        if key is not None and not had_key:
            with suppress(OSError):
                key.unlink()
        raise
    finally:
        sock.close()
        log.close()


def _supervise(settings: Settings, log: Log, on_start: Callable[[str], None] | None) -> NoReturn:
    from .workers.supervisor import supervise

    def announce(sock: socket.socket) -> None:
        url = address(sock, tls=bool(settings.tls.cert))
        log.info("started", url=url, workers=settings.server.workers, pid=os.getpid())
        if on_start is not None:
            on_start(url)

    try:
        sys.exit(supervise(settings, announce))
    finally:
        log.close()


def check_agent(settings: Settings, agent: Agent) -> None:
    """Raises `ConfigError` for an agent that must not be served with these settings."""
    check_exposure(settings, agent)
    check_certificates(settings, agent)


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Runs this in an event loop of its own."""
    try:
        import uvloop
    except ModuleNotFoundError:  # not made for Windows
        asyncio.run(main)
    else:
        uvloop.run(main)


async def _serve(
    agents: Mapping[str, Agent],
    settings: Settings,
    sock: socket.socket,
    log: Log,
    on_start: Callable[[str], None] | None,
    several: bool | None,
    registers: Factory | None,
    beside: Callable[[App], Coroutine[Any, Any, None]] | None,
) -> None:
    from dragoman.net.http.granian_server import GranianServer

    url = address(sock, tls=bool(settings.tls.cert))
    anywhere = _wildcard(settings.server.host) or settings.server.trusted_proxies
    base = settings.server.public_url or ("" if anywhere else url)
    peers, pool = engines_for(agents, settings, several=several)
    check = partial(check_agent, settings)
    app = App(
        *(agents, peers, settings, log, base),
        pool=pool,
        several=several,
        check=check,
        registers=registers,
    )
    stopping = stop_signals(log)
    worker = current_worker()
    if worker is not None:
        worker.on_orphaned(lambda: resolve(stopping, None))
    tuning.use_batch_scheduling()
    start = asyncio.create_task(app.start())
    await _first_of(start, stopping, until=lambda: app.waits_for_store)
    # While it waits for its database, the app answers for itself that it is not ready.
    entry = app.route if start.done() else app
    listener = GranianServer(entry, sock, settings.limits, settings.tls, app.server.trusts)
    serving = listener.begin()
    if worker is not None:
        worker.report_ready()
    if not await _first_of(start, stopping, serving):
        start.cancel()
        await asyncio.wait({start})
        listener.refuse()
        await listener.end(LINGER)
        return
    tuning.collect_less_often()
    log.info(
        "started",
        **_called(app),
        url=url,
        **app.ports,
        store=shown(settings.server.store),
        pid=os.getpid(),
    )
    if on_start is not None:
        on_start(url)
    running = asyncio.create_task(beside(app)) if beside is not None else None
    try:
        first: set[asyncio.Future[Any]] = {serving, stopping}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
    finally:
        began = time.monotonic()
        if running is not None:
            running.cancel()
            await asyncio.wait({running})
        # A person at a terminal waits for the end, so only SIGTERM lets callers go first.
        told = stopping.result() if stopping.done() and not stopping.cancelled() else None
        drain = settings.server.drain if told == signal.SIGTERM else 0.0
        whole = await wind_down(app, listener, drain, last=worker is None)
        log.info("stopped", seconds=f"{time.monotonic() - began:.2f}")
        if not whole:
            # What is left waits for a store or a peer that is away, perhaps in a thread. The end of
            # the event loop would wait for it too.
            log.close()
            os._exit(0)


async def _first_of(
    start: asyncio.Task[None],
    *others: asyncio.Future[Any],
    until: Callable[[], bool] = lambda: False,
) -> bool:
    """Waits for the start of an app; returns whether it has started. Ends early with one of the
    others, or when a condition holds."""
    while not start.done() and not any(other.done() for other in others) and not until():
        waiters = {start, *others}
        await asyncio.wait(
            waiters, timeout=START_CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
    if start.done():
        start.result()
    return start.done()


def _called(app: App) -> dict[str, str]:
    """Returns the log fields that name the agents: the display name of a single agent, or the names
    of several."""
    if app.several:
        return {"agents": ",".join(app.mounts)}
    (only,) = app.mounts.values()
    return {"agent": only.agent.name}


async def wind_down(
    app: App, listener: GranianServer, drain: float = 0.0, *, last: bool = True
) -> bool:
    """Stops the server in the only order in which no caller is left waiting: WebSockets, callers
    that keep their connections, new connections, runs, and then everything else. `drain` are the
    seconds in which callers may go; `last` says that no other process listens on this socket.
    Returns False if something did not stop in time, such as a store that is away."""
    whole = await _within(DRAIN_SECONDS, app.drain(), "Some services still have work")
    if drain:
        await _let_go(app, listener, drain)
        if last:
            await listener.ignore_new()
    listener.refuse()
    await listener.settle()
    left = (
        "The server ends before everything was returned to its store. What was acknowledged is "
        "stored; tasks that run here go on elsewhere, or after the next start, when the lease of "
        "this process is over"
    )
    whole = await _within(STOP_SECONDS, app.stop(), left) and whole
    await listener.end(LINGER)
    return whole


async def _within(seconds: float, stop: Coroutine[Any, Any, None], problem: str) -> bool:
    """Waits for a part of the stop, but no longer than this: an orchestrator kills what takes ten
    seconds. Then it says what is left, and leaves it."""
    stopped = asyncio.ensure_future(stop)
    done, _ = await asyncio.wait({stopped}, timeout=seconds)
    if not done:
        stopped.cancel()
        server_log.warning(problem, seconds=seconds)
        return False
    stopped.result()
    return True


async def _let_go(app: App, listener: GranianServer, seconds: float) -> None:
    """Lets callers go: for so many seconds, or until all have gone, each answer ends its
    connection. A stream that was open before has not said so, and its connection would be used
    again when it ends; so it may end while its caller can still be told."""
    opened = app.server.opened
    before = opened.streams - opened.sockets
    listener.say_goodbye()
    await listener.empty(seconds)
    if before:
        await asyncio.wait({stream.task for stream in before}, timeout=GRACE)
        for stream in before:
            stream.end("stopping")
        await listener.empty(seconds)


def stop_signals(log: Log) -> asyncio.Future[int | None]:
    """Returns a future that is done at the first SIGINT or SIGTERM, with its number. The second
    signal ends the process at once."""
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[int | None] = loop.create_future()

    def heard(number: int) -> None:
        if stopping.done():
            log.close()
            os._exit(128 + number)
        log.info("stopping", signal=signal.Signals(number).name)
        stopping.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, heard, number)
    return stopping


def address(sock: socket.socket, *, tls: bool = False) -> str:
    """Returns the URL of this socket for callers on the same machine."""
    scheme = "https" if tls else "http"
    host, port = sock.getsockname()[:2]
    if _wildcard(host):
        host = "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def shown(store: str) -> str:
    """Returns the URL of a store without the password that it may contain."""
    return re.sub(r"//[^/@]*@", "//***@", store)


def _wildcard(host: str) -> bool:
    return host in ("0.0.0.0", "::", "")  # noqa: S104  compared, not bound
