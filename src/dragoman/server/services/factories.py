"""The services of a server and of its agents: one factory for each, in the order in which they
start."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Protocol, runtime_checkable

from msgspec import Struct

from dragoman.agent import Agent
from dragoman.core.errors import BadParams, ConfigError
from dragoman.core.operations import Operation, R, Streamed
from dragoman.core.peer import AGENT, Batch, Context, Peer
from dragoman.files import FileDoor
from dragoman.net.server_context import ServerContext
from dragoman.net.service import Service
from dragoman.security.access_control import AccessControl
from dragoman.security.rate_limits import Meter
from dragoman.settings import Settings

from ..agent_names import slug

GRACE = 3.0
"""The seconds that runs have to finish when the server stops."""
LINGER = 1.0
"""The seconds that responses have to be sent after that."""


class ServedPeer(Peer, Protocol):
    """A peer that is started and stopped, such as an engine."""

    async def start(self) -> None:
        """Starts the peer, and returns when it is ready for calls."""

    async def stop(self, grace: float) -> None:
        """Gives runs this many seconds, then returns them to the store."""

    def counts(self) -> Awaitable[Mapping[str, int]]:
        """Returns the number of tasks by state, and the length of the queue."""


class NoAgent:
    """Refuses the calls on a server with several agents that do not name one of them."""

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Refuses the call."""
        raise _unsaid()

    async def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Refuses the call."""
        raise _unsaid()
        yield  # makes this function a generator


def _unsaid() -> BadParams:
    return BadParams(
        "This server has several agents: name one with the tenant on its card, or with the "
        f"metadata {AGENT}",
        field="tenant",
    )


class ServiceContext(Struct, frozen=True, kw_only=True):
    """The context of a service that serves one agent."""

    agent: Agent
    engine: ServedPeer
    """The engine that runs the tasks. Services call `server.peer` instead, which also authorizes
    the caller."""
    server: ServerContext
    access: AccessControl
    settings: Settings
    files: FileDoor
    name: str = ""
    """The name of the agent on a server that has several; empty for a single agent."""


def _iat(context: ServiceContext) -> Service | None:
    from dragoman.engine import Engine
    from dragoman.iat.service import IatService
    from dragoman.store.clock import wall_clock
    from dragoman.store.memory.sessions import MemorySessions

    # Sessions are stored with the tasks. An agent that keeps its tasks itself has no store of ours.
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
    """An agent with a service that runs beside the requests."""

    def service(self) -> Service:
        """Returns the service that runs as long as the agent is served."""


@runtime_checkable
class HasFiles(Protocol):
    """An agent that offers files for download."""

    def use_files(self, door: FileDoor) -> None:
        """Called with the file door of the server, before the agent is served. Raises
        `ConfigError` if it is not enough."""


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
    from ..xiaoyi.agent_link import link_service

    return link_service(context)


def _own_grpc(context: ServiceContext) -> Service | None:
    section = context.settings.agents.get(context.name)
    if section is None or section.grpc_port is None or not context.name:
        return None
    from dragoman.net.grpc.service import GrpcService, OwnPort, asked_for

    if not asked_for(context.settings):
        return None
    own = OwnPort(agent=context.name, port=section.grpc_port, url=section.grpc_url)
    return GrpcService(context.server, context.settings, GRACE + LINGER, own=own)


AGENT_SERVICES: list[Callable[[ServiceContext], Service | None]] = [
    *(_iat, _mcp, _own, _xiaoyi, _own_grpc),
]
"""The factories of the services of one agent. Each returns None if the settings do not enable its
service."""


def services_of(context: ServiceContext) -> list[Service]:
    """Returns the services of one agent."""
    return [service for make in AGENT_SERVICES if (service := make(context)) is not None]


class SharedContext(Struct, frozen=True, kw_only=True):
    """The context of a service that serves a whole server."""

    server: ServerContext
    """The context of the only agent or, on a server for several, of the calls that name none."""
    settings: Settings
    meter: Meter
    files: FileDoor
    several: bool
    agents: Callable[[], Mapping[str, ServiceContext]]
    """Returns the current agents."""
    base: str = ""
    """The address of the server; empty if only callers know it."""


def _grpc(shared: SharedContext) -> Service | None:
    from dragoman.net.grpc.service import GrpcService, asked_for

    if not asked_for(shared.settings):
        return None
    ported = [name for name, each in shared.settings.agents.items() if each.grpc_port is not None]
    if ported and not shared.several:
        raise ConfigError(
            f"[agents.{ported[0]}] grpc_port is for one of several agents: set [server] grpc_port."
        )
    return GrpcService(shared.server, shared.settings, GRACE + LINGER, several=shared.several)


def _mcp_of_all(shared: SharedContext) -> Service | None:
    from dragoman import __version__

    from .mcp_offers import mcp_service

    if not shared.several:
        return None  # the service of the only agent has the same address
    return mcp_service(
        *("Dragoman", __version__, shared.agents),
        *(shared.server, shared.settings, shared.meter),
        several=True,
    )


def _registrant(shared: SharedContext) -> Service | None:
    gateway = shared.settings.server.register
    if not gateway:
        return None
    from ..registry.registrant import Registrant

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


def _files(shared: SharedContext) -> Service | None:
    from dragoman.files.service import FilesService

    return FilesService(shared.files, shared.server)


def _replica(shared: SharedContext) -> Service | None:
    from .replica import ReplicaService

    return ReplicaService(shared.agents, shared.server, lambda: shared.base)


SERVER_SERVICES: list[Callable[[SharedContext], Service | None]] = [
    _grpc,
    _mcp_of_all,
    _registrant,
    _gateway,
    _files,
    _replica,
]
"""The factories of the services of a whole server. Each returns None if the settings do not enable
its service."""


def server_services_of(shared: SharedContext) -> list[Service]:
    """Returns the services that all agents share."""
    return [service for make in SERVER_SERVICES if (service := make(shared)) is not None]
