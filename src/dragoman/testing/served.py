"""Agents on a real port of this machine, in this process, for as long as a block lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.security.access_control import check_certificates
from dragoman.server.agent_names import Agents, by_name
from dragoman.server.app import App
from dragoman.server.engines import engines_for
from dragoman.server.serve import address, wind_down
from dragoman.settings import Settings


@asynccontextmanager
async def served(
    agents: Agents, settings: Settings | None = None, *, grpc: bool = False
) -> AsyncIterator[str]:
    """Serves the agent on a free port in every dialect, and yields its address. Several agents, in
    a list or by their names, are served at `/agents/{name}` below it.

    The store is `memory:` unless the settings name another one; `grpc` opens a second port.
    """
    if settings is None:
        known = Settings()
        server = replace(known.server, store="memory:", grpc_port=0, allow_private=True)
        settings = replace(known, server=server)
    if grpc:
        settings = replace(settings, server=replace(settings.server, grpc=True))
    named = by_name(agents)
    for agent in named.values():
        check_certificates(settings, agent)
    sock = bind("127.0.0.1", 0, limits=settings.limits)
    app = listener = None
    try:
        url = address(sock, tls=bool(settings.tls.cert))
        base = settings.server.public_url or url
        peers, pool = engines_for(named, settings)
        app = App(named, peers, settings, Log("error"), base, pool=pool)
        await app.start()
        listener = GranianServer(app.route, sock, settings.limits, settings.tls, app.server.trusts)
        listener.begin()
        yield url
    finally:
        if app is not None and listener is not None:
            await wind_down(app, listener)
        elif app is not None:
            await app.stop()
        sock.close()
