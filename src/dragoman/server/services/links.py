"""`/openclaw/v1/ws/link` at the root of a server, where agents dial in over XiaoYi links."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING

from dragoman.agent import Agent
from dragoman.core.errors import DragomanError
from dragoman.core.log import Logger
from dragoman.core.model import Json
from dragoman.dialects.xiaoyi import PATH
from dragoman.net.http.asgi import Handler, Receive, Scope, Send
from dragoman.net.http.router import SOCKET
from dragoman.net.server_context import ServerContext
from dragoman.net.service import Service
from dragoman.observability.metrics import Family
from dragoman.security.authentication import anyone
from dragoman.security.route_policy import Policy, policy
from dragoman.security.server_secret import secret_for
from dragoman.store.clock import wall_clock

from ..agent_mount import Shared
from ..agent_names import slug
from .factories import LINGER, NoAgent

if TYPE_CHECKING:
    from dragoman.gateway.arrivals.dial_ins import DialIns
    from dragoman.gateway.arrivals.linked_agents import LinkedAgents
    from dragoman.gateway.registry import Mounted, Registry
    from dragoman.store import Store
    from dragoman.xiaoyi.keys import KeyRing
    from dragoman.xiaoyi.link_figures import LinkReporter
    from dragoman.xiaoyi.server.links import LinkEndpoint, Links

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
    """Lets agents dial in, and serves them.

    What serves them is imported and made when the first one asks, since most servers never see one.
    """

    name = "xiaoyi"

    def __init__(self, app: App, shared: Shared, store: Store, registry: Registry | None) -> None:
        self._app, self._shared, self._store, self._registry = app, shared, store, registry
        self._secret = secret_for(shared.settings.server.store, os.environ)
        self._server = ServerContext(
            NoAgent(), anyone, shared.settings.limits, shared.log, shared.opened
        )
        self._reporter: LinkReporter | None = None
        self._looking: asyncio.Task[None] | None = None
        if registry is not None:
            from dragoman.gateway.registry import LINK_OWNER

            registry.arrivals[LINK_OWNER] = lambda: self.agents.dial_ins

    @cached_property
    def ring(self) -> KeyRing:
        """The keys of the agents that may dial in."""
        from dragoman.xiaoyi.keys import KeyRing

        return KeyRing(self._store.link_keys, self._secret)

    @cached_property
    def links(self) -> Links:
        """The links that are open."""
        from dragoman.xiaoyi.server.links import Links

        server, said = self._shared.settings.server, self._shared.settings.xiaoyi
        base = self._app.base or f"http://{server.host}:{server.port}"
        return Links(said.keep, base, answer_gap=said.answer_gap)

    @cached_property
    def agents(self) -> LinkedAgents:
        """The agents that dialled in."""
        from dragoman.gateway.arrivals.dial_ins import DialIns
        from dragoman.gateway.arrivals.linked_agents import LinkedAgents

        app, said = self._app, self._shared.settings.xiaoyi
        mounts = app if app.several else GuestMounts(app)
        dial_ins = DialIns(mounts, app.agent_at, self._registry, offline=said.offline)
        return LinkedAgents(self.links, dial_ins, slug, said, self._store.sessions)

    @cached_property
    def endpoint(self) -> LinkEndpoint:
        """Where agents dial in."""
        from dragoman.xiaoyi.server.handshake import LinkHandshake
        from dragoman.xiaoyi.server.links import LinkEndpoint

        said = self._shared.settings.xiaoyi
        endpoint = LinkEndpoint(self.links, self._server, said, self.ring)
        endpoint.handshake = LinkHandshake(
            *(self.ring, self._store.sessions, wall_clock),
            window=said.window,
            name_in=self._shared.hosts.listed_name,
        )
        endpoint.handshake.on_refusal = self._refused
        endpoint.check_claim = self.agents.check_claim
        return endpoint

    def routes(self) -> Mapping[str, Mapping[str, Handler]]:
        """Returns the route of the endpoint."""
        return {PATH: {SOCKET: self._dialled, "GET": self._dialled}}

    @policy(Policy.CALLER)
    async def _dialled(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self.endpoint
        if self._looking is None and not self._server.draining:
            self._begin()
        await endpoint(scope, receive, send)

    def _begin(self) -> None:
        """Starts to write what becomes of the links, and to check for revoked keys."""
        from dragoman.xiaoyi.link_figures import LinkReporter

        self._reporter = LinkReporter(self._open_store, self.links.figures.values)
        self.links.on_figures = self._reporter.changed
        self._reporter.start()
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _open_store(self) -> Store:
        return self._store

    def _refused(self, agent_id: str, why: str) -> None:
        self.links.figures_of(agent_id).failed(f"The agent was refused: {why}")

    def about(self, name: str) -> dict[str, Json]:
        """Returns what a list without a registry tells of an agent that dialled in; nothing for
        others."""
        return self.agents.dial_ins.about(name) if self._looking is not None else {}

    def is_online(self, name: str) -> bool:
        """Returns whether nothing is known that keeps an agent from answering."""
        return self._looking is None or self.agents.dial_ins.is_online(name)

    def metrics(self) -> Iterable[Family]:
        """Returns the figures of the links."""
        if self._looking is None or not self.links.figures:
            return ()
        from dragoman.xiaoyi.link_figures import families

        return families(self.links.figures.values())

    async def drain(self) -> None:
        """Accepts no more links. Frames of connected agents are still handled."""
        self._server.draining = True
        if self._looking is not None:
            self.agents.dial_ins.draining = True
        if self._reporter is not None:
            await self._reporter.stop()

    async def stop(self) -> None:
        """Closes all links."""
        if self._looking is None:
            return
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


def stand_ins(app: App, registry: Registry) -> Callable[[], DialIns]:
    """Returns what serves agents that only other processes can be linked to, since they are in
    channels that this one has not joined."""

    @cache
    def made() -> DialIns:
        from dragoman.gateway.arrivals.dial_ins import DialIns

        return DialIns(app, app.agent_at, registry, offline=0.0)

    return made
