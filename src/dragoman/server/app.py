"""Puts it together: agent, store, engine and HTTP side, as an ASGI app."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from dragoman import settings as config
from dragoman.agent import Agent
from dragoman.backend import Backend
from dragoman.core.card import Card, Interface
from dragoman.core.errors import ConfigError
from dragoman.dialects import DIALECTS
from dragoman.net.http import addresses
from dragoman.net.http.asgi import Handler
from dragoman.net.http.card_endpoint import CardEndpoint
from dragoman.net.http.forwarded import ForwardedHeaders
from dragoman.net.http.router import Router
from dragoman.net.http.routes import card_paths, routes_of
from dragoman.net.server_context import ServerContext
from dragoman.net.service import Service
from dragoman.observability.health import HealthEndpoints
from dragoman.observability.log import Log, set_up
from dragoman.observability.watchdog import Watchdog
from dragoman.security.access_control import AccessControl
from dragoman.security.allowed_hosts import AllowedHosts
from dragoman.security.server_secret import folder_of, secret_for
from dragoman.settings import Settings
from dragoman.workspace import granted, keep_apart

from .agent_loader import load_agent
from .heap_trimmer import HeapTrimmer
from .services import GRACE, LINGER, ServedPeer, ServiceContext, services_of

if TYPE_CHECKING:
    from dragoman.security.card_signing import Signer

S = TypeVar("S", bound=Service)


class App(Router):
    """The ASGI app of one agent. Start and stop it, or let the server's lifespan do it."""

    def __init__(
        self,
        agent: Agent,
        peer: ServedPeer,
        settings: Settings,
        log: Log,
        base: str = "",
        *,
        hosts: AllowedHosts | None = None,
    ) -> None:
        self.agent, self.peer, self.log = agent, peer, log
        self.ready = False
        self.access = AccessControl(agent, settings)
        self.base = base.rstrip("/")
        guarded = self.access.before(peer, self.card_at)
        self.server = ServerContext(guarded, self.access.admit_or_anyone, settings.limits, log)
        self.server.refusal_headers = self.access.authenticator.refusal_headers
        self.server.extensions = frozenset(e.uri for e in agent.card(()).extensions)
        self.signer = _signer(settings)
        addresses.warn_of_plain_http(settings.server.public_url, log)
        if self.signer is not None and not self.base:
            log.warning("card_not_signed", why="set public_url: only callers know our name here")
        self.services = services_of(
            ServiceContext(
                agent=agent,
                engine=peer,
                server=self.server,
                access=self.access,
                settings=settings,
                base=self.base,
            )
        )
        self._interfaces = addresses.chosen(settings.server)
        roles = {service.role: service for service in self.services if service.role}
        self._dialects = addresses.served(self._interfaces, roles)
        known = tuple(DIALECTS.values())
        endpoints, patterns = routes_of(self.server, self._dialects, known, roles)
        pages = CardEndpoint(self.card_at, self.base, time.time())
        self.watchdog: Watchdog | None = None
        self._trimmer: HeapTrimmer | None = None
        self._fatal = settings.server.watchdog
        self._push = settings.push.enabled and agent.push
        server = settings.server
        believed = server.trusted_proxies
        proxies = ForwardedHeaders(believed, server.forwarded) if believed else None
        self.server.trusts = proxies.trusts if proxies is not None else None
        status = HealthEndpoints(
            self.server,
            peer,
            lambda: self.ready,
            lambda: self.watchdog.blocked if self.watchdog is not None else 0,
        )
        routes: dict[str, Mapping[str, Handler]] = {
            **endpoints,
            **pages.routes(card_paths(self._dialects)),
            **(self.signer.routes() if self.signer is not None else {}),
            **status.routes(),
        }
        for service in self.services:
            routes |= service.routes()
        super().__init__(
            self.access.policed(routes),
            self.start,
            self.stop,
            patterns,
            proxies.seen if proxies is not None else None,
            hosts or AllowedHosts(server),
        )
        check_card(self, settings)

    def service(self, kind: type[S]) -> S:
        """The service of this kind; `LookupError` if there is none."""
        for service in self.services:
            if isinstance(service, kind):
                return service
        raise LookupError(f"This app has no {kind.__name__}.")

    @property
    def ports(self) -> dict[str, int]:
        """The ports that services listen on, by their names."""
        return {each.name: each.port for each in self.services if each.port is not None}

    def card_at(self, typed: str, card: Card | None = None) -> Card:
        """The agent's card, or another one of it (the extended one), as it is published: with what
        is in force here and now, and signed. `typed` is the address at which it was asked for;
        it counts where we know none of our own."""
        base = self.base or typed
        card = card or self.agent.card()
        elsewhere = [each for service in self.services for each in service.interfaces(base)]
        listed = addresses.interfaces(base, elsewhere, self._interfaces)
        others = addresses.extension(base, self._dialects)
        card = replace(
            card,
            interfaces=card.interfaces or listed,
            streaming=self.agent.streaming,
            push=self._push,
            extensions=(*card.extensions, others),
        )
        card = self.access.on_card(card)
        # Whoever asks says under which name. For a name that only they know nothing is signed.
        return self.signer.signed(card, base) if self.signer and self.base else card

    async def start(self) -> None:
        """Ready for requests when it returns."""
        for service in self.services:
            service.open()
        await self.peer.start()
        self.watchdog = Watchdog(self.log, self._fatal)
        self._trimmer = HeapTrimmer()
        self.ready = True
        for service in self.services:
            await service.start()

    async def drain(self) -> None:
        """Takes nothing new but what comes through the listener, which the server stops next."""
        self.ready = False
        for service in self.services:
            await service.drain()
        await self.server.close_sockets(LINGER)

    async def stop(self) -> None:
        """Runs get their grace while streams still see them end; then every stream is closed."""
        await self.drain()
        try:
            await self.peer.stop(GRACE)
        finally:
            self.server.end_streams()
            for service in reversed(self.services):
                await service.stop()
            await self.access.close()
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


