"""Exports and imports everything that a store in memory holds."""

from __future__ import annotations

from heapq import nsmallest

from msgspec.structs import replace

from .. import rules
from ..codec import pack, unpack_input
from ..memory.collections import MemoryCollections
from ..memory.outbox import MemoryOutbox
from ..memory.records import FrozenTask, Key, LiveTask
from ..memory.task_table import TaskTable
from ..outbox import HookCursor
from ..task_row import Idempotency
from .rows import DROPPED
from .stored_task import (
    COUNTED,
    VERSIONED,
    Collections,
    CopyMark,
    StoredTask,
    TaskVersion,
    hooks_version,
    stored_task,
)


class MemoryTransfer:
    """Implements `TransferStore`."""

    def __init__(self, collections: MemoryCollections) -> None:
        self._collections = collections
        self._mark: CopyMark | None = None
        self._tasks: TaskTable
        self._outbox: MemoryOutbox

    def use(self, tasks: TaskTable, outbox: MemoryOutbox) -> None:
        """Takes the tables of the store, whenever it makes new ones."""
        self._tasks, self._outbox = tasks, outbox

    async def versions(self, after: str, limit: int) -> list[TaskVersion]:
        names = (row.task_id for row in self._tasks.rows() if row.task_id > after)
        return [self._version(task_id) for task_id in nsmallest(limit, names)]

    def _version(self, task_id: str) -> TaskVersion:
        live = self._tasks.live.get(task_id)
        kept = live or self._tasks.finished[task_id]
        row = rules.unclaim(kept.row)
        dropped = isinstance(kept, FrozenTask) and not kept.whole
        ended = DROPPED if dropped else int(row.final)
        recorded = len(live.records or ()) if live is not None else 0
        cursors = self._outbox.of(task_id)
        hooks = hooks_version(cursors) if cursors else b""
        columns = (getattr(row, name) for name in VERSIONED)
        version = (*columns, int(row.cancel), ended, int(row.runnable), recorded, hooks)
        return TaskVersion(task_id, version)

    async def export_tasks(self, task_ids: list[str]) -> list[StoredTask]:
        return [await self._export(task_id) for task_id in task_ids if task_id in self._tasks]

    async def _export(self, task_id: str) -> StoredTask:
        live = self._tasks.live.get(task_id)
        if live is not None:
            return self._export_live(live)
        frozen = self._tasks.finished[task_id]
        return stored_task(
            frozen.row,
            pieces=frozen.pieces,
            task=frozen.task,
            dropped=not frozen.whole,
            keys=self._keys(frozen),
            inputs=(),
            records=(),
            hooks=self._outbox.of(task_id),
        )

    def _export_live(self, live: LiveTask) -> StoredTask:
        return stored_task(
            rules.unclaim(live.row),
            pieces=live.log,
            task=b"",
            dropped=False,
            keys=self._keys(live),
            inputs=map(pack, live.inputs or ()),
            records=(live.records or {}).values(),
            hooks=self._outbox.of(live.row.task_id),
        )

    def _keys(self, kept: LiveTask | FrozenTask) -> list[Idempotency]:
        names = [*([kept.key] if kept.key is not None else []), *kept.keys]
        return [Idempotency(name[-1], self._tasks.keys[name][1]) for name in names]

    async def import_tasks(self, tasks: list[StoredTask]) -> None:
        for each in tasks:
            task_id = each.row.task_id
            self._tasks.forget(task_id)
            self._outbox.drop(task_id)
            kept = _kept(each)
            opening, _ = each.split_keys()
            self._tasks.add(kept, opening.digest if opening is not None else None)
            for key in each.keys:
                self._tasks.keys[_place(each, key)] = (task_id, key.digest)
            self.keep_hooks(each)

    def keep_hooks(self, each: StoredTask) -> list[HookCursor]:
        """Takes the webhooks of a task, and returns them."""
        for cursor in each.hooks:
            self._outbox.keep(replace(cursor, last=each.row.last_seq))
        return self._outbox.of(each.row.task_id)

    async def export_collections(self) -> Collections:
        return await self._collections.export()

    async def import_collections(self, found: Collections) -> None:
        await self._collections.restore(found)

    async def count(self) -> dict[str, int]:
        counted = dict.fromkeys(COUNTED, 0)
        for row in list(self._tasks.rows()):
            for name, n in (await self._export(row.task_id)).count().items():
                counted[name] += n
        return counted

    async def read_mark(self) -> CopyMark | None:
        return self._mark

    async def write_mark(self, mark: CopyMark) -> None:
        self._mark = mark


def _kept(each: StoredTask) -> LiveTask | FrozenTask:
    opening, bare = each.split_keys()
    key = _place(each, opening) if opening is not None else None
    inputs = [unpack_input(body) for body in each.inputs]
    later = [said.key for said in inputs if said.key is not None] + bare
    keys = [_place(each, one) for one in later]
    if not each.row.final:
        live = LiveTask(each.row, list(each.pieces), key, keys=keys)
        live.inputs = inputs or None
        live.records = {record.key: record for record in each.records} or None
        return live
    log = pack(list(each.pieces)) if each.task else each.pieces[0]
    if each.dropped:
        log = b""
    return FrozenTask(each.row, key, log, each.task, not each.dropped, tuple(keys))


def _place(each: StoredTask, key: Idempotency) -> Key:
    row = each.row
    return (row.agent, row.tenant, row.principal, key.key)
