"""Group commit: what is ready together is one statement, and a few statements are under way.

Theory. Each task has a line of its changes. A batch takes the first changes of many lines, and a
line waits until its batch has ended, so the changes of one task are stored and reported in their
order, while batches of different tasks overtake each other freely. Changes in one line that
continue each other go together. If the database refuses what went together, its parts are tried
one by one; if it refuses a single change, its row tells why (`rules.append`).

A batch whose connection was lost may have been committed. We look whether its events are in the
log, and repeat only what is not: the length of the log in each condition keeps a repetition from
being stored twice, even if the lost statement is still running. If so, we look once more.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

import asyncpg
from msgspec import Struct

from dragoman.core.errors import Conflict, DragomanError, Fenced, StoreError, StoreUnavailable

from .. import rules
from ..codec import pack, pack_piece, unpack_input
from ..writes import Done, Draft, Existing, Unheard, Write
from . import statements as sql
from .pool import (
    BUSY,
    FIRST_PAUSE,
    HANG,
    LONGEST_PAUSE,
    LOST,
    DatabasePool,
    check_argument,
)
from .write_statement import Continuation, NewTask, WriteStatement, encode_draft

BATCH = 256
"""The maximum number of tasks in one batch."""
UNDER_WAY = 2
"""The number of batches that may be under way. More of them would share a commit among fewer."""
TRIES = 100
"""How often a change is tried that the database refuses without a reason: a webhook was set in the
same moment, for example."""
MAX_UNSETTLED_TASKS = 10_000
"""The number of tasks that are remembered because nobody knows whether their last change is
stored."""

_LANDED = """
SELECT body FROM dragoman.piece WHERE task_id = $1 AND seq = $2
UNION ALL SELECT log FROM dragoman.task WHERE task_id = $1 AND log IS NOT NULL AND $2 = 1"""
_INPUTS = "SELECT n, body FROM dragoman.input WHERE task_id = $1 AND n = ANY($2::bigint[])"

_REFUSALS = (DragomanError, Existing, Unheard)


class Change(Struct, eq=False):
    """A draft or a write, and the callback for its outcome."""

    what: Draft | Write
    done: Done
    alone: bool = False
    """Whether it must not be joined with the changes before it."""
    reported: bool = False
    """Whether its callback was called."""
    tries: int = 0
    """How often it was refused although its row gave no reason."""


class Group(Struct, eq=False):
    """Changes of one task that are stored together."""

    task_id: str
    changes: list[Change]
    encoded: NewTask | Continuation
    lost: bool = False
    """Whether the answer to a statement that stores it was lost."""


class CommitQueue:
    """Takes the changes of tasks, and calls back after their commit."""

    def __init__(
        self,
        pool: DatabasePool,
        now: Callable[[], int],
        tell: Callable[[list[str]], None],
    ) -> None:
        """`tell` gets the ids of tasks that have new events for which another process waits."""
        self._pool, self._now, self._tell = pool, now, tell
        self._loop = asyncio.get_running_loop()
        self._lines: dict[str, deque[Change]] = {}
        self._ready: dict[str, None] = {}
        """The tasks whose line may be taken into a batch, in order."""
        self._under_way: set[asyncio.Task[None]] = set()
        self._waking = False
        self._unsettled: OrderedDict[str, None] = OrderedDict()
        """The tasks for whose last change the database did not answer in time. The engine hands the
        same change over again, and it may be stored already."""
        self._closed = False

    def submit(self, what: Draft | Write, task_id: str, done: Done, *, whole: bool = False) -> None:
        """Hands a change over. A `whole` one is sent at once, because no other change of its task
        follows that could be joined to it."""
        if self._closed:
            self._loop.call_soon(done, StoreUnavailable("The store is closed."))
            return
        line = self._lines.get(task_id)
        if line is None:
            self._lines[task_id] = deque((Change(what, done),))
            self._ready[task_id] = None
        else:
            line.append(Change(what, done))
        if not self._waking and len(self._under_way) < UNDER_WAY:
            self._waking = True
            # Other changes of this iteration of the loop join the batch. A new run takes its first
            # step one iteration later.
            self._loop.call_soon(self._start if whole else self._wait_a_turn)

    async def close(self) -> None:
        """Finishes what was handed over."""
        while self._lines:
            self._start()
            await asyncio.wait(set(self._under_way), return_when=asyncio.FIRST_COMPLETED)
        self._closed = True

    def _wait_a_turn(self) -> None:
        self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._waking = False
        while self._ready and len(self._under_way) < UNDER_WAY:
            tasks = list(self._ready)[:BATCH]
            for task_id in tasks:
                del self._ready[task_id]
            work = self._loop.create_task(self._batch(tasks))
            self._under_way.add(work)
            work.add_done_callback(self._ended)

    def _ended(self, work: asyncio.Task[None]) -> None:
        self._under_way.discard(work)
        if self._ready:
            self._start()

    async def _batch(self, tasks: list[str]) -> None:
        groups: list[Group] = []
        odd: list[Change] = []
        try:
            for task_id in tasks:
                group = await self._next(task_id)
                if isinstance(group, Group):
                    groups.append(group)
                elif group is not None:
                    odd.append(group)
            if groups:
                await self._store(groups)
            for change in odd:
                await self._refuse(change)
        except Exception as error:
            # A callback that is never called would leave its caller waiting forever.
            failure = self._pool.unavailable(error)
            for change in [*odd, *(change for group in groups for change in group.changes)]:
                if not change.reported and change not in self._lines[_task_of(change)]:
                    self._report(change, failure)
        finally:
            for task_id in tasks:
                if self._lines[task_id]:
                    self._ready[task_id] = None
                else:
                    del self._lines[task_id]

    # Lines.

    async def _next(self, task_id: str) -> Group | Change | None:
        """Takes the first changes from a line: those that can be stored together, or one that
        cannot be stored as it is, or None if the first was reported as failed."""
        line = self._lines[task_id]
        first = line.popleft()
        what = first.what
        try:
            if isinstance(what, Draft):
                return self._group(task_id, [first], encode_draft(what))
            if not _well_formed(what):
                return first
            changes, pieces = [first], [_piece(what)]
        except StoreError as error:
            self._report(first, error)
            return None
        while line and not first.alone and not line[0].alone:
            more = line[0].what
            if not isinstance(more, Write) or not _follows(what, more):
                break
            try:
                pieces.append(_piece(more))
            except StoreError:
                break  # it is reported when it is the first
            changes.append(line.popleft())
            what = more
        writes = [change.what for change in changes if isinstance(change.what, Write)]
        return await self._continuation(task_id, changes, writes, pieces)

    async def _continuation(
        self, task_id: str, changes: list[Change], writes: list[Write], pieces: list[bytes]
    ) -> Group | None:
        forget = [n for write in writes for n in write.forget]
        try:
            last = writes[-1].ended
            frozen = pack(last) if last is not None else None
            wiped: list[tuple[int, bytes]] = []
            if forget:
                # An input never changes once it is stored, so it may be read beforehand.
                found = await self._pool.read(lambda db: db.fetch(_INPUTS, task_id, forget))
                wiped = [(n, pack(rules.wipe(unpack_input(body)))) for n, body in found]
        except StoreError as error:
            if len(changes) > 1:
                self._separate(task_id, changes)
            else:
                self._report(changes[0], error)
            return None
        return self._group(task_id, changes, Continuation(writes, pieces, frozen, wiped))

    def _group(self, task_id: str, changes: list[Change], encoded: NewTask | Continuation) -> Group:
        return Group(task_id, changes, encoded, lost=task_id in self._unsettled)

    def _separate(self, task_id: str, changes: Iterable[Change]) -> None:
        """Puts changes back, to be tried one by one."""
        for change in reversed(list(changes)):
            change.alone = True
            self._lines[task_id].appendleft(change)

    def _report(self, change: Change, error: Exception | None) -> None:
        change.reported = True
        try:
            change.done(error)
        except Exception as exc:  # a callback that raises disturbs no other
            context = {"message": "A callback of the store failed", "exception": exc}
            self._loop.call_exception_handler(context)

    # Storing.

    async def _store(self, groups: list[Group]) -> None:
        until = self._loop.time() + self._pool.patience
        pause = FIRST_PAUSE
        while groups:
            batch = WriteStatement(self._now())
            for group in groups:
                if isinstance(group.encoded, NewTask):
                    batch.create(group.encoded)
                else:
                    batch.append(group.encoded)
            text, arguments = batch.statement()
            failure: BaseException
            try:
                async with self._pool.connection(until) as db, asyncio.timeout(HANG):
                    found = await db.fetch(text, *arguments)
                self._pool.outage.end()
                await self._settle(groups, dict(found))
                return
            except LOST as error:
                failure = error
                for group in groups:
                    group.lost = True
                try:
                    check_argument(error)
                    groups = [group for group in groups if not await self._landed(group, until)]
                except StoreError as refusal:
                    await self._fail(groups, refusal)
                    return
            except BUSY as error:
                failure = error
            except StoreUnavailable as error:
                await self._fail(groups, error)
                return
            except asyncpg.PostgresError as error:
                await self._fail(groups, self._pool.refusal_of(error))
                return
            if self._loop.time() + pause > until:
                await self._fail(groups, self._pool.unavailable(failure))
                return
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _settle(self, groups: list[Group], stored: dict[str, bool]) -> None:
        """Reports the changes that were stored, and finds out why others were not."""
        told = [task_id for task_id, watched in stored.items() if watched]
        if told:
            self._tell(told)
        for group in groups:
            if group.task_id in stored:
                self._report_stored(group)
            elif await self._landed_late(group):
                continue
            elif len(group.changes) > 1:
                self._separate(group.task_id, group.changes)
            else:
                await self._refuse(group.changes[0])

    async def _fail(self, groups: list[Group], error: Exception) -> None:
        """Reports an error. Unless the whole database is away, one bad change must not fail the
        others, so each is tried alone."""
        if isinstance(error, StoreUnavailable):
            for group in groups:
                if group.lost:
                    self._unsettled[group.task_id] = None
                for change in group.changes:
                    self._report(change, error)
            while len(self._unsettled) > MAX_UNSETTLED_TASKS:
                self._unsettled.popitem(last=False)
        elif len(groups) > 1:
            for group in groups:
                await self._store([group])
        elif await self._landed_late(groups[0]):
            return
        elif len(groups[0].changes) > 1:
            self._separate(groups[0].task_id, groups[0].changes)
        else:
            self._report(groups[0].changes[0], error)

    async def _landed(self, group: Group, until: float) -> bool:
        """Returns whether the changes of a group are stored, after their answer was lost. If they
        are, reports them."""
        events = group.encoded.first_events
        if events is None:
            return False  # records and inputs may be written twice
        place, mine = events
        patience = until - self._loop.time()
        found = await self._pool.read(lambda db: db.fetch(_LANDED, group.task_id, place), patience)
        if not any(bytes(body) == mine for (body,) in found):
            return False
        self._report_stored(group)
        return True

    def _report_stored(self, group: Group) -> None:
        self._unsettled.pop(group.task_id, None)
        for change in group.changes:
            self._report(change, None)

    async def _landed_late(self, group: Group) -> bool:
        """Does the same for a statement that still ran when we looked first: the repetition then
        waits for it, and is refused because of it."""
        try:
            return group.lost and await self._landed(group, self._loop.time() + self._pool.patience)
        except StoreUnavailable:
            return False

    # Refusals.

    async def _refuse(self, change: Change) -> None:
        """Reports why a change was not stored, or puts it back if there is no reason any more."""
        what = change.what
        try:
            if isinstance(what, Draft):
                reason = await self._why_no_task(what)
            else:
                reason = await self._why_no_append(what)
        except DragomanError as error:
            reason = error
        change.tries += 1
        if reason is None and change.tries > TRIES:
            reason = StoreError("The task changed again and again while this was stored.")
        if reason is not None:
            self._report(change, reason)
            return
        self._separate(_task_of(change), [change])

    async def _why_no_task(self, draft: Draft) -> Exception | None:
        row, key = draft.row, draft.idempotency
        if key is None:
            return Conflict("A task with this id exists.", task_id=row.task_id)
        place = (row.agent, row.tenant, row.principal, key.key)
        found = await self._pool.read(lambda db: db.fetchrow(sql.BY_KEY, *place))
        return None if found is None else Existing(found[0], same=found[1] == key.digest)

    async def _why_no_append(self, write: Write) -> Exception | None:
        task_id = write.claim.task_id
        found = await self._pool.read(lambda db: db.fetchrow(sql.BY_ID, task_id))
        if found is None:
            return Fenced(task_id=task_id)
        try:
            rules.append(sql.row_in(found), write)
        except _REFUSALS as error:
            return error
        return None


def _task_of(change: Change) -> str:
    what = change.what
    return what.row.task_id if isinstance(what, Draft) else what.claim.task_id


def _piece(write: Write) -> bytes:
    return pack_piece(write.entries) if write.entries else b""


def _well_formed(write: Write) -> bool:
    """Returns whether the events continue the log that a write names. The statement does not check
    that."""
    if not write.entries:
        return write.ended is None
    return write.entries[-1].seq == write.base + len(write.entries)


def _follows(before: Write, after: Write) -> bool:
    return (
        before.ended is None
        and after.claim == before.claim
        and after.base == before.base + len(before.entries)
        and _well_formed(after)
    )
