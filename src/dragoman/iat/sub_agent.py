"""A sub-agent from the point of view of its host: its name, its tools and its transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Protocol, cast

from dragoman.core.card import Card, Tool
from dragoman.core.errors import (
    CallError,
    DragomanError,
    Forbidden,
    PeerMisbehaved,
    PeerRefused,
    Unauthenticated,
)
from dragoman.core.operations import AnyOperation, Operation, R, Streamed
from dragoman.core.peer import Batch, Context, Peer
from dragoman.core.session import Introduction

MISSES = 3
"""The number of unanswered heartbeats after which a sub-agent counts as offline (dialects §2.2)."""


class AgentTransport(Protocol):
    """The transport to a sub-agent: the WebSocket that it opened, or the address that it named."""

    async def call(self, op: Operation[R], ctx: Context) -> R: ...

    def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]: ...

    async def tell(self, op: AnyOperation, ctx: Context) -> None: ...

    async def ping(self) -> None: ...

    async def close(self) -> None: ...


class AddressTransport(AgentTransport, Protocol):
    """The transport to an address, which can also introduce us to the agent there."""

    async def meet(self) -> Introduction: ...


class Dial(Protocol):
    """Creates the transport to an address. An address that the operator `typed` may be in any
    network.

    With `signs`, messages are signed for the name of the agent. It is used only for an agent whose
    name is proved by more than its own claim. `token` is the session token that the agent got when
    it registered; messages carry it, unless the agent answers our introduction with its own."""

    def __call__(
        self,
        url: str,
        to: str = "",
        *,
        typed: bool = False,
        signs: bool = False,
        token: str = "",
    ) -> AddressTransport: ...


class SubAgent:
    """One registered sub-agent."""

    def __init__(
        self,
        name: str,
        card: Card,
        tools: tuple[Tool, ...],
        transport: AgentTransport,
        workspace: str = "",
        place: object = None,
    ) -> None:
        self.name, self.card, self.tools, self.transport = name, card, tools, transport
        self.workspace = workspace
        """The folder in which it works, according to its introduction."""
        self.place = place
        """Where it registered from: the address that it named, or its WebSocket."""
        self.misses = 0
        self.online = True
        self.changed = asyncio.Event()
        """Set when this registration ends, because it was lost, replaced or removed."""

    def __repr__(self) -> str:
        return f"<SubAgent {self.name} {'online' if self.online else 'offline'}>"

    async def pulse(self, seconds: float) -> bool:
        """Sends one heartbeat. Returns whether the sub-agent still counts as online."""
        self.misses = 0 if await self.answers(seconds) else self.misses + 1
        if self.misses >= MISSES:
            self.leave()
        return self.online

    async def answers(self, seconds: float) -> bool:
        """Returns whether the sub-agent answers within this time."""
        try:
            async with asyncio.timeout(seconds):
                await self.transport.ping()
        except (Unauthenticated, Forbidden):
            return False
        except (CallError, PeerRefused, PeerMisbehaved):
            # Real agents have no heartbeat method (dialects §2.2): one that says so is online.
            return True
        except (DragomanError, TimeoutError, OSError):
            return False
        return True

    def leave(self) -> None:
        """Marks the sub-agent as offline, and ends its registration."""
        self.online = False
        self.changed.set()


class KnownAgent:
    """An agent of another dialect, as `connect` returns it."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Returns the answer to an operation. If the dialect cannot express the operation, its
        client uses an equivalent one."""
        return await self._peer.call(op, ctx)

    def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Yields every event."""
        return self._peer.stream(op, ctx)

    async def tell(self, op: AnyOperation, ctx: Context) -> None:
        """Calls an operation whose answer does not matter."""
        await self.call(cast(Operation[Any], op), ctx)

    async def ping(self) -> None:
        """Does nothing: these agents have no ping, and a failed call shows that one is gone."""

    async def close(self) -> None:
        """Does nothing, since the code that opened the connection closes it."""
