"""The services of an app: one factory for each, in the order in which they start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct

from dragoman.agent import Agent
from dragoman.core.peer import Peer
from dragoman.net.server_context import ServerContext
from dragoman.net.service import Service
from dragoman.security.access_control import AccessControl
from dragoman.settings import Settings

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


class ServiceContext(Struct, frozen=True, kw_only=True):
    """What a service may need to know of the app that it is part of."""

    agent: Agent
    engine: ServedPeer
    """What runs the tasks. Services ask `server.peer` instead, which guards it."""
    server: ServerContext
    access: AccessControl
    settings: Settings
    base: str
    """Where the agent is reached; empty if only callers know."""


def _grpc(context: ServiceContext) -> Service | None:
    from dragoman.net.grpc.service import GrpcService, asked_for

    if not asked_for(context.settings):
        return None
    return GrpcService(context.server, context.settings, GRACE + LINGER)


def _iat(context: ServiceContext) -> Service | None:
    from dragoman.engine import Engine
    from dragoman.iat.service import IatService
    from dragoman.store.clock import wall_clock
    from dragoman.store.memory.sessions import MemorySessions

    # Sessions are kept with the tasks. An agent that keeps its tasks itself has no store of ours.
    engine = context.engine
    if isinstance(engine, Engine):
        book, name = engine.store.sessions, engine.name
    else:
        book, name = MemorySessions(wall_clock), context.agent.name
    return IatService(context.server, context.access, context.settings, book, context.base, name)


FACTORIES: list[Callable[[ServiceContext], Service | None]] = [_grpc, _iat]
"""Each makes its service, or None where the settings do not ask for it."""


def services_of(context: ServiceContext) -> list[Service]:
    """The services that an app has."""
    return [service for make in FACTORIES if (service := make(context)) is not None]
