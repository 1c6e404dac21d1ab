"""Puts it together: agent, store, engine and HTTP side, as an ASGI app."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from dragoman import settings as config
from dragoman.agent import Agent
from dragoman.backend import Backend
from dragoman.core.card import Card, Interface
from dragoman.core.errors import ConfigError
from dragoman.core.peer import Peer
from dragoman.iat import Host
from dragoman.net.grpc.optional import OptionalGrpc
from dragoman.net.http import addresses
from dragoman.net.http.card_endpoint import CardEndpoint
from dragoman.net.http.exchange import ServerContext
from dragoman.net.http.forwarded import ForwardedHeaders
from dragoman.net.http.router import Router
from dragoman.observability.health import HealthEndpoints
from dragoman.observability.log import Log, set_up
from dragoman.observability.watchdog import Watchdog
from dragoman.security.access_control import AccessControl
from dragoman.security.allowed_hosts import AllowedHosts
from dragoman.security.server_secret import folder_of, secret_for
from dragoman.security.verifiers import read_secret
from dragoman.settings import Settings
from dragoman.workspace import granted, keep_apart

from .agent_loader import load_agent
from .heap_trimmer import HeapTrimmer

if TYPE_CHECKING:
    from dragoman.iat.registration import Registration
    from dragoman.security.card_signing import Signer
    from dragoman.store.sessions import SessionBook

GRACE = 3.0
"""Seconds that runs get to finish when we stop."""
LINGER = 1.0
"""Seconds that answers get to leave after that."""


class Served(Peer, Protocol):
    """A peer with a life of its own: the engine."""

    async def start(self) -> None:
        """Ready for calls when it returns."""

    async def stop(self, grace: float) -> None:
        """Gives runs this many seconds, then hands them back."""

    def counts(self) -> Awaitable[Mapping[str, int]]:
        """Tasks by state, length of the queue."""


class App(Router):
    """The ASGI app of one agent. Start and stop it, or let the server's lifespan do it."""

    def __init__(
        self,
        agent: Agent,
        peer: Served,
        settings: Settings,
        log: Log,
        base: str = "",
        *,
        hosts: AllowedHosts | None = None,
    ) -> None:
        from dragoman.net.http.routes import PATTERNS, rest_routes, rpc_routes
        from dragoman.net.iat.endpoint_context import IatContext
        from dragoman.net.iat.http import iat_routes

        self.agent, self.peer, self.log = agent, peer, log
        self.ready = False
        self.access = AccessControl(agent, settings)
        self.base = base.rstrip("/")
        guarded = self.access.before(peer, self.card_at)
        self.server = ServerContext(guarded, self.access.admit_or_anyone, settings.limits, log)
        self.server.refusal_headers = self.access.authenticator.refusal_headers
        self.grpc = OptionalGrpc(self.server, settings)
        self.server.extensions = frozenset(e.uri for e in agent.card(()).extensions)
        self.signer = _signer(settings)
        addresses.warn_of_plain_http(settings.server.public_url, log)
        if self.signer is not None and not self.base:
            log.warning("card_not_signed", why="set public_url: only callers know our name here")
        self._interfaces = addresses.chosen(settings.server)
        served = {
            binding: [version for named, version in self._interfaces if named == binding]
            for binding in addresses.BINDINGS
        }
        pages = CardEndpoint(self.card_at, self.base, time.time())
        self.watchdog: Watchdog | None = None
        self._trimmer: HeapTrimmer | None = None
        self._fatal = settings.server.watchdog
        self._push = settings.push.enabled and agent.push
        server = settings.server
        believed = server.trusted_proxies
        proxies = ForwardedHeaders(believed, server.forwarded) if believed else None
        self.trusts = proxies.trusts if proxies is not None else None
        """Whether an address is one of our proxies'."""
        status = HealthEndpoints(
            self.server,
            peer,
            lambda: self.ready,
            lambda: self.watchdog.blocked if self.watchdog is not None else 0,
        )
        book, name = _sessions(peer, agent)
        self.iat = IatContext(self.server, self.access, settings, book, name)
        self.iat.workspace = _told_root(agent, settings)
        self.joining = _joining(self, settings)
        self._joins: asyncio.Task[None] | None = None
        super().__init__(
            self.access.policed(
                {
                    **rpc_routes(self.server, served["JSONRPC"]),
                    **rest_routes(self.server, served["HTTP+JSON"]),
                    **pages.routes(a2a_go="0.3" in served["JSONRPC"]),
                    **(self.signer.routes() if self.signer is not None else {}),
                    **status.routes(),
                    **iat_routes(self.iat),
                }
            ),
            self.start,
            self.stop,
            PATTERNS if served["HTTP+JSON"] else None,
            proxies.seen if proxies is not None else None,
            hosts or AllowedHosts(server),
        )
        check_card(self, settings)

    def card_at(self, typed: str, card: Card | None = None) -> Card:
        """The agent's card, or another one of it (the extended one), as it is published: with what
        is in force here and now, and signed. `typed` is the address at which it was asked for;
        it counts where we know none of our own."""
        base = self.base or typed
        card = card or self.agent.card()
        listed = addresses.interfaces(base, self.grpc.interfaces(base), self._interfaces)
        others = addresses.elsewhere(base, self.routes)
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
        self.grpc.open()
        await self.peer.start()
        await self.grpc.start()
        self.watchdog = Watchdog(self.log, self._fatal)
        self._trimmer = HeapTrimmer()
        self.ready = True
        if self.joining is not None:
            self._joins = asyncio.get_running_loop().create_task(self.joining.run())
        if isinstance(self.agent, Host):
            self.agent.connect_agents()

    async def hang_up(self) -> None:
        """Closes every WebSocket, and takes no more. Before the listener stops: it knows nothing of
        sockets, and drops them without a word, so agents would notice only by missed heartbeats."""
        self.ready = False
        if isinstance(self.agent, Host):
            self.agent.stopping = True
        await self.iat.hang_up(LINGER)

    async def stop(self) -> None:
        """Runs get their grace while streams still see them end; then every stream is closed."""
        await self.hang_up()
        if self._joins is not None:
            self._joins.cancel()
            await asyncio.wait({self._joins}, timeout=LINGER)
        await self.grpc.refuse(GRACE + LINGER)
        try:
            await self.peer.stop(GRACE)
        finally:
            self.server.end_streams()
            if isinstance(self.agent, Host):
                await self.agent.close()
            await self.grpc.end()
            await self.access.close()
            self.server.deadlines.stop()
            if self.watchdog is not None:
                self.watchdog.stop()
            if self._trimmer is not None:
                self._trimmer.stop()
            self.log.flush()


