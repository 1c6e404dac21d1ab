"""Puts it together: agents, their engines over a store, and the HTTP side, as an ASGI app."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dragoman import settings as config
from dragoman.agent import Agent
from dragoman.core.errors import ConfigError
from dragoman.net.http import addresses
from dragoman.net.http.asgi import Handler
from dragoman.net.http.forwarded import ForwardedHeaders
from dragoman.net.http.mount_point import AGENTS, MountPoint
from dragoman.net.http.router import Router
from dragoman.net.server_context import OpenStreams, ServerContext
from dragoman.net.service import Service
from dragoman.observability.health import HealthEndpoints
from dragoman.observability.log import Log, set_up
from dragoman.observability.watchdog import Watchdog
from dragoman.security.access_control import ServerAccess
from dragoman.security.allowed_hosts import AllowedHosts
from dragoman.security.authentication import anyone
from dragoman.security.rate_limits import Meter
from dragoman.settings import Settings

from .agent_list import AgentList
from .agent_loader import load_agents
from .agent_mount import AgentMount, Shared
from .agent_names import Agents, by_name
from .engines import engine_for, engines_for
from .heap_trimmer import HeapTrimmer
from .running_peers import RunningPeers
from .services import LINGER, NoAgent, ServedPeer, server_services_of

if TYPE_CHECKING:
    from dragoman.security.card_signing import Signer
    from dragoman.store import Store

__all__ = ["App", "create_app", "engine_for", "engines_for"]

S = TypeVar("S", bound=Service)


class App(Router):
    """The ASGI app of a server: its only agent is at `/`, several are at `/agents/{name}` each.
    Start and stop it, or let the server's lifespan do it."""

    def __init__(
        self,
        agents: Agent | Mapping[str, Agent],
        peers: ServedPeer | Mapping[str, ServedPeer],
        settings: Settings,
        log: Log,
        base: str = "",
        *,
        store: Store | None = None,
        hosts: AllowedHosts | None = None,
    ) -> None:
        """`peers` run the tasks of the agents of the same names. `store` is what they share: it is
        opened before the first of them starts, and closed after the last has stopped."""
        named = agents if isinstance(agents, Mapping) else {"": agents}
        asked = peers if isinstance(peers, Mapping) else {"": peers}
        self.log = log
        self._peers = RunningPeers((asked[name] for name in named), store)
        self.ready = False
        self.base = base.rstrip("/")
        self.signer = _signer(settings)
        addresses.warn_of_plain_http(settings.server.public_url, log)
        if self.signer is not None and not self.base:
            log.warning("card_not_signed", why="set public_url: only callers know our name here")
        shared = Shared(
            settings=settings,
            log=log,
            opened=OpenStreams(),
            meter=Meter(settings.rates),
            signer=self.signer,
            services=[],
        )
        several = len(named) > 1
        self.mounts = {
            name: AgentMount(
                *(name, agent, asked[name]),
                MountPoint(self.base, f"{AGENTS}/{name}" if several else ""),
                shared,
            )
            for name, agent in named.items()
        }
        """The agents by their names; the only one of a server may have none."""
        only = None if several else next(iter(self.mounts.values()))
        self.server = (
            ServerContext(NoAgent(), anyone, settings.limits, log, shared.opened)
            if only is None
            else only.server
        )
        contexts = {name: each.context for name, each in self.mounts.items()} if several else {}
        shared.services.extend(server_services_of(self.server, contexts, settings))
        self.services = [
            *shared.services,
            *(service for each in self.mounts.values() for service in each.services),
        ]
        believed = settings.server.trusted_proxies
        proxies = ForwardedHeaders(believed, settings.server.forwarded) if believed else None
        for context in (self.server, *(each.server for each in contexts.values())):
            context.trusts = proxies.trusts if proxies is not None else None
        self.watchdog: Watchdog | None = None
        self._trimmer: HeapTrimmer | None = None
        self._fatal = settings.server.watchdog
        status = HealthEndpoints(
            log,
            {
                name if several else "": (each.server, each.peer)
                for name, each in self.mounts.items()
            },
            lambda: self.ready,
            lambda: self.watchdog.blocked if self.watchdog is not None else 0,
        )
        routes: dict[str, Mapping[str, Handler]] = {
            **(self.signer.routes() if self.signer is not None else {}),
            **status.routes(),
        }
        hosts = hosts or AllowedHosts(settings.server)
        self._own_access: ServerAccess | None = None
        if only is None:
            self._own_access = access = ServerAccess(settings, shared.meter)
            routes |= AgentList(self.mounts, access).routes()
            for service in shared.services:
                routes |= service.routes()
            guarded, patterns = access.policed(routes), None
        else:
            guarded, patterns = only.access.policed(only.routes | routes), only.patterns
        super().__init__(
            guarded,
            self.start,
            self.stop,
            patterns,
            proxies.seen if proxies is not None else None,
            hosts,
            {
                name: Router(each.access.policed(each.routes), patterns=each.patterns, hosts=hosts)
                for name, each in self.mounts.items()
                if several
            },
        )
        for each in self.mounts.values():
            each.check_card()

    def service(self, kind: type[S], agent: str = "") -> S:
        """The service of this kind, that of this agent if each has one; `LookupError` if there is
        none."""
        own = self.mounts[agent].services if agent else self.services
        for service in own:
            if isinstance(service, kind):
                return service
        raise LookupError(f"This app has no {kind.__name__}.")

    @property
    def ports(self) -> dict[str, int]:
        """The ports that services listen on, by their names."""
        return {each.name: each.port for each in self.services if each.port is not None}

    async def start(self) -> None:
        """Ready for requests when it returns."""
        for service in self.services:
            service.open()
        await self._peers.start()
        self.watchdog = Watchdog(self.log, self._fatal)
        self._trimmer = HeapTrimmer()
        self.ready = True
        for service in self.services:
            await service.start()

    async def drain(self) -> None:
        """Takes nothing new but what comes through the listener, which the server stops next."""
        self.ready = False
        await asyncio.gather(*(service.drain() for service in self.services))
        await self.server.opened.close_sockets(LINGER)

    async def stop(self) -> None:
        """Runs get their grace while streams still see them end; then every stream is closed."""
        await self.drain()
        try:
            await self._peers.stop()
        finally:
            self.server.opened.end_streams()
            for service in reversed(self.services):
                await service.stop()
            for each in self.mounts.values():
                await each.access.close()
            if self._own_access is not None:
                await self._own_access.close()
            self.server.deadlines.stop()
            if self.watchdog is not None:
                self.watchdog.stop()
            if self._trimmer is not None:
                self._trimmer.stop()
            self.log.flush()


