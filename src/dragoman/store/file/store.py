"""`file:///folder` keeps each task as a readable log: one JSON object a line, fsynced.

The rules run on the tasks in memory (`Ledger`), and every change becomes a line of the task's file.
A change is reported done, and shown to anyone, only when its line is on the disk. Of a finished
task only the row stays in memory. One process only: a second one is refused.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TypeVar

from dragoman.core.errors import ConfigError, Fenced, TaskNotFound
from dragoman.core.log import Logger
from dragoman.core.model import Hook, Task

from .. import outbox as post
from .. import rules
from ..acknowledged import resolve
from ..bulkheads import Bulkheads
from ..clock import Clock
from ..codec import cut
from ..interface import (
    AdminFilter,
    Claim,
    Delivery,
    Done,
    Draft,
    Filter,
    HeldTask,
    Idempotency,
    Input,
    Listing,
    Page,
    Record,
    Row,
    Scope,
    Write,
)
from ..memory.ledger import Ledger
from ..memory.records import Key, LiveTask
from ..private_files import make_folder
from ..sessions import SessionBook
from ..worker_locks import same_file
from ..worker_thread import WorkerThread
from .damage import Damaged, Quarantine
from .format import (
    FileLine,
    TaskFile,
    entries_out,
    file_name,
    last_line,
    name_agent,
    only_agent,
    story,
    told,
    when,
    whole,
)
from .outbox import FileOutbox, content
from .reader import Shelf
from .sessions import FileSessions
from .writer import Book, FileWriter

try:
    import fcntl
except ModuleNotFoundError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]

log = Logger("store")

BATCH = 512

R = TypeVar("R")


class FileStore:
    """See `Store`."""

    shared = False

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._tasks = folder / "tasks"
        self._clock = clock
        self._ledger = Ledger(clock, sys.maxsize)
        self._books: dict[str, Book] = {}
        self._shelf = Shelf(self._tasks)
        self._post = FileOutbox(folder / "hooks")
        self._sessions = FileSessions(folder / "sessions", clock, self._replace)
        self.sessions: SessionBook = self._sessions
        self._pending = 0
        self._failures = 0
        self._lock = -1
        self._only_agent = ""
        self._lane: WorkerThread[FileWriter]

    async def open(self) -> None:
        """See `Store`."""
        try:
            await asyncio.to_thread(self._recover)
        except OSError as error:
            self._unlock()
            raise ConfigError(f"{self._folder} cannot be used as a store: {error}.") from error
        lock = self._folder / "lock"
        scribe = FileWriter(self._tasks, lambda: same_file(self._lock, lock))
        self._lane = WorkerThread("file", [scribe], limit=BATCH, patient=True)

    def _recover(self) -> None:
        make_folder(self._folder)
        make_folder(self._tasks)
        self._lock = _only_one(self._folder)
        for spare in self._tasks.glob("*.new"):
            spare.unlink()
        damaged = Quarantine(self._folder / "damaged")
        stories: list[TaskFile] = []
        for path in self._tasks.glob("*.jsonl"):
            try:
                found = story(path)
            except Damaged as error:
                damaged.put(path, error)
                continue
            if found is None:
                # Its creation was never acknowledged.
                path.unlink()
            else:
                stories.append(found)
        self._ledger = Ledger(self._clock, sys.maxsize)
        self._only_agent = only_agent(stories)
        for found in sorted(stories, key=_end):
            self._adopt(found)
        self._post.recover(self._ledger, damaged)
        self._sessions.recover(damaged)

    def _adopt(self, found: TaskFile) -> None:
        name_agent(found, self._only_agent)
        self._ledger.adopt(found.kept, found.digest, found.digests)

    async def close(self) -> None:
        """See `Store`."""
        await self._lane.close()
        self._books.clear()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # Keeping: every change becomes a line.

    def _book(self, task_id: str) -> Book:
        book = self._books.get(task_id)
        if book is None:
            book = self._books[task_id] = Book(task_id, self._tasks / file_name(task_id))
        return book

    def _keep(self, line: FileLine, done: Done, wipe: tuple[int, ...] = ()) -> None:
        book = self._book(line.row.task_id)
        landed = partial(self._landed, book, done)
        self._pending += 1
        if wipe:
            # Credentials must not stay in a file: the lines that hold them are written anew.
            self._lane.submit(FileWriter.rewrite, (book, partial(_wiped, line, wipe)), landed)
        else:
            self._lane.submit(FileWriter.write, (book, line), landed)

    def _landed(self, book: Book, done: Done, error: Exception | None) -> None:
        self._pending -= 1
        if error is not None and book.broken and not book.restored:
            self._restore(book)
        done(error)

    def _restore(self, book: Book) -> None:
        """Back to what the disk says: the change and all that built on it did not happen."""
        book.restored = True
        self._failures += 1
        task_id = book.task_id
        self._books.pop(task_id, None)
        self._ledger.drop(task_id)
        try:
            found = story(book.path)
            if found is not None:
                self._adopt(found)
            else:
                book.path.unlink()
        except FileNotFoundError:
            pass
        except (OSError, Damaged) as error:
            log.error("A task cannot be read until a restart", task=task_id, why=error)

    def _refuse(self, error: Exception, done: Done) -> None:
        # Through the same queue, so that the answers of one task come in their order.
        self._lane.submit(FileWriter.refuse, error, done)

    async def _kept(self, changes: Iterable[tuple[Row, str]]) -> None:
        """Writes a line for each row and waits for all of them."""
        landed = [self._landing(self._line(row, what)) for row, what in changes]
        for future in landed:
            await future

    def _landing(self, line: FileLine) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keep(line, partial(resolve, future))
        return future

    def _line(self, row: Row, what: str) -> FileLine:
        return FileLine(at=when(self._clock()), what=what, row=row)

    async def _look(self, look: Callable[[], R]) -> R:
        """What a look shows, once all that it shows is on the disk."""
        while True:
            failures = self._failures
            seen = look()
            if self._pending:
                await self._lane.ask(FileWriter.wait, None)
            if failures == self._failures:
                return seen

    # Workers.

    async def enlist(self, worker: str, lease_ms: int) -> None:
        """See `Store`."""
        self._ledger.enlist(worker, lease_ms)

    async def beat(self, worker: str, lease_ms: int) -> bool:
        """See `Store`."""
        return self._ledger.beat(worker, lease_ms)

    async def held(self, worker: str) -> list[HeldTask]:
        """See `Store`."""
        rows = await self._look(lambda: [live.row for live in self._ledger.held(worker)])
        return [HeldTask(row.claim, row.inputs, row.cancel) for row in rows]

    async def retire(self, worker: str) -> None:
        """See `Store`."""
        given = self._ledger.retire(worker)
        await self._kept((live.row, "given back: its worker ended") for live in given)

    async def reap(self) -> list[str]:
        """See `Store`."""
        rows = [live.row for live in self._ledger.reap()]
        await self._kept((row, "lost its worker") for row in rows)
        return [row.task_id for row in rows]

    # Tasks: writing.

    def create(self, draft: Draft, done: Done) -> None:
        """See `Store`."""
        error = self._ledger.create(draft)
        if error is not None:
            self._refuse(error, done)
            return
        row = rules.opened(draft)
        line = self._line(row, told(draft.entries))
        line.events = entries_out(draft.entries)
        line.key = draft.idempotency
        line.task = draft.ended
        if draft.ended is not None:
            done = partial(self._shelve, row, done)
        if draft.hook is None:
            self._keep(line, done)
            return
        mail = post.begun(self._ledger.post.number(), draft.hook, row.scope, sent=0, last=0, now=0)
        book, path = self._book(row.task_id), self._post.path(row.task_id)
        self._pending += 1
        self._lane.submit(
            FileWriter.open,
            (book, line, path, content([mail])),
            partial(self._landed, book, partial(self._hooked, mail, row.last_seq, done)),
        )

    def _hooked(self, mail: post.Mail, last: int, done: Done, error: Exception | None) -> None:
        """A task was created with a hook."""
        if error is None:
            self._ledger.post.keep(post.grown(mail, last, self._clock()))
        done(error)

    def _grown(self, row: Row, done: Done, error: Exception | None) -> None:
        """Events are on the disk: only now they may be told."""
        if error is None:
            self._ledger.post.grown(row.task_id, row.last_seq, self._clock())
        done(error)

    def append(self, write: Write, done: Done) -> None:
        """See `Store`."""
        task_id = write.claim.task_id
        live = self._ledger.live.get(task_id)
        error = self._ledger.append(write)
        if error is not None or live is None:
            self._refuse(error or Fenced(task_id=task_id), done)
            return
        frozen = self._ledger.finished.get(task_id)
        row = live.row if frozen is None else frozen.row
        line = self._line(row, told(write.entries) or "recorded a step")
        line.events = entries_out(write.entries)
        line.records = list(write.records)
        if write.ended is not None:
            line.task = write.ended
            line.key = self._idempotency(live.key)
            line.keys = [Idempotency(key[3], self._ledger.keys[key][1]) for key in live.keys]
            done = partial(self._shelve, row, done)
        self._keep(line, partial(self._grown, row, done), wipe=write.forget)

    def _idempotency(self, key: Key | None) -> Idempotency | None:
        return Idempotency(key[3], self._ledger.keys[key][1]) if key is not None else None

    def _shelve(self, row: Row, done: Done, error: Exception | None) -> None:
        """A finished task is on the disk: it need not be in memory too."""
        if error is None:
            frozen = self._ledger.finished.get(row.task_id)
            if frozen is not None:
                frozen.task = frozen.log = b""
            self._books.pop(row.task_id, None)
        done(error)

    async def claim(self, worker: str, agent: str, limit: int) -> list[Row]:
        """See `Store`."""
        rows = [live.row for live in self._ledger.claim(worker, agent, limit)]
        await self._kept((row, f"taken by {worker}, attempt {row.attempt}") for row in rows)
        return rows

    async def seize(self, worker: str, task_id: str, epoch: int) -> Row | None:
        """See `Store`."""
        live = self._ledger.seize(worker, task_id, epoch)
        if live is None:
            return None
        row = live.row
        await self._kept([(row, f"seized by {worker}, attempt {row.attempt}")])
        return row

    async def release(self, claim: Claim, *, runnable: bool) -> None:
        """See `Store`."""
        live = self._ledger.release(claim, runnable=runnable)
        if live is not None:
            await self._kept([(live.row, f"given back by {claim.worker}")])

    # Tasks: the caller's side.

    async def add_input(self, scope: Scope, task_id: str, said: Input, question: str | None) -> Row:
        """See `Store`."""
        row, kept = self._ledger.add_input(scope, task_id, said, question)
        # No word of it in the summary: it may be a secret that is wiped later.
        line = self._line(row, "the caller answered" if kept.question else "the caller said more")
        line.said = kept
        await self._landing(line)
        return row

    async def find_key(self, scope: Scope, key: str) -> tuple[str, bytes] | None:
        """See `Store`."""
        return await self._look(lambda: self._ledger.find_key(scope, key))

    async def ask_cancel(self, scope: Scope, task_id: str) -> Row:
        """See `Store`."""
        before = self._ledger.row(scope, task_id)
        row = self._ledger.ask_cancel(scope, task_id)
        if row is before:
            return await self._look(lambda: self._ledger.row(scope, task_id))
        await self._kept([(row, "asked to cancel")])
        return row

    async def row(self, scope: Scope, task_id: str) -> Row:
        """See `Store`."""
        return await self._look(lambda: self._ledger.row(scope, task_id))

    async def load(self, scope: Scope, task_id: str) -> tuple[Row, Task]:
        """See `Store`."""
        row, task = await self._look(
            lambda: (self._ledger.row(scope, task_id), self._at_hand(task_id))
        )
        if task is None:
            (task,) = await self._shelf.tasks([task_id])
        if task is None:
            raise TaskNotFound(task_id=task_id)
        return row, task

    def _at_hand(self, task_id: str) -> Task | None:
        """The task, if it can be told without reading a file."""
        live = self._ledger.live.get(task_id)
        if live is not None:
            return live.task()
        frozen = self._ledger.finished[task_id]
        return frozen.thawed() if frozen.log else None

    async def read(self, scope: Scope, task_id: str, after: int, limit: int) -> Page:
        """See `Store`."""
        page = await self._look(lambda: self._page(scope, task_id, after, limit))
        if isinstance(page, Page):
            return page
        entries = await self._shelf.log(task_id)
        return Page(page, entries[after : after + limit])

    def _page(self, scope: Scope, task_id: str, after: int, limit: int) -> Page | Row:
        row = self._ledger.row(scope, task_id)
        live: LiveTask | None = self._ledger.live.get(task_id)
        if live is not None:
            return Page(row, cut(live.log, after, limit))
        frozen = self._ledger.finished[task_id]
        if frozen.log:
            return Page(row, cut(frozen.pieces, after, limit))
        return row if frozen.whole else Page(row, [])

    async def find(self, scope: Scope, which: Filter, limit: int) -> Listing:
        """See `Store`."""

        def look() -> tuple[list[tuple[int, str]], int, dict[str, Task | None]]:
            places, total = self._ledger.find(scope, which, limit)
            return places, total, {task_id: self._at_hand(task_id) for _, task_id in places}

        places, total, tasks = await self._look(look)
        missing = [task_id for task_id, task in tasks.items() if task is None]
        if missing:
            tasks.update(zip(missing, await self._shelf.tasks(missing), strict=True))
        listed = [(place, task) for place in places if (task := tasks[place[1]]) is not None]
        return Listing([task for _, task in listed], [place for place, _ in listed], total)

    # Runs.

    async def inputs(self, claim: Claim) -> list[Input]:
        """See `Store`."""
        return await self._look(lambda: list(self._ledger.mine(claim).inputs or ()))

    async def records(self, claim: Claim) -> list[Record]:
        """See `Store`."""
        return await self._look(lambda: list((self._ledger.mine(claim).records or {}).values()))

    # Webhooks.

    async def set_hook(self, scope: Scope, hook: Hook) -> None:
        """See `Store`."""
        # Only what is on the disk counts as told before the hook was there.
        await self._look(lambda: self._ledger.row(scope, hook.task_id))
        self._ledger.set_hook(scope, hook)
        await self._save_hooks(hook.task_id)

    async def hooks(self, scope: Scope, task_id: str) -> list[Hook]:
        """See `Store`."""
        return await self._look(lambda: self._ledger.hooks(scope, task_id))

    async def delete_hook(self, scope: Scope, task_id: str, hook_id: str) -> None:
        """See `Store`."""
        if self._ledger.delete_hook(scope, task_id, hook_id):
            await self._save_hooks(task_id)

    async def due(
        self, agent: str, limit: int, hold_ms: int, bulkheads: Bulkheads | None = None
    ) -> list[Delivery]:
        """See `Store`."""
        # Who holds what need not be written: there is only this process.
        return self._ledger.post.due(agent, limit, self._clock(), hold_ms, bulkheads)

    async def delivered(self, id: int, through: int = 0) -> None:
        """See `Store`."""
        await self._settle(id, post.arrived(through))

    async def retry(
        self, id: int, wait_ms: int, status: int, error: str, *, tried: bool = True
    ) -> None:
        """See `Store`."""
        await self._settle(id, post.later(wait_ms, (status, error), tried=tried))

    async def mark_dead(self, id: int, status: int, error: str, through: int = 0) -> None:
        """See `Store`."""
        await self._settle(id, post.given_up((status, error), through))

    async def outbox(self, *, dead: bool, limit: int, agent: str | None = None) -> list[Delivery]:
        """See `Store`."""
        return self._ledger.post.outbox(dead_ones=dead, limit=limit, agent=agent)

    async def redeliver(self, id: int) -> bool:
        """See `Store`."""
        return await self._settle(id, post.again)

    async def _settle(self, id: int, rule: post.Rule) -> bool:
        task_id = self._ledger.settle(id, rule)
        if task_id:
            await self._save_hooks(task_id)
        return bool(task_id)

    async def _save_hooks(self, task_id: str) -> None:
        await self._post.save(self._lane, task_id, self._ledger.post.of(task_id))

    async def _replace(self, path: Path, data: bytes) -> None:
        await self._lane.ask(FileWriter.replace, (path, data))

    # Housekeeping.

    async def expired(self, agent: str, limit: int) -> list[Row]:
        """See `Store`."""
        return await self._look(lambda: self._ledger.expired(agent, limit))

    async def sweep(self, agent: str, events_ms: int, tasks_ms: int, limit: int) -> int:
        """See `Store`."""
        shrink, go = await self._look(lambda: self._ledger.old(agent, events_ms, tasks_ms, limit))
        for task_id in shrink:
            self._shelf.forget(task_id)
            await self._lane.ask(FileWriter.rewrite, (self._book(task_id), _last_only))
            self._ledger.finished[task_id].whole = False
            self._books.pop(task_id, None)
        for task_id in go:
            self._shelf.forget(task_id)
            await self._lane.ask(FileWriter.delete, self._book(task_id))
            self._ledger.drop(task_id)
            if self._ledger.post.drop(task_id):
                await self._save_hooks(task_id)
            self._books.pop(task_id, None)
        return len(shrink) + len(go)

    async def counts(self, agent: str) -> dict[str, int]:
        """See `Store`."""
        return await self._look(lambda: self._ledger.counts(agent))

    async def live(self, scope: Scope) -> int:
        """See `Store`."""
        return self._ledger.count_live(scope)

    async def probe(self) -> None:
        """See `Store`."""
        await self._replace(self._folder / "probe", b"One can write here.\n")

    async def changed(self) -> int:
        """See `Store`."""
        return 0

    # The operator.

    async def owned(self, which: AdminFilter, limit: int) -> list[Row]:
        """See `Store`."""
        return await self._look(lambda: self._ledger.owned(which, limit))

    async def erase(self, task_ids: list[str]) -> int:
        """See `Store`."""
        known = [task_id for task_id in task_ids if task_id in self._ledger]
        for task_id in known:
            # Out of sight first: what its run still says is then refused, and not a new file.
            self._ledger.drop(task_id)
            self._shelf.forget(task_id)
            await self._lane.ask(FileWriter.delete, self._book(task_id))
            if self._ledger.post.drop(task_id):
                await self._save_hooks(task_id)
            self._books.pop(task_id, None)
        return len(known)


def _wiped(line: FileLine, numbers: tuple[int, ...], path: Path) -> list[FileLine]:
    """All lines, without what some inputs said, and one more."""
    found = whole(path)
    for old in found:
        if old.said is not None and old.said.n in numbers:
            old.said = rules.wiped(old.said)
    return [*found, line]


def _last_only(path: Path) -> list[FileLine]:
    """A finished task without its log: the line that ended it, without its events."""
    last = last_line(path)
    if last is None:
        raise OSError(f"{path} is damaged: its last line")
    last.what, last.events, last.dropped = f"{last.row.state.value}; log dropped", [], True
    return [last]


def _end(found: TaskFile) -> int:
    """Finished tasks are kept in the order of their end."""
    return found.kept.row.status_at


def _only_one(folder: Path) -> int:
    """Holds the folder's lock as long as this process lives."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise ConfigError(
                f"{folder} is in use by another process, and a file store takes only one. "
                "Use sqlite: to share tasks between processes."
            ) from error
    return handle
