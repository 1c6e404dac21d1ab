"""Finds tasks by what their callers call them (`names`), when there is none of that id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ..errors import TaskNotFound
from ..names import task_id_of
from ..ops import SendMessage, SetHook
from ..peer import Context
from ..store.base import Scope, Store
from .scope import scope_of


class Names:
    """The names of tasks in one store. `mine` finds the run of a task in this process."""

    def __init__(self, store: Store, mine: Callable[[Scope, str], object]) -> None:
        self._store, self._mine = store, mine

    async def addressed(self, op: SendMessage, ctx: Context) -> SendMessage:
        """A send that says what its task is called: to that task, or if there is none, as it is."""
        task_id = await self.id_of(op.open_as, ctx)
        if task_id is None:
            return op
        return replace(op, message=replace(op.message, task_id=task_id), open_as="")

    async def id_of(self, said: str, ctx: Context) -> str | None:
        """The id of the caller's task that has this id, or else this name."""
        for task_id in (said, named(said, ctx)):
            if await self._exists(scope_of(ctx), task_id):
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


def by_name(op: Any, ctx: Context) -> Any:
    """The same operation on the task that the caller calls so; None if it is on no task, or says
    beside its id what the task is called (`SendMessage.open_as`)."""
    if isinstance(op, SetHook):
        return replace(op, hook=replace(op.hook, task_id=named(op.hook.task_id, ctx)))
    task_id = getattr(op, "task_id", "")
    return replace(op, task_id=named(task_id, ctx)) if task_id else None


def named(name: str, ctx: Context) -> str:
    """The id of the task that the caller calls so."""
    return task_id_of(ctx.tenant, ctx.principal, name)