def _sessions(peer: Served, agent: Agent) -> tuple[SessionBook, str]:
    """Where sessions are kept, and what the agent is called there: with the tasks. An agent that
    keeps its tasks itself has no store of ours."""
    from dragoman.engine import Engine
    from dragoman.store.clock import wall_clock
    from dragoman.store.memory.sessions import MemorySessions

    if isinstance(peer, Engine):
        return peer.store.sessions, peer.name
    return MemorySessions(wall_clock), agent.name


def _told_root(agent: Agent, settings: Settings) -> str:
    """The folder that IAT peers are told of when they introduce themselves: where our agent works,
    or where a host has its sub-agents work."""
    if isinstance(agent, Host):
        return agent.workspace_root
    space = granted(settings.workspace, agent.workspace)
    return str(Path(space.root).absolute()) if space is not None else ""


def _joining(app: App, settings: Settings) -> Registration | None:
    """What IAT needs beyond answering: a host gets its lines, an agent its host."""
    iat, agent = settings.iat, app.agent
    if not isinstance(agent, Host) and not iat.host:
        return None
    from dragoman.iat.http_line import IatHttpLine
    from dragoman.iat.registration import Registration
    from dragoman.iat.workspace_guard import WorkspaceLimitedPeer

    secret = read_secret(iat.secret, "iat.secret") if iat.secret else ""
    if isinstance(agent, Host):
        agent.peer, app.iat.joined = app.server.peer, agent.joined
        private = settings.server.allow_private
        agent.dial = lambda url, to="", *, typed=False, signs=False: IatHttpLine(
            *(url, app.iat.me, to),
            secret=secret if signs else "",
            trusted=typed,
            allow_private=private,
        )
    if not iat.host:
        return None
    joining = Registration(app.iat, iat.host, secret, app.base)
    if app.iat.workspace:
        app.server.peer = WorkspaceLimitedPeer(
            app.server.peer, app.iat.workspace, lambda: joining.root
        )
    return joining


def _signer(settings: Settings) -> Signer | None:
    """Who signs the card. What it needs is loaded only for those who sign."""
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
    if not public.interfaces and addresses.chosen(settings.server):
        # gRPC alone is asked for, and does not listen yet.
        later = Interface(url="127.0.0.1:1", binding="GRPC", version="1.0")
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


def engine_for(agent: Agent, settings: Settings) -> Served:
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
