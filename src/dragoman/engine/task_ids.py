"""Ids of tasks: UUIDv7s of ours, and tasks found by the names their callers gave them."""

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
"""Bytes of randomness in an id; the system is asked for many at once."""

_COUNTS = tuple(f"-7{n:03x}-8" for n in range(0x1000))


class _Ids:
    """Ids of one moment share their head, so that is made once. Ids of one process sort in
    the order in which they were made, also within a millisecond: lists and queues rely on it."""

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
        return f"{self._head}{_COUNTS[self._count]}{digits}"


new_id = _Ids()
"""A UUIDv7: 48 bits of milliseconds, 12 of a counter, then 60 random bits."""


def now_ms() -> int:
    """The time as the log writes it."""
    return time.time_ns() // 1_000_000


class TaskNames:
    """The names that callers of an agent gave their tasks. `mine` finds the run of a task in this
    process."""

    def __init__(self, store: Store, mine: Callable[[Scope, str], object]) -> None:
        self._store, self._mine = store, mine

    async def addressed(self, op: SendMessage, scope: Scope) -> SendMessage:
        """A send that says what its task is called: to that task, or if there is none, as it is."""
        task_id = await self.id_of(op.open_as, scope)
        if task_id is None:
            return op
        return replace(op, message=replace(op.message, task_id=task_id), open_as="")

    async def id_of(self, said: str, scope: Scope) -> str | None:
        """The id of the caller's task that has this id, or else this name."""
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
    """The same operation on the task that the caller calls so; None if it is on no task, or says
    beside its id what the task is called (`SendMessage.open_as`)."""
    if isinstance(op, SetHook):
        return replace(op, hook=replace(op.hook, task_id=named(op.hook.task_id, scope)))
    task_id = getattr(op, "task_id", "")
    return replace(op, task_id=named(task_id, scope)) if task_id else None


def named(name: str, scope: Scope) -> str:
    """The id of the task that the caller calls so."""
    return task_id_of(name, scope.agent, scope.tenant, scope.principal)
