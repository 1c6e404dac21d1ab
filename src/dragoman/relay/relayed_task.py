"""The remote task of a relay."""

from __future__ import annotations

from dragoman.agent.remote_calls import AGENT, TurnAccess

from .remote_task import RemoteTask
from .upstream import Upstream


class RelayedTask(RemoteTask):
    """The remote task that a task of ours mirrors."""

    def __init__(self, access: TurnAccess, upstream: Upstream) -> None:
        super().__init__(access, access.record_name(AGENT, "relay"))
        self._upstream = upstream
        self.in_doubt = bool(self.announced)

    async def find(self) -> str:
        """Asks the upstream for the task of our message."""
        found = await self._upstream.find_task(self.key, self.recorded_address)
        if found:
            self.address = self._upstream.address
        return found
