"""A sub-agent as its host knows it: who it is, what it can do, and how it is reached."""

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
"""Pulses without an answer, before a sub-agent counts as offline (dialects §2.2)."""


class AgentTransport(Protocol):
    """How a sub-agent is asked: over the socket it opened, or at the address it gave."""

    async def call(self, op: Operation[R], ctx: Context) -> R: ...

    def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]: ...

    async def tell(self, op: AnyOperation, ctx: Context) -> None: ...

    async def ping(self) -> None: ...

    async def close(self) -> None: ...


class AddressTransport(AgentTransport, Protocol):
    """The same to an address: it can find out who is there."""

    async def meet(self) -> Introduction: ...


class Dial(Protocol):
    """Makes the transport to an address. One that the operator typed may be anywhere.

    `signs` is for an agent whose name is not its own word alone: what it is sent is signed for
    that name."""

    def __call__(
        self, url: str, to: str = "", *, typed: bool = False, signs: bool = False
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
        """The folder it works in, as it told us."""
        self.place = place
        """Where it registered from: the address it gave, or its socket."""
        self.misses = 0
        self.online = True
        self.changed = asyncio.Event()
        """Set when this registration ends: lost, replaced, or sent away."""

    def __repr__(self) -> str:
        return f"<SubAgent {self.name} {'online' if self.online else 'offline'}>"

    async def pulse(self, seconds: float) -> bool:
        """One heartbeat; whether the sub-agent still counts as there."""
        self.misses = 0 if await self.answers(seconds) else self.misses + 1
        if self.misses >= MISSES:
            self.leave()
        return self.online

    async def answers(self, seconds: float) -> bool:
        """Whether the sub-agent answers within this time."""
        try:
            async with asyncio.timeout(seconds):
                await self.transport.ping()
        except (Unauthenticated, Forbidden):
            return False
        except (CallError, PeerRefused, PeerMisbehaved):
            return True  # real agents know no pulse (dialects §2.2): one that says so is there
        except (DragomanError, TimeoutError, OSError):
            return False
        return True

    def leave(self) -> None:
        """It is not there any more."""
        self.online = False
        self.changed.set()


class KnownAgent:
    """An agent of another dialect: whatever `connect` gives."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """The answer. What its dialect has no word for, its transport says in another."""
        return await self._peer.call(op, ctx)

    def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Every step."""
        return self._peer.stream(op, ctx)

    async def tell(self, op: AnyOperation, ctx: Context) -> None:
        """Says something whose answer does not matter."""
        await self.call(cast(Operation[Any], op), ctx)

    async def ping(self) -> None:
        """Does nothing: these agents have no ping, and a failed call shows that one is gone."""

    async def close(self) -> None:
        """Does nothing, since the code that opened the connection closes it."""
