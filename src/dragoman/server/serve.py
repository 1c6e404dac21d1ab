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
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from dragoman import settings as config
from dragoman.agent import Agent
from dragoman.observability.log import Log, set_up
from dragoman.security.access_control import check_certificates, check_exposure
from dragoman.settings import Settings
from dragoman.store.writes import resolve

from .agent_names import Agents, by_name
from .app import App
from .engines import engines_for
from .process import tuning
from .services.factories import GRACE, LINGER
from .workers import current_worker, settings_of_worker

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
    log = set_up(settings.server.log_level)
    if worker is not None:
        sock, on_start = worker.listening_socket(), None
        settings = settings_of_worker(settings, worker)
    elif server.workers > 1:
        _supervise(settings, log, on_start)
    else:
        sock = bind(server.host, server.port, limits=settings.limits, reserved=server.grpc_port)
    raise_file_limit(settings.limits.connections)
    try:
        run_loop(_serve(named, settings, sock, log, on_start, several, registers, beside))
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
    await app.start()
    tuning.collect_less_often()
    listener = GranianServer(app.route, sock, settings.limits, settings.tls, app.server.trusts)
    serving = listener.begin()
    if worker is not None:
        worker.report_ready()
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
        await wind_down(app, listener, drain, last=worker is None)
        log.info("stopped", seconds=f"{time.monotonic() - began:.2f}")


def _called(app: App) -> dict[str, str]:
    """Returns the log fields that name the agents: the display name of a single agent, or the names
    of several."""
    if app.several:
        return {"agents": ",".join(app.mounts)}
    (only,) = app.mounts.values()
    return {"agent": only.agent.name}


async def wind_down(
    app: App, listener: GranianServer, drain: float = 0.0, *, last: bool = True
) -> None:
    """Stops the server in the only order in which no caller is left waiting: WebSockets, callers
    that keep their connections, new connections, runs, and then everything else. `drain` are the
    seconds in which callers may go; `last` says that no other process listens on this socket."""
    await app.drain()
    if drain:
        await _let_go(app, listener, drain)
        if last:
            await listener.ignore_new()
    listener.refuse()
    await listener.settle()
    await app.stop()
    await listener.end(LINGER)


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
