"""`/iat` at the root of a gateway: the host side, where sub-agents register."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.agent import Agent
from dragoman.core.session import Id, Introduction
from dragoman.dialects import DIALECTS
from dragoman.dialects.iat import ROLE
from dragoman.gateway.arrivals.dial_ins import DialIns
from dragoman.gateway.arrivals.sub_agents import OWNER, GatewayHost
from dragoman.gateway.registry import Registry
from dragoman.iat.service import IatService
from dragoman.net.http.asgi import Handler
from dragoman.net.http.mount_point import MountPoint
from dragoman.net.http.routes import routes_of
from dragoman.net.server_context import ServerContext
from dragoman.security.access_control import AccessControl
from dragoman.store.sessions import SessionStore

from ..agent_mount import Shared
from ..agent_names import slug
from .factories import NoAgent

if TYPE_CHECKING:
    from ..app import App

KEPT_AS = "-"
"""The owner of the sessions in the store: no agent can have this name."""


class HostService(IatService):
    """The IAT endpoints of a gateway itself. Callers give work to its agents, each of which has its
    own endpoints."""

    def __init__(
        self, shared: Shared, server: ServerContext, access: AccessControl, sessions: SessionStore
    ) -> None:
        # The gateway itself registers nowhere: its agents do.
        settings = replace(shared.settings, iat=replace(shared.settings.iat, host=""))
        super().__init__(server, access, settings, sessions, kept_as=KEPT_AS)
        self._access = access

    def ourselves(self, id: Id = None) -> Introduction:
        """Introduces the gateway, which has no tools."""
        return replace(super().ourselves(id), tools=())

    def routes(self) -> Mapping[str, Mapping[str, Handler]]:
        """Returns the IAT endpoints beside those of the dialect itself."""
        known = tuple(DIALECTS.values())
        spoken = [each for each in known if each.role == ROLE and each.callee is not None]
        endpoints, _ = routes_of(self.server, spoken, known, {ROLE: self})
        return {**endpoints, **super().routes()}

    async def stop(self) -> None:
        """Disconnects all sub-agents."""
        await super().stop()
        host = self.agent
        assert isinstance(host, GatewayHost)  # noqa: S101  as `host_service` makes it
        await host.dial_ins.close()
        await self._access.close()


def host_service(
    app: App, shared: Shared, registry: Registry, sessions: SessionStore
) -> HostService | None:
    """Returns the host side of a gateway, or None if there is no secret to authenticate sub-agents
    with."""
    settings = shared.settings
    if not settings.iat.enabled or settings.iat.secret is None:
        return None

    def agent_at(name: str) -> Agent | None:
        mount = app.mounts.get(name)
        return mount.agent if mount is not None else None

    dial_ins = DialIns(app, agent_at, registry, offline=settings.iat.offline)
    registry.arrivals[OWNER] = lambda: dial_ins
    host = GatewayHost(dial_ins, slug)
    access = AccessControl(host, settings, shared.meter)
    server = ServerContext(
        NoAgent(), access.admit_or_anyone, settings.limits, shared.log, shared.opened
    )
    server.mount_point = MountPoint(app.base, "")
    server.trusts = shared.trusts
    server.has_agent = app.mounts.__contains__
    server.recognizes = access.recognizes
    server.refusal_headers = access.authenticator.refusal_headers
    return HostService(shared, server, access, sessions)
