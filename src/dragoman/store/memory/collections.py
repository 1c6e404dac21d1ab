"""Everything in a store in memory that is not a task."""

from __future__ import annotations

from ..clock import Clock
from ..transfer.stored_task import Collections
from .link_keys import MemoryLinkKeys
from .link_status import MemoryLinkStatus
from .registry import MemoryRegistry
from .replicas import MemoryReplicas
from .sessions import MemorySessions


class MemoryCollections:
    """The collections of one store."""

    sessions: MemorySessions
    registry: MemoryRegistry
    link_keys: MemoryLinkKeys
    link_status: MemoryLinkStatus

    def __init__(self, clock: Clock) -> None:
        self.replicas = MemoryReplicas(clock)
        self.sessions = MemorySessions(clock)
        self.registry = MemoryRegistry(clock)
        self.link_keys = MemoryLinkKeys(clock)
        self.link_status = MemoryLinkStatus(clock)

    async def export(self) -> Collections:
        """Returns everything."""
        return Collections(
            sessions=await self.sessions.news(0),
            used_keys=self.sessions.used_keys(),
            agents=await self.registry.news(0),
            link_keys=await self.link_keys.all(),
            link_status=await self.link_status.all(),
        )

    async def restore(self, found: Collections) -> None:
        """Takes these in place of all that there are."""
        await self.sessions.restore(found.sessions, found.used_keys)
        await self.registry.restore(found.agents)
        await self.link_keys.restore(found.link_keys)
        await self.link_status.restore(found.link_status)
