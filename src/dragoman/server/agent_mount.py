"""One agent of a server at its mount point: its peer behind the authorization, its card and its
routes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from dragoman import spans
from dragoman.agent import Agent
from dragoman.core.card import Card, Interface
from dragoman.core.errors import ConfigError, DragomanError
from dragoman.core.peer import Context
from dragoman.dialects import DIALECTS
from dragoman.files import FileDoor
from dragoman.net.http import addresses
from dragoman.net.http.asgi import Handler, Receive, Scope, Send
from dragoman.net.http.card_endpoint import CardEndpoint
from dragoman.net.http.mount_point import MountPoint
from dragoman.net.http.router import Router, no_route
from dragoman.net.http.routes import card_paths, routes_of
from dragoman.net.server_context import OpenStreams, ServerContext
from dragoman.net.service import Service
from dragoman.observability.log import AgentLog, Log
from dragoman.security.access_control import AccessControl
from dragoman.security.allowed_hosts import AllowedHosts
from dragoman.security.call_policy import CallPolicy
from dragoman.security.rate_limits import Meter
from dragoman.security.route_policy import Policy, policy
from dragoman.settings import Settings

from .agent_names import NO_AGENT, Naming, title_slug
from .services.factories import LINGER, HasFiles, ServedPeer, ServiceContext, services_of

if TYPE_CHECKING:
    from dragoman.observability.audit_log import AuditLog
    from dragoman.security.card_signing import Signer


class Shared(Struct, frozen=True, kw_only=True):
    """What the agents of a server have in common."""

    settings: Settings
    log: Log
    opened: OpenStreams
    meter: Meter
    signer: Signer | None
    files: FileDoor
    services: list[Service]
    """The services that serve all agents."""
    hosts: AllowedHosts
    trusts: Callable[[str], bool] | None
    """Returns whether an address belongs to one of our proxies."""
    policies: Sequence[CallPolicy] = ()
    """The rules that say what callers may do."""
    audit: AuditLog | None = None
    """The log of every call, if there is one."""


def audit_log_at(path: str) -> AuditLog | None:
    """Returns the audit log of the settings, or None if there is none."""
    if not path:
        return None
    from dragoman.observability.audit_log import AuditLog

    return AuditLog(path)


Refusal = Callable[[Context, str, DragomanError], None]


def _each(refusals: Sequence[Refusal]) -> Refusal:
    def tell(ctx: Context, dialect: str, error: DragomanError) -> None:
        for refused in refusals:
            refused(ctx, dialect, error)

    return tell


class AgentMount:
    """An agent, and everything that serves this agent alone."""

    def __init__(
        self,
        name: str,
        agent: Agent,
        peer: ServedPeer,
        mount_point: MountPoint,
        shared: Shared,
        naming: Naming,
    ) -> None:
        """`name` is the name of the agent in the store; if it is empty, the agent's own name is
        used. `naming` holds the other names by which calls may address the agent."""
        self.naming = naming
        self.name, self.agent, self.peer, self.mount_point = name, agent, peer, mount_point
        self._shared = shared
        settings = shared.settings
        log = AgentLog(shared.log, name) if mount_point.path else shared.log
        # At the address of a skill an agent is asked, which has its policies and is recorded.
        is_agent = not name.startswith(NO_AGENT)
        known_as = name or title_slug(agent.name)
        policies = shared.policies if is_agent else ()
        self.access = AccessControl(agent, settings, shared.meter, policies=policies, name=known_as)
        self.guarded = asked = self.access.before(peer, self.card_at)
        """What answers calls that are not recorded."""
        refusals: list[Refusal] = []
        for records in (shared.audit, shared.log.calls) if is_agent else ():
            if records is not None:
                from dragoman.observability.audit_log import AuditingPeer

                asked = recording = AuditingPeer(records, agent, known_as, asked, peer)
                refusals.append(recording.refused)
        if spans.tracer is not None and is_agent:
            from dragoman.observability.tracing import TracingPeer

            asked = TracingPeer(spans.tracer, known_as, asked)
        self.server = ServerContext(
            asked, self.access.admit_or_anyone, settings.limits, log, shared.opened
        )
        if refusals:
            self.server.on_refusal = _each(refusals)
        self.server.mount_point = mount_point
        self.server.trusts = shared.trusts
        self.server.recognizes = self.access.recognizes
        self.server.public_card = self._public_card
        self.server.refusal_headers = self.access.authenticator.refusal_headers
        self.context = ServiceContext(
            agent=agent,
            engine=peer,
            server=self.server,
            access=self.access,
            settings=settings,
            files=shared.files,
            name=name if mount_point.path else "",
        )
        offers: object = agent
        if isinstance(offers, HasFiles):
            offers.use_files(shared.files)
        self.services = services_of(self.context)
        self._interfaces = addresses.chosen(settings.server)
        self._roles = {service.role: service for service in self.services if service.role}
        self._dialects = addresses.served(self._interfaces, self._roles)
        self._push = settings.push.enabled and agent.push
        endpoints, self.patterns = routes_of(
            self.server, self._dialects, tuple(DIALECTS.values()), self._roles
        )
        pages = self._pages = CardEndpoint(self.card_at, mount_point, time.time())
        routes: dict[str, Mapping[str, Handler]] = {
            **endpoints,
            **pages.routes(card_paths(self._dialects), rest=addresses.REST_1_0 in self._interfaces),
        }
        for service in self.services:
            routes |= service.routes()
        self.routes = routes
        """The routes relative to the mount point, before their policies are applied."""
        self.add_page()
        self._contexts = {self.server}
        """The contexts of the conversations with the agent: our own, and those of replaced agents
        whose conversations have not ended yet."""
        self._runs = False
        """Whether the peer is to be stopped."""
        self.on_card_change: Callable[[], None] = lambda: None
        """Called when the card has changed, so that lists can be updated."""
        self._learn_extensions()
        agent.on_card_change.append(self._card_changed)

    def add_page(self, otherwise: Handler | None = None) -> None:
        """Shows browsers a page about the agent at its address. Other clients get what the other
        handler sends, or that there is nothing to get."""
        before = self.routes.get("/", {})
        root = {method: each for method, each in before.items() if method not in ("GET", "HEAD")}

        @policy(Policy.OPEN)  # there is nothing to see
        async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
            await no_route(scope, receive, send, root or None)

        page = self._pages.for_browsers(otherwise or nothing)
        # Without a binding at this address, there is nothing for clients that post.
        self.routes["/"] = {**(root or {"POST": nothing}), "GET": page, "HEAD": page}

    def _card_changed(self) -> None:
        self._learn_extensions()
        self._pages.renew(time.time())
        self.on_card_change()

    def _learn_extensions(self) -> None:
        self.server.extensions = frozenset(e.uri for e in self.agent.card(()).extensions)

    @property
    def router(self) -> Router:
        """Returns the router for the paths below the mount point."""
        return Router(
            self.access.policed(self.routes), patterns=self.patterns, hosts=self._shared.hosts
        )

    # Life

    async def start_peer(self) -> None:
        """Starts to run tasks."""
        await self.peer.start()
        self._runs = True

    async def start(self, *, peer: bool = True) -> None:
        """Starts the agent in the same order as a server starts its agents. `peer` is false if the
        peer is already running."""
        try:
            for service in self.services:
                service.open()
            if peer:
                await self.start_peer()
            for service in self.services:
                await service.start()
        except BaseException:
            await self.stop(0.0)
            raise

    def succeed(self, before: AgentMount) -> None:
        """Takes over from the agent that was mounted here: its metrics and, if the peer is the
        same, its conversations."""
        self.server.metrics = before.server.metrics
        if self.peer is before.peer:
            self._contexts |= before._contexts
            self._runs, before._runs = before._runs, False
            before._contexts = set()

    async def drain(self) -> None:
        """Refuses new work, except requests through the listener."""
        await asyncio.gather(*(service.drain() for service in self.services))
        for context in self._contexts:
            context.draining = True
        await self._shared.opened.close_sockets(LINGER, self._contexts)

    async def stop(self, grace: float) -> None:
        """Gives runs their grace period, in which streams still deliver their end, and then closes
        every stream."""
        await self.drain()
        try:
            await self.stop_peer(grace)
        finally:
            self._shared.opened.end_streams(self._contexts)
            for service in reversed(self.services):
                await service.stop()
            await self.access.close()
            if self._card_changed in self.agent.on_card_change:
                self.agent.on_card_change.remove(self._card_changed)

    async def stop_peer(self, grace: float) -> None:
        """Gives runs this many seconds, then returns them to the store."""
        runs, self._runs = self._runs, False
        if runs:
            await self.peer.stop(grace)

    def card_at(self, url: str, card: Card | None = None) -> Card:
        """Returns the agent's card, or its extended `card`, in the published form: with the
        interfaces and schemes that are currently in force, and signed. `url` is the address of the
        agent for this caller; if it is empty, our own public URL is used."""
        url = url or self.mount_point.url
        card = card or self.agent.card()
        services = (*self._shared.services, *self.services)
        name = self.name if self.mount_point.path else ""
        elsewhere = [each for service in services for each in service.interfaces(url, name)]
        listed = addresses.interfaces(url, elsewhere, self._interfaces)
        others = addresses.extension(url, self._dialects)
        card = replace(
            card,
            interfaces=card.interfaces or listed,
            streaming=self.agent.streaming,
            push=self._push,
            extensions=(*card.extensions, others),
        )
        card = self.access.on_card(card)
        # Without a public URL the address on the card comes from the caller's Host header. Such a
        # card is not signed, because a caller could otherwise obtain a signature for any host.
        signer = self._shared.signer
        if signer is None or not self.mount_point.base:
            return card
        return signer.signed(card, url.rstrip("/").removesuffix(self.mount_point.path))

    def _public_card(self, caller: Context, address: str) -> Card | None:
        return self.card_at("") if self.access.shows_card(caller, address) else None

    def check_card(self) -> None:
        """Raises `ConfigError` if the card breaks the rules of its versions, or contains a secret.

        An extended card that a function of the author creates is not known yet, but the skills that
        only extended cards list are checked too.
        """
        from dragoman.dialects.a2a.cards import documents, validate
        from dragoman.dialects.a2a.cards.canonical import document_in
        from dragoman.dialects.a2a.cards.secret_scan import leaks

        public = self.card_at(self.mount_point.url or "http://127.0.0.1")
        if not public.interfaces and self._interfaces:
            # All configured interfaces have ports of their own, which are not bound yet.
            binding, version = self._interfaces[0]
            later = Interface(url="127.0.0.1:1", binding=binding, version=version)
            public = replace(public, interfaces=(later,))
        whole = self.agent.card(public.interfaces, self.agent.skills)
        shown = replace(public, skills=whole.skills, signatures=())
        document = document_in(documents.merged(shown))
        allowed = self._shared.settings.server.card_secrets
        secrets = {} if not allowed else dict(leaks(document))
        for problem in validate.problems(document):
            if not problem.warning and problem.field not in secrets:
                raise ConfigError(f"The agent's card is not valid: {problem}.")
