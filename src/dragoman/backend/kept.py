"""What we keep for a backend: tasks whose author has no place for them, and names of tasks.

A store of ours holds it, each task as its latest snapshot. What is kept belongs to the caller it
was kept for, and nobody else finds it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from uuid import uuid4

from msgspec.structs import replace

from ..errors import Conflict, Fenced, StoreUnavailable, TaskNotFound
from ..events import Snapshot, Stamped
from ..lifecycle import FINAL
from ..model import State, Status, Task
from ..names import task_id_of
from ..peer import Context
from ..store.base import Done, Draft, Row, Scope, Store, Write

SWEEP = 3600.0
"""Seconds between two looks for what is too old."""
MOST = 1_000
"""Tasks that one such look removes."""
TRIES = 8
"""How often a save is tried while others save the same task."""
LEASE = 60_000
"""Milliseconds for which a process may write, before it has to say again that it is there."""


class Kept:
    """Tasks and names of one backend in a store, which is opened when it is first needed."""

    def __init__(self, store: Store, agent: str, keep: float) -> None:
        self._store, self._agent, self._keep_ms = store, agent, int(keep * 1000)
        self._opening: asyncio.Task[None] | None = None
        self._worker = ""
        self._swept = 0.0

    async def open(self) -> Store:
        """The store, open."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._store.open())
        try:
            await asyncio.shield(self._opening)
        except Exception:
            self._opening = None  # whoever needs it next tries again
            raise
        return self._store

    async def close(self) -> None:
        """Lets go of the store."""
        if self._opening is None:
            return
        if self._worker:
            await self._store.retire(self._worker)
        await self._store.close()

    async def load(self, task_id: str, ctx: Context) -> Task:
        """The task as it was saved last; `TaskNotFound` if it never was."""
        store = await self.open()
        try:
            _, task = await store.load(_scope(ctx), self._key("task", task_id, ctx))
        except TaskNotFound:
            raise TaskNotFound(taskId=task_id) from None
        return replace(task, id=task_id)

    async def save(self, task: Task, ctx: Context) -> None:
        """Keeps a task as it stands. What is finished does not change any more."""
        await self._save(self._key("task", task.id, ctx), task, self._agent, ctx)
        await self._sweep()

    async def named(self, name: str, ctx: Context) -> str:
        """The id of the task that the caller calls so; empty if there is none."""
        store = await self.open()
        try:
            _, found = await store.load(_scope(ctx), self._key("name", name, ctx))
        except TaskNotFound:
            return ""
        return str((found.metadata or {}).get("id", ""))

    async def name(self, name: str, task_id: str, ctx: Context) -> None:
        """From now on the caller may call the task so; the first one keeps its name."""
        key = self._key("name", name, ctx)
        status = Status(State.COMPLETED, _now())
        told = Task(id=key, context_id=key, status=status, metadata={"id": task_id})
        await self._save(key, told, "", ctx)

    def _key(self, kind: str, id: str, ctx: Context) -> str:
        # Ids of authors are unique among their own tasks at best, those of stores among all.
        return task_id_of(ctx.tenant, ctx.principal, f"{self._agent}/{kind}/{id}")

    async def _save(self, key: str, task: Task, agent: str, ctx: Context) -> None:
        store, task = await self.open(), replace(task, id=key)
        for _ in range(TRIES):
            try:
                row = await store.row(_scope(ctx), key)
            except TaskNotFound:
                try:
                    await _landed(partial(store.create, _draft(task, agent, ctx)))
                except Conflict:
                    continue  # someone else was faster
                return
            if row.final:
                return
            taken = await store.seize(self._worker, key, row.epoch)
            if taken is None:
                await self._enlist(store)
                continue
            write = _write(taken, task)
            try:
                await _landed(partial(store.append, write))
            except Fenced:
                continue
            if task.state not in FINAL:
                await store.release(taken.claim, runnable=False)
            return
        raise StoreUnavailable("Too many change this task at a time")

    async def _enlist(self, store: Store) -> None:
        """Only a worker that is alive may write a task that exists."""
        if not self._worker or not await store.beat(self._worker, LEASE):
            self._worker = uuid4().hex
            await store.enlist(self._worker, LEASE)

    async def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._swept >= SWEEP or not self._swept:
            self._swept = now
            await self._store.sweep(self._keep_ms, self._keep_ms, MOST)


async def _landed(hand_over: Callable[[Done], None]) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    hand_over(tell)
    await done


def _draft(task: Task, agent: str, ctx: Context) -> Draft:
    now = _now()
    row = Row(
        task_id=task.id,
        context_id=task.context_id,
        tenant=ctx.tenant,
        principal=ctx.principal,
        agent=agent,
        skill="",
        dialect=ctx.dialect,
        state=task.state,
        last_seq=1,
        created_at=now,
        status_at=task.status.at or now,
    )
    return Draft(row=row, entries=(_entry(task, 1),), ended=task if task.state in FINAL else None)


def _write(row: Row, task: Task) -> Write:
    return Write(
        claim=row.claim,
        base=row.last_seq,
        entries=(_entry(task, row.last_seq + 1),),
        state=task.state,
        status_at=task.status.at or _now(),
        heard=row.heard,
        ended=task if task.state in FINAL else None,
    )


def _entry(task: Task, seq: int) -> Stamped:
    return Stamped(task.id, task.context_id, seq, _now(), Snapshot(task=task))


def _scope(ctx: Context) -> Scope:
    return Scope(ctx.tenant, ctx.principal)


def _now() -> int:
    return time.time_ns() // 1_000_000
