"""The connections to one agent elsewhere: whoever relays a task asks here for a peer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from dragoman.client.agent import RemoteAgent
from dragoman.client.connection_cache import ConnectionCache


class Closing(Protocol):
    """Something with connections of its own, such as the source of our credentials."""

    async def close(self) -> None: ...


class UpstreamPool:
    """The way to an agent at one address."""

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        fresh: float = 300.0,
        closing: Iterable[Closing] = (),
    ) -> None:
        """`options` are those of `connect`. `fresh` are the seconds after which the card is read
        again by the next call, if nothing has done it before. `closing` is closed with the pool."""
        self._closing = tuple(closing)
        self.url = url
        self._options = dict(options or {})
        self._cache = ConnectionCache(environ=environ, fresh=fresh)

    @asynccontextmanager
    async def peer(self, *, task_id: str = "", context_id: str = "") -> AsyncIterator[RemoteAgent]:
        """Returns the agent, for the duration of the block. `task_id` is the task there that the
        call is about, if there is one, and `context_id` the conversation."""
        async with self._cache.reach(self.url, self._options) as agent:
            yield agent

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[RemoteAgent]:
        """Returns the agent with its card as it is now."""
        async with self._cache.reach(self.url, self._options, renew=True) as agent:
            yield agent

    async def close(self) -> None:
        """Ends all connections."""
        await self._cache.close()
        for each in self._closing:
            await each.close()
