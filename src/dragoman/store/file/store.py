"""`file:///folder` keeps each task as a readable log: one JSON object a line, fsynced.

The rules run on the tasks in memory, and every change becomes a line of the task's file. A change
is reported as done, and shown to anyone, only when its line is on the disk. Of a finished task
only the row stays in memory. The folder belongs to one process; a second one is refused.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import TypeVar

from dragoman.core.errors import ConfigError, Fenced, TaskNotFound
from dragoman.core.log import Logger
from dragoman.core.model import Hook, Task
from dragoman.core.outage import Outage

from .. import outbox, rules
from ..clock import Clock
from ..codec import cut
from ..interface import AdminFilter, Filter, Listing, Page
from ..limits.run_limits import NO_LIMITS, RunLimits
from ..local.private_files import make_folder
from ..memory.archive import Place
from ..memory.records import Key, LiveTask
from ..memory.store import MemoryStore
from ..outbox import HookCursor, Rule
from ..task_row import Claim, HeldTask, Idempotency, Row, Scope
from ..transfer.file import FileStoreTransfer
from ..writes import Done, Draft, Input, Record, Write
from .collections import FileCollections
from .damage import Damaged, Quarantine
from .folder_lock import FolderLock
from .format import (
    TaskFile,
    describe,
    entries_out,
    line_of,
    name_agent,
    only_agent,
    read_task,
)
from .layout import check_layout, write_layout
from .outbox import FileOutbox, content
from .reader import FileReader
from .task_files import TaskFiles

log = Logger("store")

R = TypeVar("R")


class FileStore(MemoryStore):
    """A memory store whose changes are written to files, and read back when it is opened."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._task_folder = folder / "tasks"
        self._files = TaskFiles(self._task_folder, self._restore)
        self._reader = FileReader(self._task_folder)
        self._hook_files = FileOutbox(folder / "hooks")
        self._collections = FileCollections(folder, clock, self._files.replace)
        super().__init__(clock, limit=sys.maxsize, kept=self._collections)
        self.outage = Outage(f"The store {folder.name}", clock, log)
        self._transfer = FileStoreTransfer(
            self._collections, folder, self._files, self._hook_files, self._restore
        )
        self.transfer = self._transfer
        self._unwritten: list[asyncio.Future[None]] = []
        """The lines of the change that is being made, on their way to the disk."""
        self._lock = FolderLock(folder)
        self._only_agent = ""

    async def open(self) -> None:
        try:
            await asyncio.to_thread(self._recover)
        except OSError as error:
            self._lock.release()
            raise ConfigError(f"{self._folder} cannot be used as a store: {error}.") from error
        self._files.start(self._lock.in_place, self.outage)
        self._reader.start()

    def _recover(self) -> None:
        check_layout(self._folder)
        make_folder(self._folder)
        self._lock.take()
        write_layout(self._folder)
        damaged = Quarantine(self._folder / "damaged")
        found = self._files.recover(damaged)
        self._clear()
        self._only_agent = only_agent(found)
        # Finished tasks are kept in the order in which they ended.
        for task in sorted(found, key=lambda each: each.kept.row.status_at):
            self._adopt(task)
        self._hook_files.recover(self._tasks, self._outbox, self._clock(), damaged)
        self._collections.recover(damaged)

    def _adopt(self, found: TaskFile) -> None:
        """Takes a task that was read from its file into memory."""
        name_agent(found, self._only_agent)
        kept, row = found.kept, found.kept.row
        # The process that wrote this saw at least this time. If the clock is behind it now, it
        # was set back while the store was closed.
        seen = max(row.status_at, row.run_at - rules.backoff(row.attempt))
        self._latest = max(self._latest, seen)
        self._tasks.add(kept, found.digest)
        for key, digest in zip(kept.keys, found.digests, strict=True):
            self._tasks.keys[key] = (row.task_id, digest)

    async def close(self) -> None:
        await self._files.close()
        self._reader.close()
        self._lock.release()

    # Every change of a row becomes a line.

    def _put(self, live: LiveTask, row: Row, what: str, said: Input | None = None) -> Row:
        line = line_of(row, self._clock(), what)
        line.said = said
        self._unwritten.append(self._files.write_soon(line))
        return super()._put(live, row, what, said)

    async def _commit(self, change: Awaitable[R]) -> R:
        """Returns the result of a change in memory, once its lines are on the disk."""
        # The change never suspends, so no other change can have added one of these lines.
        result = await change
        landing, self._unwritten = self._unwritten, []
        for future in landing:
            await future
        return result

    def _restore(self, task_id: str, path: Path) -> None:
        """Restores a task from its file, because a change could not be written: that change, and
        all later ones of the task, did not happen."""
        self._tasks.forget(task_id)
        try:
            found = read_task(path)
            if found is not None:
                self._adopt(found)
            else:
                path.unlink()
        except FileNotFoundError:
            pass
        except (OSError, Damaged) as error:
            log.error("A task cannot be read until a restart", task=task_id, why=error)

    # Workers.

    async def list_held_tasks(self, worker: str) -> list[HeldTask]:
        return await self._files.observe(super().list_held_tasks, worker)

    async def retire(self, worker: str) -> None:
        await self._commit(super().retire(worker))

    async def reap(self) -> list[str]:
        return await self._commit(super().reap())

    # Tasks: writing.

    def create(self, draft: Draft, done: Done) -> None:
        error = self._create(draft)
        if error is not None:
            self._files.refuse(error, done)
            return
        row = rules.open_task(draft)
        line = line_of(row, self._clock(), describe(draft.entries))
        line.events = entries_out(draft.entries)
        line.key = draft.idempotency
        line.records = list(draft.records)
        line.task = draft.ended
        if draft.ended is not None:
            done = partial(self._unload, row, done)
        if draft.hook is None:
            self._files.write(line, done)
            return
        # Nothing is due before the first line is on the disk, so the log grows only after that, in
        # `_after_create`.
        cursor = outbox.begin(self._outbox.number(), draft.hook, row.scope, sent=0, last=0, now=0)
        done = partial(self._after_create, cursor, row.last_seq, done)
        self._files.open(line, self._hook_files.path(row.task_id), content([cursor]), done)

    def _after_create(
        self, cursor: HookCursor, last: int, done: Done, error: Exception | None
    ) -> None:
        """Makes the first events due to a webhook that came with its task."""
        if error is None:
            self._outbox.keep(outbox.grow(cursor, last, self._clock()))
        done(error)

    def append(self, write: Write, done: Done) -> None:
        task_id = write.claim.task_id
        live = self._live.get(task_id)
        error = self._append(write)
        if error is not None or live is None:
            self._files.refuse(error or Fenced(task_id=task_id), done)
            return
        frozen = self._finished.get(task_id)
        row = live.row if frozen is None else frozen.row
        line = line_of(row, self._clock(), describe(write.entries) or "recorded a step")
        line.events = entries_out(write.entries)
        line.records = list(write.records)
        if write.ended is not None:
            line.task = write.ended
            # The last line repeats the keys, so that a finished task needs no other line.
            line.key = self._key(live.key) if live.key is not None else None
            line.keys = [self._key(key) for key in live.keys]
            done = partial(self._unload, row, done)
        self._files.write(line, partial(self._after_append, row, done), wipe=write.forget)

    def _key(self, key: Key) -> Idempotency:
        return Idempotency(key[-1], self._tasks.keys[key][1])

    def _after_append(self, row: Row, done: Done, error: Exception | None) -> None:
        """Makes events due to webhooks, once they are on the disk: no receiver may learn of an
        event that a crash could still take back."""
        if error is None:
            self._outbox.grow(row.task_id, row.last_seq, self._clock())
        done(error)

    def _unload(self, row: Row, done: Done, error: Exception | None) -> None:
        """Drops the content of a finished task from memory, once it is on the disk."""
        if error is None:
            frozen = self._finished.get(row.task_id)
            if frozen is not None:
                frozen.task = frozen.log = b""
            self._files.forget(row.task_id)
        done(error)

    def _take(self, live: LiveTask, worker: str, how: str) -> Row:
        return super()._take(live, worker, f"{how} by {worker}, attempt {live.row.attempt + 1}")

    async def claim(
        self, worker: str, agent: str, limit: int, limits: RunLimits = NO_LIMITS
    ) -> list[Row]:
        return await self._commit(super().claim(worker, agent, limit, limits))

    async def seize(self, worker: str, task_id: str, epoch: int) -> Row | None:
        return await self._commit(super().seize(worker, task_id, epoch))

    async def release(self, claim: Claim, *, runnable: bool) -> None:
        await self._commit(super().release(claim, runnable=runnable))

    # Tasks: the caller's side.

    async def add_input(self, scope: Scope, task_id: str, said: Input, question: str | None) -> Row:
        return await self._commit(super().add_input(scope, task_id, said, question))

    async def find_key(self, scope: Scope, key: str) -> tuple[str, bytes] | None:
        return await self._files.observe(super().find_key, scope, key)

    async def ask_cancel(self, scope: Scope, task_id: str) -> Row:
        before = self._tasks.row(scope, task_id)
        row = await self._commit(super().ask_cancel(scope, task_id))
        return row if row is not before else await self.row(scope, task_id)

    async def row(self, scope: Scope, task_id: str) -> Row:
        return await self._files.observe(super().row, scope, task_id)

    async def load(self, scope: Scope, task_id: str) -> tuple[Row, Task]:
        row, task = await self._files.observe(self._load_kept, scope, task_id)
        if task is None:
            (task,) = await self._reader.tasks([task_id])
        if task is None:
            raise TaskNotFound(task_id=task_id)
        return row, task

    async def _load_kept(self, scope: Scope, task_id: str) -> tuple[Row, Task | None]:
        return self._tasks.row(scope, task_id), self._kept(task_id)

    def _kept(self, task_id: str) -> Task | None:
        """Returns the task, unless its file must be read for it."""
        live = self._live.get(task_id)
        if live is not None:
            return live.task()
        frozen = self._finished[task_id]
        return frozen.thaw() if frozen.log else None

    async def read(self, scope: Scope, task_id: str, after: int, limit: int) -> Page:
        page = await self._files.observe(self._read_kept, scope, task_id, after, limit)
        if isinstance(page, Page):
            return page
        entries = await self._reader.log(task_id)
        return Page(page, entries[after : after + limit])

    async def _read_kept(self, scope: Scope, task_id: str, after: int, limit: int) -> Page | Row:
        """Returns the page, or only the row if the file must be read for the events."""
        row = self._tasks.row(scope, task_id)
        live = self._live.get(task_id)
        if live is not None:
            return Page(row, cut(live.log, after, limit))
        frozen = self._finished[task_id]
        if frozen.log:
            return Page(row, cut(frozen.pieces, after, limit))
        return row if frozen.whole else Page(row, [])

    async def find(self, scope: Scope, which: Filter, limit: int) -> Listing:
        places, total, tasks = await self._files.observe(self._find_kept, scope, which, limit)
        missing = [task_id for task_id, task in tasks.items() if task is None]
        if missing:
            tasks.update(zip(missing, await self._reader.tasks(missing), strict=True))
        listed = [(place, task) for place in places if (task := tasks[place[1]]) is not None]
        return Listing([task for _, task in listed], [place for place, _ in listed], total)

    async def _find_kept(
        self, scope: Scope, which: Filter, limit: int
    ) -> tuple[list[Place], int, dict[str, Task | None]]:
        places, total = self._tasks.find(scope, which, limit)
        return places, total, {task_id: self._kept(task_id) for _, task_id in places}

    # Runs.

    async def inputs(self, claim: Claim) -> list[Input]:
        return await self._files.observe(super().inputs, claim)

    async def records(self, claim: Claim) -> list[Record]:
        return await self._files.observe(super().records, claim)

    async def records_of(self, scope: Scope, task_id: str) -> list[Record]:
        row = await self.row(scope, task_id)
        if not row.final:
            return await self._files.observe(super().records_of, scope, task_id)
        return await self._reader.records(task_id)

    # Webhooks. A delivery that is taken need not be written down: there is only this process.

    async def set_hook(self, scope: Scope, hook: Hook) -> None:
        # An event that is not on the disk yet must not count as one from before the webhook.
        await self.row(scope, hook.task_id)
        await super().set_hook(scope, hook)
        await self._save_hooks(hook.task_id)

    async def hooks(self, scope: Scope, task_id: str) -> list[Hook]:
        return await self._files.observe(super().hooks, scope, task_id)

    async def delete_hook(self, scope: Scope, task_id: str, hook_id: str) -> None:
        if self._drop_hook(scope, task_id, hook_id):
            await self._save_hooks(task_id)

    async def _settle(self, id: int, rule: Rule) -> bool:
        task_id = self._outbox.change(id, rule, self._clock())
        if task_id:
            await self._save_hooks(task_id)
        return bool(task_id)

    async def _save_hooks(self, task_id: str) -> None:
        path = self._hook_files.path(task_id)
        await self._files.replace(path, content(self._outbox.of(task_id)))

    # Housekeeping.

    async def list_expired_tasks(self, agent: str, limit: int) -> list[Row]:
        return await self._files.observe(super().list_expired_tasks, agent, limit)

    async def agents_due(self) -> set[str]:
        return await self._files.observe(super().agents_due)

    async def sweep(self, agent: str, events_ms: int, tasks_ms: int, limit: int) -> int:
        shrink, go = await self._files.observe(self._old, agent, events_ms, tasks_ms, limit)
        for task_id in (*shrink, *go):
            self._reader.forget(task_id)
        for task_id in shrink:
            await self._files.drop_log(task_id)
            self._finished[task_id].whole = False
            self._files.forget(task_id)
        for task_id in go:
            await self._files.delete(task_id)
            if self._drop(task_id):
                await self._save_hooks(task_id)
        return len(shrink) + len(go)

    async def count_by_state(self, agent: str) -> dict[str, int]:
        return await self._files.observe(super().count_by_state, agent)

    async def probe(self) -> None:
        await self._files.replace(self._folder / "probe", b"One can write here.\n")

    # The operator's side.

    async def find_in_all_scopes(self, which: AdminFilter, limit: int) -> list[Row]:
        return await self._files.observe(super().find_in_all_scopes, which, limit)

    async def erase(self, task_ids: list[str]) -> int:
        known = [task_id for task_id in task_ids if task_id in self._tasks]
        for task_id in known:
            # The task is removed from memory first, so that later writes of its run are refused
            # and do not create the file again.
            hooked = self._drop(task_id)
            self._reader.forget(task_id)
            await self._files.delete(task_id)
            if hooked:
                await self._save_hooks(task_id)
        return len(known)
