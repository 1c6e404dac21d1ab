"""How the pool of an agent elsewhere connects to it: by an address, or because it came to us."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from dragoman.core.card import Card
from dragoman.core.model import Task
from dragoman.core.operations import Operation, R, Streamed
from dragoman.core.peer import Begun, Context


class ConnectedAgent(Protocol):
    """An agent that is connected: a `RemoteAgent`, or what else can be called like one."""

    @property
    def card(self) -> Card:
        """Its card."""

    @property
    def dialect(self) -> str:
        """The dialect in use."""

    @property
    def remembers(self) -> bool:
        """Whether it recognises a repeated message by its idempotency key."""

    async def changed(self) -> bool:
        """Asks for a sign of life, and returns whether its card has changed."""

    async def cancel(self, task: Task | str) -> Task | None:
        """Cancels a task."""

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Returns the result, or raises a `DragomanError`."""

    def begin(self, op: Streamed, ctx: Context) -> Awaitable[Begun]:
        """Returns the first events of a task, and the stream of all that follow. The relay resumes
        it if it breaks."""


class HeldConnection(AbstractAsyncContextManager[ConnectedAgent], Protocol):
    """An open connection, and a context for each use of it."""

    def use(self) -> ConnectedAgent:
        """Begins a use without waiting."""


class UpstreamConnections(Protocol):
    """The connections of a pool: `client.connection_cache.ConnectionCache`, for addresses."""

    def reach(
        self, address: str, options: Mapping[str, Any], *, renew: bool = False
    ) -> AbstractAsyncContextManager[ConnectedAgent]:
        """Returns a connection for the duration of the block. Raises `PeerUnreachable`."""

    def held(self, address: str, options: Mapping[str, Any]) -> HeldConnection | None:
        """Returns the connection if it is open and can be used without waiting."""

    async def close(self) -> None:
        """Ends all connections."""
