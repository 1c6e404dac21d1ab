"""IAT on a server: who may speak, what those who introduce themselves are told, and the host to
join or to be."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from dragoman.agent import Agent
from dragoman.core.dialect import Dialect, Wire
from dragoman.core.peer import Peer
from dragoman.dialects.iat import ROLE, IatCallee
from dragoman.net.http.asgi import Handler
from dragoman.net.http.exchange import ServerContext
from dragoman.net.http.routes import Factory
from dragoman.net.iat.endpoint_context import IatContext
from dragoman.net.iat.http import IatExchange
from dragoman.net.iat.websocket import IatSocket
from dragoman.net.service import Service
from dragoman.security.access_control import AccessControl
from dragoman.security.verifiers import read_secret
from dragoman.settings import Settings
from dragoman.store.sessions import SessionBook
from dragoman.workspace import granted

from .host import Host
from .http_line import IatHttpLine
from .registration import Registration
from .workspace_guard import WorkspaceLimitedPeer

LINGER = 1.0
"""Seconds that sockets get for their last words, and the host to be told that we leave."""


class IatService(Service):
    """What IAT needs beyond answering: sessions, pages, a host's lines, an agent's host."""

    name = "iat"

    def __init__(
        self,
        server: ServerContext,
        access: AccessControl,
        settings: Settings,
        book: SessionBook,
        base: str,
    ) -> None:
        self.context = context = IatContext(server, access, settings, book)
        self.role = ROLE if settings.iat.enabled else ""
        self._agent = agent = context.agent
        context.workspace = _told_root(agent, settings)
        iat = settings.iat
        secret = read_secret(iat.secret, "iat.secret") if iat.secret else ""
        if isinstance(agent, Host):
            agent.peer, context.joined = server.peer, agent.joined
            private = settings.server.allow_private
            agent.dial = lambda url, to="", *, typed=False, signs=False: IatHttpLine(
                *(url, context.me, to),
                secret=secret if signs else "",
                trusted=typed,
                allow_private=private,
            )
        self.registration: Registration | None = None
        """Where we join a host."""
        if iat.host:
            self.registration = Registration(context, iat.host, secret, base)
            server.peer = self._limited(server.peer, self.registration)
        self._registering: asyncio.Task[None] | None = None

    def _limited(self, peer: Peer, registration: Registration) -> Peer:
        if not self.context.workspace:
            return peer
        return WorkspaceLimitedPeer(peer, self.context.workspace, lambda: registration.root)

    def endpoint(
        self, dialect: Dialect, callee: Factory, target: str, served: frozenset[str] | None
    ) -> Handler:
        """What answers at a route of IAT."""
        if dialect.wire is Wire.WEBSOCKET:
            return IatSocket(self.context)
        assert isinstance(callee, type)  # noqa: S101  the records name classes
        assert issubclass(callee, IatCallee)  # noqa: S101
        return IatExchange(self.context, callee, target)

    def routes(self) -> Mapping[str, Mapping[str, Handler]]:
        """Who we are, and that we are here."""
        if not self.role:
            return {}
        context = self.context
        return {"/manifest": {"GET": context.manifest}, "/health": {"GET": context.health}}

    async def start(self) -> None:
        """Registers with the host, or calls on the sub-agents whose addresses are known."""
        if self.registration is not None:
            self._registering = asyncio.get_running_loop().create_task(self.registration.run())
        if isinstance(self._agent, Host):
            self._agent.connect_agents()

    async def drain(self) -> None:
        """Closes every WebSocket, and takes no more. The listener knows nothing of sockets and
        would drop them without a word, so agents would notice only by missed heartbeats."""
        if isinstance(self._agent, Host):
            self._agent.stopping = True
        await self.context.hang_up(LINGER)
        if self._registering is not None:
            self._registering.cancel()
            await asyncio.wait({self._registering}, timeout=LINGER)

    async def stop(self) -> None:
        """Lets go of all sub-agents. Their work was still relayed while the engine stopped."""
        if isinstance(self._agent, Host):
            await self._agent.close()


def _told_root(agent: Agent, settings: Settings) -> str:
    """The folder that IAT peers are told of when they introduce themselves: where our agent works,
    or where a host has its sub-agents work."""
    if isinstance(agent, Host):
        return agent.workspace_root
    space = granted(settings.workspace, agent.workspace)
    return str(Path(space.root).absolute()) if space is not None else ""
