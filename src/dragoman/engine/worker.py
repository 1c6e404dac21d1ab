"""What a process is in the store: one worker with one lease, whichever agents it runs."""

from __future__ import annotations

import asyncio
from math import inf
from time import monotonic

from .task_ids import new_id


class Worker:
    """The worker of a process, which the runners of its agents share. A task is claimed by a worker
    and for an agent, so a process needs one lease and one heartbeat, however many agents it has."""

    def __init__(self) -> None:
        self.id = new_id()
        self.place_free = asyncio.Event()
        """Set when a task that waits for a place may start."""
        self._claims = 0
        self._lease_end = inf

    def renew(self) -> None:
        """Becomes another worker, so that no old claim is mistaken for a new one."""
        self.id = new_id()

    def set_lease(self, began: float, lease: float) -> None:
        """Notes that the store has renewed the lease. `began` is the monotonic time at which it was
        asked: the store may have done it at any time since then."""
        self._lease_end = began + lease

    def lease_is_over(self) -> bool:
        """Returns whether other workers may have taken over our tasks."""
        return monotonic() >= self._lease_end

    def new_token(self) -> str:
        """Returns the token of a new claim, which is never reused."""
        self._claims += 1
        return f"{self.id}.{self._claims}"
