"""What a process is in the store: one worker with one lease, whichever agents it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .task_ids import new_id


class Worker:
    """The worker of a process, which the runners of its agents share. A task is claimed by a worker
    and for an agent, so a process needs one lease and one heartbeat, however many agents it has."""

    def __init__(self) -> None:
        self.id = new_id()
        self.place_free = asyncio.Event()
        """Set when a task that waits for a place may start."""
        self.call_others: Callable[[str], None] = lambda agent: None
        """Tells other processes that a task of this agent waits for them; set by the
        maintenance."""
        self._claims = 0

    def renew(self) -> None:
        """Becomes another worker, so that no old claim is mistaken for a new one."""
        self.id = new_id()

    def new_token(self) -> str:
        """Returns the token of a new claim, which is never reused."""
        self._claims += 1
        return f"{self.id}.{self._claims}"
