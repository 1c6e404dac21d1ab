"""One agent of a server at its mount point: its peer behind its guard, its card and its routes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agent import Agent
from dragoman.core.card import Card, Interface
from dragoman.core.errors import ConfigError
from dragoman.dialects import DIALECTS
from dragoman.net.http import addresses
from dragoman.net.http.asgi import Handler
from dragoman.net.http.card_endpoint import CardEndpoint
from dragoman.net.http.mount_point import MountPoint
from dragoman.net.http.router import Router
from dragoman.net.http.routes import card_paths, routes_of
from dragoman.net.server_context import OpenStreams, ServerContext
from dragoman.net.service import Service
from dragoman.observability.audit_log import AuditingPeer, AuditLog
from dragoman.observability.log import AgentLog, Log
from dragoman.security.access_control import AccessControl
from dragoman.security.allowed_hosts import AllowedHosts
from dragoman.security.call_policy import CallPolicy
from dragoman.security.rate_limits import Meter
from dragoman.settings import Settings

from .agent_names import NO_AGENT, Naming, title_slug
from .services import LINGER, ServedPeer, ServiceContext, services_of

if TYPE_CHECKING:
    from dragoman.security.card_signing import Signer


class Shared(Struct, frozen=True, kw_only=True):
    """What the agents of a server have in common."""

    settings: Settings
    log: Log
    opened: OpenStreams
    meter: Meter
    signer: Signer | None
    services: list[Service]
    """Those that serve all agents."""
    hosts: AllowedHosts
    trusts: Callable[[str], bool] | None
    """Whether an address is one of our proxies'."""
    policies: Sequence[CallPolicy] = ()
    """What the operator lets callers do."""
    audit: AuditLog | None = None
    """Records every call."""


class AgentMount:
    """An agent, and all that serves it alone."""

    def __init__(
        self,
        name: str,
        agent: Agent,
        peer: ServedPeer,
        mount_point: MountPoint,
        shared: Shared,
        naming: Naming,
    ) -> None:
        """`name` is what the agent is called in the store; empty: by its own name. `naming` is how
        else calls may name it."""
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
        auditing = None
        if shared.audit is not None and is_agent:
            asked = auditing = AuditingPeer(shared.audit, agent, known_as, asked, peer)
        self.server = ServerContext(
            asked, self.access.admit_or_anyone, settings.limits, log, shared.opened
        )
        self.server.on_refusal = auditing.refused if auditing is not None else None
        self.server.mount_point = mount_point
        self.server.trusts = shared.trusts
        self.server.recognizes = self.access.recognizes
        self.server.refusal_headers = self.access.authenticator.refusal_headers
        self.context = ServiceContext(
            agent=agent,
            engine=peer,
            server=self.server,
            access=self.access,
            settings=settings,
            name=name if mount_point.path else "",
        )
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
            **pages.routes(card_paths(self._dialects)),
        }
        for service in self.services:
            routes |= service.routes()
        self.routes = routes
        """Relative to the mount point, and not yet guarded by their policies."""
        self._contexts = {self.server}
        """Those of the conversations with the agent: ours, and those that are left of agents that
        this one has replaced."""
        self._runs = False
        """Whether the peer is to be stopped."""
        self.on_card_change: Callable[[], None] = lambda: None
        """Called when the card has changed, for those that list it."""
        self._learn_extensions()
        agent.on_card_change.append(self._card_changed)

    def _card_changed(self) -> None:
        self._learn_extensions()
        self._pages.renew(time.time())
        self.on_card_change()

    def _learn_extensions(self) -> None:
        self.server.extensions = frozenset(e.uri for e in self.agent.card(()).extensions)

    @property
    def router(self) -> Router:
        """Answers what lies below the mount point."""
        return Router(
            self.access.policed(self.routes), patterns=self.patterns, hosts=self._shared.hosts
        )

    # Life

    async def start_peer(self) -> None:
        """Starts to run tasks."""
        await self.peer.start()
        self._runs = True

    async def start(self, *, peer: bool = True) -> None:
        """Does everything in the order in which a server does it with its agents; without the
        `peer` if it runs already."""
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
        """Takes over from the agent that was here: its figures, and where the peer is the same its
        conversations too."""
        self.server.metrics = before.server.metrics
        if self.peer is before.peer:
            self._contexts |= before._contexts
            self._runs, before._runs = before._runs, False
            before._contexts = set()

    async def drain(self) -> None:
        """Takes nothing new but what comes through the listener."""
        await asyncio.gather(*(service.drain() for service in self.services))
        for context in self._contexts:
            context.draining = True
        await self._shared.opened.close_sockets(LINGER, self._contexts)

    async def stop(self, grace: float) -> None:
        """Runs get their grace while streams still see them end; then every stream is closed."""
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
        """Gives runs this many seconds, then hands them back."""
        runs, self._runs = self._runs, False
        if runs:
            await self.peer.stop(grace)

    def card_at(self, url: str, card: Card | None = None) -> Card:
        """The agent's card, or another one of it (the extended one), as it is published: with what
        is in force here and now, and signed. `url` is the address of the agent for whoever asks;
        empty: the one that we know."""
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
        # card is not signed, since a caller could otherwise obtain a signature for any host.
        signer = self._shared.signer
        if signer is None or not self.mount_point.base:
            return card
        return signer.signed(card, url.rstrip("/").removesuffix(self.mount_point.path))

    def check_card(self) -> None:
        """`ConfigError` if the card breaks the rules of its versions, or shows a secret.

        The extended card that a function of the author's writes is not known yet; the skills that
        stand only on extended cards are looked at too.
        """
        from dragoman.dialects.a2a.cards import documents, validate
        from dragoman.dialects.a2a.cards.canonical import document_in
        from dragoman.dialects.a2a.cards.secret_scan import leaks

        public = self.card_at(self.mount_point.url or "http://127.0.0.1")
        if not public.interfaces and self._interfaces:
            # All that is asked for has a port of its own, and does not listen yet.
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
