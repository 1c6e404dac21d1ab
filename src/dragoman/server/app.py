"""The ASGI app of a server: its agents, their engines over a store, and the HTTP routes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from dragoman.agent import Agent
from dragoman.files import FileDoor
from dragoman.files.signed_urls import FILES
from dragoman.net.http import addresses
from dragoman.net.http.asgi import Handler, Receive, Scope, Send, answer
from dragoman.net.http.cors import CrossOrigin
from dragoman.net.http.forwarded import ForwardedHeaders
from dragoman.net.server_context import OpenStreams, ServerContext
from dragoman.net.service import Service
from dragoman.observability.health import HealthEndpoints
from dragoman.observability.log import Log
from dragoman.observability.watchdog import Watchdog
from dragoman.security.access_control import ServerAccess
from dragoman.security.allowed_hosts import AllowedHosts
from dragoman.security.authentication import anyone
from dragoman.security.call_policy import CallPolicy, policies_of
from dragoman.security.rate_limits import Meter
from dragoman.settings import Settings
from dragoman.store.opening import open_when_reachable
from dragoman.store.registry import Source

from .agent_list import AgentList
from .agent_mount import AgentMount, Shared, audit_log_at
from .agent_names import slug
from .agent_router import AgentRouter
from .card_signer import card_signer
from .engines import EnginePool, engine_for, engines_for
from .process.heap_trimmer import HeapTrimmer
from .registry.agent_index import AgentIndex
from .running_peers import stop_together
from .services.factories import GRACE, NoAgent, ServedPeer, SharedContext, server_services_of
from .tenant_endpoint import TenantEndpoint
from .workers import current_worker
from .workers.siblings import Siblings

if TYPE_CHECKING:
    from dragoman.gateway.registry import Factory, Registry
    from dragoman.store import Store

    from .registry.registration import RegistrationEndpoints
    from .registry.skill_mounts import SkillMounts

__all__ = ["App", "engine_for", "engines_for"]

S = TypeVar("S", bound=Service)
NOT_STARTED = (
    b'{"error":"not_started","message":"This app was never started. A framework that mounts it '
    b'does not run its lifespan: see App.lifespan, or mount it with dragoman.adapters.starlette."}'
)
STORE_IS_AWAY = (
    b'{"error":"store_unavailable",'
    b'"message":"This server waits for its database; try again later."}'
)
HEALTH_PATHS = ("/healthz", "/readyz", "/metrics")


class App(AgentRouter):
    """The ASGI app of a server. A single agent is served at `/`, several at `/agents/{name}`. The
    app is started and stopped by its methods, or by the lifespan of the ASGI server."""

    def __init__(
        self,
        agents: Agent | Mapping[str, Agent],
        peers: ServedPeer | Mapping[str, ServedPeer],
        settings: Settings,
        log: Log,
        base: str = "",
        *,
        pool: EnginePool | None = None,
        hosts: AllowedHosts | None = None,
        several: bool | None = None,
        check: Callable[[Agent], None] | None = None,
        registers: Factory | None = None,
        policy: CallPolicy | None = None,
    ) -> None:
        """`peers` run the tasks of the agents of the same names. The store of their `pool` is
        opened before the first of them starts, and closed after the last has stopped. A server for
        `several` agents serves them at `/agents/{name}`, even if there is only one; by default it
        is one if it has more than one agent. `check` raises `ConfigError` for an agent that must
        not be served here. `registers` creates agents from the entries in the registry of the
        store, which are served too; without it there is no registry. `policy` may refuse calls,
        like the rules of the settings."""
        if settings.tracing.enabled:
            from dragoman.observability import tracing

            tracing.set_up(settings.tracing)
        named = agents if isinstance(agents, Mapping) else {"": agents}
        asked = peers if isinstance(peers, Mapping) else {"": peers}
        self.several = len(named) > 1 if several is None else several
        self.settings, self.log = settings, log
        self._pool, self._store = pool, pool.store if pool is not None else None
        self._check = check
        self._store_is_open = False
        self.ready = self._started = False
        self.base = base.rstrip("/")
        self.signer = card_signer(settings.signing)
        addresses.warn_of_plain_http(settings.server.public_url, log)
        if self.signer is not None and not self.base:
            log.warning(
                "The card is not signed", why="set public_url: only callers know our name here"
            )
        believed = settings.server.trusted_proxies
        proxies = ForwardedHeaders(believed, settings.server.forwarded) if believed else None
        self._shared = shared = Shared(
            settings=settings,
            log=log,
            opened=OpenStreams(),
            meter=Meter(settings.rates),
            signer=self.signer,
            files=FileDoor(settings, self.base),
            services=[],
            hosts=hosts or AllowedHosts(settings.server, origins=settings.cors.origins),
            trusts=proxies.trusts if proxies is not None else None,
            policies=policies_of(settings.policy, policy),
            audit=audit_log_at(settings.server.audit),
        )
        self.mounts: dict[str, AgentMount] = {}
        """The agents by their names; the only one of a server may have none."""
        self._naming = {}
        """The hosts and tenants of the agents that have any."""
        self._leaving: dict[str, asyncio.Task[None]] = {}
        """The agents that were removed but have not stopped yet."""
        for name, agent in named.items():
            self.mounts[name] = self._made(name, agent, asked[name])
        only = None if self.several else next(iter(self.mounts.values()))
        self.server = (
            ServerContext(NoAgent(), anyone, settings.limits, log, shared.opened)
            if only is None
            else only.server
        )
        self.server.trusts = shared.trusts
        shared.services.extend(
            server_services_of(
                SharedContext(
                    server=self.server,
                    settings=settings,
                    meter=shared.meter,
                    files=shared.files,
                    several=self.several,
                    base=self.base,
                    agents=lambda: {name: each.context for name, each in self.mounts.items()},
                )
            )
        )
        self.watchdog: Watchdog | None = None
        self._trimmer: HeapTrimmer | None = None
        status = HealthEndpoints(
            log,
            self._counted,
            self.why_not_ready,
            lambda: self.watchdog.blocked if self.watchdog is not None else 0,
            shared.opened.streams,
            lambda: (figures for service in self.services for figures in service.metrics()),
        )
        if (worker := current_worker()) is not None:
            siblings = Siblings(worker)
            status.join(siblings)
            for service in self.services:
                service.join(siblings)
            shared.services.append(siblings)
        everywhere = self.signer.routes() if self.signer is not None else {}
        routes: dict[str, Mapping[str, Handler]] = {**everywhere, **status.routes()}
        for service in shared.services:
            routes |= service.routes()
        self._own_access: ServerAccess | None = None
        self.index = AgentIndex()
        """The index of the agents by the content of their cards, on a server for several."""
        self.listed: AgentList | None = None
        self._is_online: Callable[[str], bool] = lambda name: True
        self.registry: Registry | None = None
        self._registration: RegistrationEndpoints | None = None
        patterns: dict[str, Callable[[str], bool]] = {}
        if only is None:
            self._own_access = access = ServerAccess(settings, shared.meter)
            self.listed = AgentList(self.mounts, self.index, access)
            routes |= self.listed.routes()
            if registers is not None and pool is not None:
                from dragoman.gateway.registry import Registry

                from .registry.registration import PATTERN, RegistrationEndpoints, is_entry
                from .services.links import stand_ins

                self.registry = Registry(
                    *(pool.store.registry, self, registers),
                    worker=lambda: pool.worker,
                    workers=pool.store.list_workers,
                )
                self.registry.arrivals[""] = stand_ins(self, self.registry)
                self.listed.about = self.registry.about
                self._is_online = self.registry.is_online
                self._registration = RegistrationEndpoints(
                    self.registry, access, self.server, settings, shared.audit
                )
                patterns[PATTERN] = is_entry
                for path, methods in self._registration.routes().items():
                    routes[path] = {**routes.get(path, {}), **methods}
                from .services.iat_host import host_service

                host = host_service(self, shared, self.registry, pool.store.sessions)
                if host is not None:
                    shared.services.append(host)
            if pool is not None:
                from .services.links import link_service

                links = link_service(self, shared, pool.store, self.registry)
                if links is not None:
                    shared.services.append(links)
                    if self.registry is None:
                        self.listed.about = links.about
                        self._is_online = links.is_online
                self._add_services(pool.store, lambda: pool.worker)
            for service in shared.services:
                routes |= service.routes()
            guarded = access.policed(routes)
        else:
            from dragoman.engine import Engine

            if isinstance(only.peer, Engine):
                from .services.links import link_service

                self._pool = EnginePool(settings, only.peer.store)
                links = link_service(self, shared, only.peer.store, None)
                if links is not None:
                    shared.services.append(links)
                    self.listed = AgentList(self.mounts, self.index, only.access, empty=False)
                    self.listed.about = links.about
                    routes |= {**links.routes(), **self.listed.routes()}
                runner = only.peer.runner
                self._add_services(only.peer.store, lambda: runner.worker)
            guarded, patterns = only.access.policed(only.routes | routes), {**only.patterns}
        for service in shared.services:
            patterns |= service.patterns()
        seen = proxies.seen if proxies is not None else None
        super().__init__(guarded, self.start, self.stop, patterns, seen, shared.hosts)
        self.cors = CrossOrigin(settings.cors) if settings.cors.origins else None
        self.everywhere = frozenset((*everywhere, *status.routes()))
        self.everywhere_below = (f"{FILES}/",)
        self.skills: SkillMounts | None = None
        if self.several:
            from .registry.skill_mounts import SkillMounts

            self.skills = SkillMounts(
                self.mounts, self.index, shared, self.base, self._is_online, self._source_of
            )
            self.by_skill = self.skills.find
        self.by_body = TenantEndpoint(self, self.server, self._tenants)
        for each in self.mounts.values():
            each.check_card()
            self._publish(each)

    def _add_services(self, store: Store, worker: Callable[[], str]) -> None:
        """Adds the services that need the store. `worker` returns what this process is in it."""
        from .services.with_store import services_with

        shared = self._shared
        shared.services.extend(services_with(self, shared, store, worker, self.registry))

    def _source_of(self, name: str) -> Source:
        """Returns where an agent comes from. Without a registry, all that is known is whether it
        came by itself."""
        entry = self.registry.entries.get(name) if self.registry is not None else None
        if entry is not None:
            return entry.source
        mount = self.mounts.get(name)
        return Source.ROOM if mount is not None and mount.agent.linked else Source.FILE

    def _counted(self) -> Iterator[tuple[str, ServerContext, ServedPeer]]:
        for name, each in self.mounts.items():
            yield name if each.mount_point.path else "", each.server, each.peer

    def _tenants(self) -> Iterator[ServerContext]:
        """Returns the agents that have a tenant."""
        return (each.server for each in self.mounts.values() if each.naming.tenant)

    def only_agent(self, name: str) -> Agent | None:
        """Returns the only agent of a server, if this is its name in the store."""
        if self.several:
            return None
        found = (each for each in self.mounts.values() if not each.mount_point.path)
        return next((each.agent for each in found if slug(each.agent.name) == name), None)

    def agent_at(self, name: str) -> Agent | None:
        """Returns the agent that is served under a name."""
        mount = self.mounts.get(name)
        return mount.agent if mount is not None else self.only_agent(name)

    @property
    def services(self) -> list[Service]:
        """All services, those of the whole server first."""
        own = (service for each in self.mounts.values() for service in each.services)
        return [*self._shared.services, *own]

    def service(self, kind: type[S], agent: str = "") -> S:
        """Returns the service of this kind: the one of this agent, if each agent has one. Raises
        `LookupError` if there is none."""
        own = self.mounts[agent].services if agent else self.services
        for service in own:
            if isinstance(service, kind):
                return service
        raise LookupError(f"This app has no {kind.__name__}.")

    @property
    def ports(self) -> dict[str, int]:
        """The ports that services listen on, by their names."""
        return {each.name: each.port for each in self.services if each.port is not None}

    # Life

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one ASGI connection."""
        if not self.ready and scope["type"] == "http":
            if not self._started and scope["method"] == "POST":
                await answer(send, 503, NOT_STARTED)
                return
            if self.waits_for_store and scope["path"] not in HEALTH_PATHS:
                await answer(send, 503, STORE_IS_AWAY, extra=((b"retry-after", b"1"),))
                return
        await self.route(scope, receive, send)

    @property
    def waits_for_store(self) -> bool:
        """Whether the app has not started yet because the database of its store is away."""
        return bool(self._absent_database())

    def why_not_ready(self) -> str:
        """Returns why the app takes no requests now, in words for the operator, or nothing."""
        if self.ready:
            return ""
        stops = "The server stops" if self.server.draining else "The server is starting"
        return self._absent_database() or stops

    def _absent_database(self) -> str:
        if self.ready:
            return ""
        stores = (
            self._store,
            *(getattr(each.peer, "store", None) for each in self.mounts.values()),
        )
        return next(
            (str(each.outage) for each in stores if each is not None and each.outage.lasts), ""
        )

    async def start(self) -> None:
        """Starts the app, and returns when it is ready for requests."""
        self._started = True
        for service in self.services:
            service.open()
        if self._store is not None:
            await open_when_reachable(self._store)
            self._store_is_open = True
        for each in self.mounts.values():
            try:
                await each.start_peer()
            except BaseException:
                await self._stop_peers()
                raise
        self.watchdog = Watchdog(self.log, self.settings.server.watchdog)
        self._trimmer = HeapTrimmer()
        self.ready = True
        for service in self.services:
            await service.start()
        if self.registry is not None:
            await self.registry.start(self._of_settings())

    def _of_settings(self) -> dict[str, tuple[str, ...]]:
        """Returns the agents of the settings, as opposed to registered ones, with the addresses of
        those that run elsewhere."""
        known = self.settings.agents
        return {
            name: tuple(filter(None, (known[name].url,))) if name in known else ()
            for name in self.mounts
        }

    async def drain(self) -> None:
        """Refuses new work, except requests through the listener, which the server stops next."""
        self.ready = False
        if self.registry is not None:
            await self.registry.stop()
        self.server.draining = True
        shared = (service.drain() for service in self._shared.services)
        await asyncio.gather(*shared, *(each.drain() for each in self.mounts.values()))

    async def stop(self) -> None:
        """Gives runs their grace period, in which streams still deliver their end, and then closes
        every stream."""
        await self.drain()
        try:
            await self._stop_peers()
        finally:
            self.server.opened.end_streams()
            for each in self.mounts.values():
                await each.stop(GRACE)
            if self.skills is not None:
                await self.skills.stop()
            for service in reversed(self._shared.services):
                await service.stop()
            if self._own_access is not None:
                await self._own_access.close()
            self.server.deadlines.stop()
            if self.watchdog is not None:
                self.watchdog.stop()
            if self._trimmer is not None:
                self._trimmer.stop()
            self.log.flush()

    async def _stop_peers(self) -> None:
        """Stops the peers that have started, all at once because each has the same grace period,
        and then closes what they share."""
        close = self._store.close if self._store is not None and self._store_is_open else None
        self._store_is_open = False
        if not self.several:
            # The only agent closes the store, which its guests use too.
            guests = [each for each in self.mounts.values() if each.mount_point.path]
            await stop_together((each.stop_peer(GRACE) for each in guests), None)
        stops = (each.stop_peer(GRACE) for each in self.mounts.values())
        await stop_together((*stops, *self._leaving.values()), close)