def check_card(app: App, settings: Settings) -> None:
    """`ConfigError` if the card breaks the rules of its versions, or shows a secret.

    The extended card that a function of the author's writes is not known yet; the skills that
    stand only on extended cards are looked at too.
    """
    from dragoman.dialects.a2a.cards import documents, validate
    from dragoman.dialects.a2a.cards.canonical import document_in
    from dragoman.dialects.a2a.cards.secret_scan import leaks

    public = app.card_at(app.base or "http://127.0.0.1")
    if not public.interfaces and (chosen := addresses.chosen(settings.server)):
        # All that is asked for has a port of its own, and does not listen yet.
        binding, version = chosen[0]
        later = Interface(url="127.0.0.1:1", binding=binding, version=version)
        public = replace(public, interfaces=(later,))
    whole = app.agent.card(public.interfaces, app.agent.skills)
    document = document_in(documents.merged(replace(public, skills=whole.skills, signatures=())))
    secrets = {} if not settings.server.card_secrets else dict(leaks(document))
    for problem in validate.problems(document):
        if not problem.warning and problem.field not in secrets:
            raise ConfigError(f"The agent's card is not valid: {problem}.")


def create_app(agent: Agent | None = None, settings: Settings | None = None) -> App:
    """The ASGI app for any ASGI server; the agent given, else `DRAGOMAN_AGENT=file.py:name`."""
    if settings is None:
        path = os.environ.get("DRAGOMAN_CONFIG")
        settings = config.load(None, os.environ, Path(path) if path else None)
    if agent is None:
        where = os.environ.get("DRAGOMAN_AGENT", "")
        if not where:
            raise ConfigError("Which agent? Set DRAGOMAN_AGENT=file.py:name")
        agent = load_agent(where)
    log = set_up(settings.server.log_level)
    # What address the server is bound to is not known here.
    hosts = AllowedHosts(settings.server, anywhere=True)
    base = settings.server.public_url
    return App(agent, engine_for(agent, settings), settings, log, base, hosts=hosts)


def engine_for(agent: Agent, settings: Settings) -> ServedPeer:
    """The engine over the store that the settings name, and who calls webhooks for it; of a
    backend's tasks that store holds only what its author does not keep."""
    if isinstance(agent, Backend):
        keep = settings.limits.keep_tasks
        return agent.peer(push=settings.push.enabled, store=settings.server.store, keep=keep)
    from dragoman.engine import Engine
    from dragoman.net.webhooks import WebhookSender
    from dragoman.security.outbound.guarded_http import GuardedHttp, Rules
    from dragoman.security.secret_box import SecretBox
    from dragoman.store import open_store
    from dragoman.store.approvals import audit_of

    from .remote_agents import RemoteAgents

    server, push = settings.server, settings.push
    pushes = push.enabled and agent.push
    space = granted(settings.workspace, agent.workspace)
    keep_apart(space, folder_of(server.store))
    secret = secret_for(server.store, os.environ)
    rules = Rules(allow_private=server.allow_private, hosts=push.allow, ports=push.ports)
    egress = GuardedHttp(rules, connections=push.parallel)
    return Engine(
        agent,
        open_store(server.store),
        settings.limits,
        secret=secret,
        sender=WebhookSender(egress, SecretBox(secret), push.timeout) if pushes else None,
        push=push,
        retention=settings.retention.values(),
        outside=RemoteAgents(agent, allow_private=server.allow_private, environ=os.environ),
        audit=audit_of(server.store),
        workspace=space,
    )
