"""Stores what a backend does not: tasks whose author has no place for them, and names of tasks.

A store of ours contains each task as its latest snapshot. An entry belongs to its caller, and no
other caller can find it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from uuid import uuid4

from msgspec.structs import replace

from dragoman.core.errors import Conflict, Fenced, StoreUnavailable, TaskNotFound
from dragoman.core.events import Snapshot, Stamped
from dragoman.core.lifecycle import FINAL
from dragoman.core.log import Logger
from dragoman.core.model import State, Status, Task
from dragoman.core.outage import Outage
from dragoman.core.peer import Context
from dragoman.core.task_names import task_id_of
from dragoman.store.interface import Draft, Row, Scope, Store, Write
from dragoman.store.writes import commit

log = Logger("backend")

SWEEP = 3600.0
"""The most seconds between two looks for tasks that are too old."""
MOST = 1_000
"""The number of tasks that the store is asked to remove at a time."""
TRIES = 8
"""The number of times that a save is tried while others save the same task."""
LEASE = 60_000
"""The milliseconds for which a process may write before it has to renew its lease."""


class FallbackTasks:
    """Tasks and names of one backend in a store, which is opened when it is first needed, unless
    it is shared: then it is open already, and others close it."""

    def __init__(
        self,
        store: Store,
        agent: str,
        keep: float,
        clock: Callable[[], int] | None = None,
        *,
        opens_store: bool = True,
    ) -> None:
        self._store, self._agent, self._keep_ms = store, agent, int(keep * 1000)
        self._opens_store = opens_store
        self._pause = min(SWEEP, max(1.0, keep / 4))
        self._now = clock or _now
        self._opening: asyncio.Task[None] | None = None
        self._used = False
        self._worker = ""
        self._sweeping: asyncio.Task[None] | None = None

    async def open(self) -> Store:
        """Returns the open store."""
        self._used = True
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
        try:
            await asyncio.shield(self._opening)
        except Exception:
            self._opening = None  # whoever needs it next tries again
            raise
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().create_task(self._keep_swept())
        return self._store

    async def _open(self) -> None:
        if self._opens_store:
            await self._store.open()

    async def close(self) -> None:
        """Closes the store."""
        if self._opening is None:
            return
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        if self._worker:
            await self._store.retire(self._worker)
        if self._opens_store:
            await self._store.close()

    @property
    def outage(self) -> Outage:
        """Whether the store does not work now."""
        return self._store.outage

    async def probe(self) -> None:
        """Raises the error that would keep a task from being stored, if anything was ever to be
        stored."""
        if self._used:
            await (await self.open()).probe()

    async def load(self, task_id: str, ctx: Context) -> Task:
        """Returns the task as it was saved last. Raises `TaskNotFound` if it never was."""
        store = await self.open()
        try:
            _, task = await store.load(self._scope(ctx), self._key("task", task_id, ctx))
        except TaskNotFound:
            raise TaskNotFound(taskId=task_id) from None
        return replace(task, id=task_id)

    async def save(self, task: Task, ctx: Context) -> None:
        """Saves a task as it stands. A finished task does not change any more."""
        await self._save(self._key("task", task.id, ctx), task, ctx)

    async def named(self, name: str, ctx: Context) -> str:
        """Returns the id of the task to which the caller gave this name, or an empty text."""
        found = await self._name(name, ctx)
        if found is None:
            return ""
        row, task_id = found
        if not row.final and row.expires_at - self._now() < self._keep_ms * 3 // 4:
            await self._prolong(row)
        return task_id

    async def name(self, name: str, task_id: str, ctx: Context, *, ended: bool = False) -> None:
        """Gives a task a name for its caller; the first task of a name keeps it.

        A name is kept as long as it is used, and the name of a finished task as long as the task.
        """
        found = await self._name(name, ctx)
        if found is not None and (found[1] != task_id or found[0].final or not ended):
            return
        key = self._key("name", name, ctx)
        # Among the states only a waiting one can expire.
        status = Status(State.COMPLETED if ended else State.INPUT_REQUIRED, self._now())
        told = Task(id=key, context_id=key, status=status, metadata={"id": task_id})
        await self._save(key, told, ctx, hidden=True, first=found is None)

    async def sweep(self) -> None:
        """Removes finished tasks, and names that nobody uses, when their time is over."""
        removed = MOST
        while removed >= MOST:
            removed = await self._store.sweep(self._agent, self._keep_ms, self._keep_ms, MOST)
        removed = MOST
        while removed >= MOST:
            rows = await self._store.list_expired_tasks(self._agent, MOST)  # only names expire
            removed = await self._store.erase([row.task_id for row in rows]) if rows else 0

    async def _keep_swept(self) -> None:
        while True:
            try:
                await self.sweep()
            except Exception as exc:  # the next look may do better
                log.error("Old tasks could not be removed", exc)
            await asyncio.sleep(self._pause)

    async def _name(self, name: str, ctx: Context) -> tuple[Row, str] | None:
        store = await self.open()
        try:
            row, found = await store.load(self._scope(ctx), self._key("name", name, ctx))
        except TaskNotFound:
            return None
        return row, str((found.metadata or {}).get("id", ""))

    async def _prolong(self, row: Row) -> None:
        """Renews the time of a name that is used. If this fails, the next use tries again."""
        store = self._store
        with suppress(Fenced, StoreUnavailable):
            taken = await store.seize(self._worker, row.task_id, row.epoch)
            if taken is None:
                await self._enlist(store)
                taken = await store.seize(self._worker, row.task_id, row.epoch)
            if taken is None:
                return  # someone else does it
            write = Write(
                claim=taken.claim,
                base=taken.last_seq,
                entries=(),
                state=taken.state,
                status_at=self._now(),
                heard=taken.heard,
                expires_at=self._now() + self._keep_ms,
            )
            await commit(partial(store.append, write))
            await store.release(taken.claim, runnable=False)

    def _key(self, kind: str, id: str, ctx: Context) -> str:
        # Ids of authors are unique among their own tasks at best, those of stores among all.
        return task_id_of(f"{self._agent}/{kind}/{id}", ctx.tenant, ctx.principal)

    def _scope(self, ctx: Context) -> Scope:
        return Scope(ctx.tenant, ctx.principal, self._agent)

    async def _save(
        self, key: str, task: Task, ctx: Context, *, hidden: bool = False, first: bool = False
    ) -> None:
        """`hidden`: what nobody counts or lists as a task; `first`: only if there is none yet."""
        store, task = await self.open(), replace(task, id=key)
        draft = _draft(task, self._agent, ctx)
        if hidden:
            expires = self._now() + self._keep_ms if task.state not in FINAL else 0
            draft = replace(draft, row=replace(draft.row, hidden=True, expires_at=expires))
        for _ in range(TRIES):
            try:
                row = await store.row(self._scope(ctx), key)
            except TaskNotFound:
                try:
                    await commit(partial(store.create, draft))
                except Conflict:
                    continue  # someone else was faster
                return
            if row.final or first:
                return
            taken = await store.seize(self._worker, key, row.epoch)
            if taken is None:
                await self._enlist(store)
                continue
            write = _write(taken, task)
            try:
                await commit(partial(store.append, write))
            except Fenced:
                continue
            if task.state not in FINAL:
                await store.release(taken.claim, runnable=False)
            return
        raise StoreUnavailable("Too many change this task at a time")

    async def _enlist(self, store: Store) -> None:
        """Renews the lease of this worker: only a worker that is alive may write a task that
        exists."""
        if not self._worker or not await store.beat(self._worker, LEASE):
            self._worker = uuid4().hex
            await store.enlist(self._worker, LEASE)


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


def _now() -> int:
    return time.time_ns() // 1_000_000