def _signer(settings: Settings) -> Signer | None:
    """Signs the card. What it needs is loaded only where cards are signed."""
    if not settings.signing.keys:
        return None
    from dragoman.security.card_signing import Signer

    return Signer(settings.signing, time.time())


def create_app(agents: Agents | None = None, settings: Settings | None = None) -> App:
    """The ASGI app for any ASGI server. One agent is served at `/`, several at `/agents/{name}`:
    a mapping gives each its name, else it is made of what the agent calls itself. Without any,
    `DRAGOMAN_AGENT=file.py:name` or the sections `[agents.NAME]` of the settings say which."""
    if settings is None:
        path = os.environ.get("DRAGOMAN_CONFIG")
        settings = config.load(None, os.environ, Path(path) if path else None)
    if agents is None:
        where = os.environ.get("DRAGOMAN_AGENT", "")
        if not where and not settings.agents:
            raise ConfigError("Which agent? Set DRAGOMAN_AGENT=file.py:name")
        agents = load_agents([where] if where else [], settings)
    named = by_name(agents)
    log = set_up(settings.server.log_level)
    # What address the server is bound to is not known here.
    hosts = AllowedHosts(settings.server, anywhere=True)
    peers, store = engines_for(named, settings)
    base = settings.server.public_url
    return App(named, peers, settings, log, base, store=store, hosts=hosts)
