"""`/openclaw/v1/ws/link` at the root of a server, where agents dial in over XiaoYi links."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from dragoman.agent import Agent
from dragoman.core.errors import DragomanError
from dragoman.core.log import Logger
from dragoman.dialects.xiaoyi.wire import PATH
from dragoman.gateway.arrivals.dial_ins import DialIns
from dragoman.gateway.arrivals.linked_agents import LinkedAgents
from dragoman.gateway.registry import Mounted, Registry
from dragoman.net.http.asgi import Handler
from dragoman.net.http.router import SOCKET
from dragoman.net.server_context import ServerContext
from dragoman.net.service import Service
from dragoman.observability.metrics import Family
from dragoman.security.authentication import anyone
from dragoman.security.server_secret import secret_for
from dragoman.store import Store
from dragoman.store.clock import wall_clock
from dragoman.xiaoyi.keys import KeyRing
from dragoman.xiaoyi.link_figures import LinkReporter, families
from dragoman.xiaoyi.server.handshake import LinkHandshake
from dragoman.xiaoyi.server.links import LinkEndpoint, Links

from ..agent_mount import Shared
from ..agent_names import slug
from .factories import LINGER, NoAgent

if TYPE_CHECKING:
    from ..app import App

log = Logger("xiaoyi")
LOOK = 1.0
"""Seconds between two checks for revoked keys."""


class GuestMounts:
    """Serves agents beside the only agent of a server."""

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def mounts(self) -> Mapping[str, Mounted]:
        """The agents that are served, by their names."""
        return self._app.mounts

    async def add_agent(self, name: str, agent: Agent) -> None:
        """Serves one more agent."""
        await self._app.add_agent(name, agent, guest=True)

    async def replace_agent(self, name: str, agent: Agent) -> None:
        """Serves another agent of a name."""
        await self.remove_agent(name)
        await self.add_agent(name, agent)

    async def remove_agent(self, name: str) -> None:
        """Serves an agent no more."""
        await self._app.remove_agent(name, guest=True)

    def reindex(self, name: str) -> None:
        """Updates the list of the agents."""
        self._app.reindex(name)


class LinkService(Service):
    """Lets agents dial in, and serves them."""

    name = "xiaoyi"

    def __init__(self, app: App, shared: Shared, store: Store, registry: Registry | None) -> None:
        said = shared.settings.xiaoyi
        self._store = store
        server = shared.settings.server
        self.links = Links(said.keep, app.base or f"http://{server.host}:{server.port}")
        self._reporter = LinkReporter(self._open_store, self.links.figures.values)
        self.links.on_figures = self._reporter.changed
        self._server = ServerContext(
            NoAgent(), anyone, shared.settings.limits, shared.log, shared.opened
        )
        self.ring = ring = KeyRing(
            store.link_keys, secret_for(shared.settings.server.store, os.environ)
        )
        self.endpoint = LinkEndpoint(self.links, self._server, said, ring)
        self.endpoint.handshake = LinkHandshake(
            *(ring, store.sessions, wall_clock),
            window=said.window,
            name_in=shared.hosts.listed_name,
        )
        self.endpoint.handshake.on_refusal = self._refused

        mounts = app if app.several else GuestMounts(app)
        dial_ins = DialIns(mounts, app.agent_at, registry, offline=said.offline)
        self.agents = LinkedAgents(self.links, dial_ins, slug, task_limit=said.task_limit)
        self.endpoint.check_claim = self.agents.check_claim
        self._looking: asyncio.Task[None] | None = None

    def routes(self) -> Mapping[str, Mapping[str, Handler]]:
        """Returns the route of the endpoint."""
        return {PATH: {SOCKET: self.endpoint, "GET": self.endpoint}}

    async def _open_store(self) -> Store:
        return self._store

    def _refused(self, agent_id: str, why: str) -> None:
        self.links.figures_of(agent_id).failed(f"The agent was refused: {why}")

    def metrics(self) -> Iterable[Family]:
        """Returns the figures of the links."""
        return families(self.links.figures.values()) if self.links.figures else ()

    async def start(self) -> None:
        """Starts to check for revoked keys."""
        self._reporter.start()
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def drain(self) -> None:
        """Accepts no more links. Frames of connected agents are still handled."""
        self._server.draining = True
        await self._reporter.stop()

    async def stop(self) -> None:
        """Closes all links."""
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking
        await self._server.opened.close_sockets(LINGER, {self._server})
        await self.links.close()
        await self.agents.dial_ins.close()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            if not self.links.open:
                continue
            try:
                keys = await self._store.link_keys.all()
            except DragomanError as exc:
                log.warning("The keys of links cannot be read", why=exc)
                continue
            valid = {each.access_key for each in keys if not each.revoked_at}
            for link in tuple(self.links.open.values()):
                if link.access_key not in valid:
                    log.warning("The key of a link was revoked", access_key=link.access_key)
                    link.hang_up("The access key was revoked")


def link_service(
    app: App, shared: Shared, store: Store, registry: Registry | None
) -> LinkService | None:
    """Returns the service, unless the settings disable it. Without keys in the store, nobody can
    dial in, and there is nothing at its path."""
    return LinkService(app, shared, store, registry) if shared.settings.xiaoyi.enabled else None
