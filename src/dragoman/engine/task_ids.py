"""Task ids: generated UUIDv7s, and ids that callers chose for their tasks (A2A 0.1)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from dragoman.core.errors import TaskNotFound
from dragoman.core.operations import SendMessage, SetHook
from dragoman.core.task_names import task_id_of
from dragoman.store.interface import Scope, Store

_RANDOM = 8
"""Random bytes in an id; many are requested from the system at once."""

_COUNTS = tuple(f"-7{n:02x}" for n in range(0x100)), tuple(f"{n:x}-8" for n in range(0x10))
"""The first two digits of the counter, and the third one."""


class _Ids:
    """Generates ids. Ids of one millisecond share their head, which is made once. The ids of a
    process sort in the order of their creation, also within a millisecond: lists and queues rely
    on it."""

    def __init__(self) -> None:
        self._digits: list[str] = []
        self._millis = 0
        self._count = 0
        self._head = ""

    def __call__(self) -> str:
        if not self._digits:
            pool = os.urandom(_RANDOM * 256).hex()
            starts = range(0, len(pool), 2 * _RANDOM)
            self._digits = [f"{pool[i : i + 3]}-{pool[i + 3 : i + 15]}" for i in starts]
        digits = self._digits.pop()
        millis = time.time_ns() // 1_000_000
        if millis <= self._millis and self._count < 0xFFF:
            self._count += 1
        else:
            self._millis, self._count = max(millis, self._millis + 1), 0
            self._head = f"{self._millis >> 16:08x}-{self._millis & 0xFFFF:04x}"
        high, low = _COUNTS
        count = self._count
        return f"{self._head}{high[count >> 4]}{low[count & 15]}{digits}"


new_id = _Ids()
"""Returns a UUIDv7: 48 bits of milliseconds, 12 of a counter, then 60 random bits."""


def now_ms() -> int:
    """Returns the current time in milliseconds, as used in the log."""
    return time.time_ns() // 1_000_000


class TaskNames:
    """Finds tasks by the ids that their callers chose. `mine` finds the run of a task in this
    process."""

    def __init__(self, store: Store, mine: Callable[[Scope, str], object]) -> None:
        self._store, self._mine = store, mine

    async def addressed(self, op: SendMessage, scope: Scope) -> SendMessage:
        """Returns a send that names its task, addressed to that task if it exists."""
        task_id = await self.id_of(op.open_as, scope)
        if task_id is None:
            return op
        return replace(op, message=replace(op.message, task_id=task_id), open_as="")

    async def id_of(self, said: str, scope: Scope) -> str | None:
        """Returns the id of the caller's task with this id, or else with this name."""
        for task_id in (said, named(said, scope)):
            if await self._exists(scope, task_id):
                return task_id
        return None

    async def _exists(self, scope: Scope, task_id: str) -> bool:
        if self._mine(scope, task_id) is not None:
            return True
        try:
            await self._store.row(scope, task_id)
        except TaskNotFound:
            return False
        return True


def by_name(op: Any, scope: Scope) -> Any:
    """Returns the same operation on the task that the caller gave this name. Returns None if the
    operation has no task, or names it separately (`SendMessage.open_as`)."""
    if isinstance(op, SetHook):
        return replace(op, hook=replace(op.hook, task_id=named(op.hook.task_id, scope)))
    task_id = getattr(op, "task_id", "")
    return replace(op, task_id=named(task_id, scope)) if task_id else None


def named(name: str, scope: Scope) -> str:
    """Returns the id of the task to which the caller gave this name."""
    return task_id_of(name, scope.agent, scope.tenant, scope.principal)
