"""The services of a server and of its agents: one factory for each, in the order of their start."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Protocol, runtime_checkable

from msgspec import Struct

from dragoman.agent import Agent
from dragoman.core.errors import BadParams, ConfigError
from dragoman.core.operations import Operation, R, Streamed
from dragoman.core.peer import AGENT, Batch, Context, Peer
from dragoman.net.server_context import ServerContext
from dragoman.net.service import Service
from dragoman.security.access_control import AccessControl
from dragoman.security.rate_limits import Meter
from dragoman.settings import Settings

from .agent_names import slug

GRACE = 3.0
"""Seconds that runs get to finish when we stop."""
LINGER = 1.0
"""Seconds that answers get to leave after that."""


class ServedPeer(Peer, Protocol):
    """A peer with a life of its own: the engine."""

    async def start(self) -> None:
        """Ready for calls when it returns."""

    async def stop(self, grace: float) -> None:
        """Gives runs this many seconds, then hands them back."""

    def counts(self) -> Awaitable[Mapping[str, int]]:
        """Tasks by state, length of the queue."""


class NoAgent:
    """Answers calls on a server with several agents that do not say which one they are for."""

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Refuses."""
        raise _unsaid()

    async def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Refuses."""
        raise _unsaid()
        yield  # so that this is a generator


def _unsaid() -> BadParams:
    return BadParams(
        "This server has several agents: name one with the tenant on its card, or with the "
        f"metadata {AGENT}",
        field="tenant",
    )


class ServiceContext(Struct, frozen=True, kw_only=True):
    """What a service may need to know of the agent that it serves."""

    agent: Agent
    engine: ServedPeer
    """What runs the tasks. Services ask `server.peer` instead, which guards it."""
    server: ServerContext
    access: AccessControl
    settings: Settings
    name: str = ""
    """What the agent is called on a server that has several; the only one has no such name."""


def _iat(context: ServiceContext) -> Service | None:
    from dragoman.engine import Engine
    from dragoman.iat.service import IatService
    from dragoman.store.clock import wall_clock
    from dragoman.store.memory.sessions import MemorySessions

    # Sessions are kept with the tasks. An agent that keeps its tasks itself has no store of ours.
    engine = context.engine
    if isinstance(engine, Engine):
        sessions, kept_as = engine.store.sessions, engine.name
    else:
        sessions, kept_as = MemorySessions(wall_clock), context.name or context.agent.name
    return IatService(
        context.server,
        context.access,
        context.settings,
        sessions,
        name=context.name,
        kept_as=kept_as,
    )


@runtime_checkable
class HasService(Protocol):
    """An agent with a life of its own beside the requests for it."""

    def service(self) -> Service:
        """Returns the service that lives as long as the agent is served."""


def _own(context: ServiceContext) -> Service | None:
    agent: object = context.agent
    return agent.service() if isinstance(agent, HasService) else None


def _mcp(context: ServiceContext) -> Service | None:
    from .mcp_offers import mcp_service

    agent = context.agent
    agents = {context.name: context}
    return mcp_service(
        *(agent.name, agent.version, lambda: agents),
        *(context.server, context.settings, context.access.meter),
        several=False,
    )


def _xiaoyi(context: ServiceContext) -> Service | None:
    from .xiaoyi_link import link_service

    return link_service(context)


AGENT_SERVICES: list[Callable[[ServiceContext], Service | None]] = [_iat, _mcp, _own, _xiaoyi]
"""Each makes the service of one agent, or None where the settings do not ask for it."""


def services_of(context: ServiceContext) -> list[Service]:
    """The services that one agent has."""
    return [service for make in AGENT_SERVICES if (service := make(context)) is not None]


class SharedContext(Struct, frozen=True, kw_only=True):
    """What a service of a whole server may need to know."""

    server: ServerContext
    """The context of the only agent, or on a server for several that of calls which name none."""
    settings: Settings
    meter: Meter
    several: bool
    agents: Callable[[], Mapping[str, ServiceContext]]
    """The agents as they are now."""
    base: str = ""
    """The address of the server; empty if only callers know it."""


def _grpc(shared: SharedContext) -> Service | None:
    from dragoman.net.grpc.service import GrpcService, asked_for

    if not asked_for(shared.settings):
        return None
    return GrpcService(shared.server, shared.settings, GRACE + LINGER, several=shared.several)


def _mcp_of_all(shared: SharedContext) -> Service | None:
    from dragoman import __version__

    from .mcp_offers import mcp_service

    if not shared.several:
        return None  # that of the only agent is at the same address
    return mcp_service(
        *("Dragoman", __version__, shared.agents),
        *(shared.server, shared.settings, shared.meter),
        several=True,
    )


def _registrant(shared: SharedContext) -> Service | None:
    gateway = shared.settings.server.register
    if not gateway:
        return None
    from .registry.registrant import Registrant

    def addresses() -> dict[str, str]:
        return {
            name or slug(each.agent.name): each.server.mount_point.url
            for name, each in shared.agents().items()
        }

    if not shared.base:
        raise ConfigError(
            f"To register with {gateway}, say where the agents are reached: set public_url."
        )
    return Registrant(gateway, addresses, os.environ)


def _gateway(shared: SharedContext) -> Service | None:
    agents = (context.agent for context in shared.agents().values())
    if not shared.several and not any(isinstance(agent, HasService) for agent in agents):
        return None
    from dragoman.gateway.status import GatewayStatus

    return GatewayStatus(lambda: (context.agent for context in shared.agents().values()))


SERVER_SERVICES: list[Callable[[SharedContext], Service | None]] = [
    _grpc,
    _mcp_of_all,
    _registrant,
    _gateway,
]
"""Each makes the service of a whole server, or None where the settings do not ask for it."""


def server_services_of(shared: SharedContext) -> list[Service]:
    """The services that all agents share."""
    return [service for make in SERVER_SERVICES if (service := make(shared)) is not None]
