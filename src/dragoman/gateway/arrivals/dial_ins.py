"""Agents that come to the gateway by themselves: served while they are connected, and listed as
offline for a while after they have left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from dragoman.agent import Agent
from dragoman.core.errors import DragomanError, Forbidden, PeerUnreachable
from dragoman.core.log import Logger
from dragoman.core.model import Json
from dragoman.engine.background_work import BackgroundWork
from dragoman.settings import UpstreamLimits
from dragoman.store.clock import wall_clock
from dragoman.store.registry import Source

from ..agent_health import health_of, last_seen
from ..registry import OFFLINE_NAME, Mounts, Registry
from ..upstream_agent import UpstreamAgent
from ..upstream_connections import ConnectedAgent
from ..upstream_pool import RETRY_AFTER, UpstreamPool

log = Logger("gateway")


class _Connection:
    """The connection of one agent, while it is online."""

    def __init__(self, agent_id: str, find: Callable[[], ConnectedAgent | None]) -> None:
        self._agent_id, self._find = agent_id, find

    @asynccontextmanager
    async def reach(
        self, address: str, options: Mapping[str, Any], *, renew: bool = False
    ) -> AsyncIterator[ConnectedAgent]:
        """Returns the agent. Raises `PeerUnreachable` while it is offline."""
        agent = self._find()
        if agent is None:
            raise PeerUnreachable(f"{self._agent_id} is offline", retry_after=str(RETRY_AFTER))
        yield agent

    async def close(self) -> None:
        """Does nothing: whoever accepted the connection owns it."""


def dialed_in_pool(
    name: str, agent_id: str, scheme: str, find: Callable[[], ConnectedAgent | None]
) -> UpstreamPool:
    """Returns the pool of an agent that came by itself; `find` returns it while it is online. It
    has no address, so its name is its label in the journal and for operators."""
    connections = _Connection(agent_id, find)
    return UpstreamPool(name, {f"{scheme}://{name}": {}}, UpstreamLimits(), connections=connections)


class _DialIn:
    """One agent that came by itself."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.lock = asyncio.Lock()
        """Held while the agent is mounted or removed."""
        self.agent: UpstreamAgent | None = None
        self.online = True
        self.left_at = 0
        self.removal: asyncio.TimerHandle | None = None


class DialIns:
    """Serves agents as they come and go. Their names are kept in the registry."""

    def __init__(
        self,
        server: Mounts,
        agent_at: Callable[[str], Agent | None],
        registry: Registry | None,
        *,
        offline: float,
        source: Source = Source.LINK,
    ) -> None:
        """`agent_at` returns the agent of a name that is served. `offline` are the seconds for
        which an agent that has left is still served, and listed as offline. Without a registry,
        names belong to the agents that are served under them. `source` says how they come."""
        self._server, self._agent_at, self._registry = server, agent_at, registry
        self._offline, self._source = offline, source
        self._known: dict[str, _DialIn] = {}
        self._work = BackgroundWork()

    async def check(self, name: str, owner: str) -> None:
        """Raises `Forbidden` if the name belongs to another agent."""
        if await self._belongs_to_another(name, owner):
            log.warning("An agent may not have the name of another", agent=name, owner=owner)
            raise Forbidden(
                f"The name {name} belongs to another agent of this gateway.", agent=name
            )

    async def _belongs_to_another(self, name: str, owner: str) -> bool:
        if self._registry is not None:
            return await self._registry.belongs_to_another(name, owner, self._source)
        known = self._known.get(name)
        return known.owner != owner if known is not None else self._agent_at(name) is not None

    def arrived(self, name: str, owner: str, make: Callable[[], UpstreamAgent]) -> None:
        """Serves an agent, or again one that had left. `make` makes it."""
        known = self._known.get(name)
        if known is None or known.owner != owner:
            known = self._known[name] = _DialIn(owner)
        known.online = True
        if known.removal is not None:
            known.removal.cancel()
        self._work.spawn(self._serve(name, known, make))

    def left(self, name: str) -> None:
        """Lists an agent as offline, and removes it after a while."""
        known = self._known.get(name)
        if known is None:
            return
        known.online, known.left_at = False, wall_clock()
        loop = asyncio.get_running_loop()
        known.removal = loop.call_later(
            self._offline, lambda: self._work.spawn(self._remove(name, known))
        )
        self._work.spawn(self._note_offline(name, known))

    def is_online(self, name: str) -> bool:
        """Returns whether nothing is known that keeps an agent from answering."""
        known = self._known.get(name)
        return known is None or known.online

    def about(self, name: str) -> dict[str, Json]:
        """Returns what a list without a registry tells of an agent that came by itself; nothing
        for others."""
        known = self._known.get(name)
        if known is None or known.agent is None:
            return {}
        health = health_of(known.agent).value if known.online else OFFLINE_NAME
        seen = last_seen(known.agent) if known.online else known.left_at
        return {"source": Source.LINK.value, "health": health, "lastSeen": seen}

    async def close(self) -> None:
        """Follows nobody any more. The agents stay until the server stops them."""
        for known in self._known.values():
            if known.removal is not None:
                known.removal.cancel()
        await self._work.cancel()

    async def _serve(self, name: str, known: _DialIn, make: Callable[[], UpstreamAgent]) -> None:
        async with known.lock:
            if not known.online:
                return
            try:
                if self._registry is not None:
                    await self._registry.link(name, known.owner, self._source)
                if known.agent is None or self._agent_at(name) is not known.agent:
                    known.agent = make()
                    await self._server.add_agent(name, known.agent)
                await known.agent.check()
            except DragomanError as exc:
                log.warning("An agent that came cannot be served", agent=name, why=exc)
                return
            self._server.reindex(name)

    async def _note_offline(self, name: str, known: _DialIn) -> None:
        async with known.lock:
            if not known.online:
                log.info("An agent has left", agent=name)
                if self._registry is not None:
                    await self._registry.unlink(name, known.owner, self._source, offline=True)

    async def _remove(self, name: str, known: _DialIn) -> None:
        async with known.lock:
            if known.online:
                return
            if self._known.get(name) is known:
                del self._known[name]
            if known.agent is not None and self._agent_at(name) is known.agent:
                await self._server.remove_agent(name)
            if self._registry is not None:
                await self._registry.unlink(name, known.owner, self._source)
