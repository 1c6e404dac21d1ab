"""Tasks in memory: the rules applied to dicts, all at once and without waiting.

`MemoryStore` is nothing but this; `FileStore` keeps its unfinished tasks here. A finished task is
frozen to bytes in a struct the garbage collector does not follow, so a quarter of a million of
them cost it nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest

from msgspec.structs import replace

from dragoman.core.errors import Conflict, DragomanError, Fenced, TaskNotFound
from dragoman.core.lifecycle import WAITING
from dragoman.core.model import Hook

from .. import rules
from ..clock import Clock as Clock
from ..clock import steady_of
from ..codec import BRIEF, pack
from ..interface import (
    AdminFilter,
    Claim,
    Draft,
    Existing,
    Filter,
    Input,
    Row,
    Scope,
    Unheard,
    Write,
    backoff,
)
from ..outbox import MemoryOutbox, Rule
from .archive import Archive, Place, fits
from .records import FrozenTask, Key, LiveTask


class Ledger:
    """All tasks, and who works on them."""

    def __init__(self, clock: Clock, limit: int) -> None:
        self.clock = clock
        self._steady = steady_of(clock)
        self._latest = 0
        """The latest time of day that was seen."""
        self.archive = Archive(limit)
        self.live: dict[str, LiveTask] = {}
        self.finished = self.archive.tasks
        self.workers: dict[str, int] = {}
        """When each one's lease runs out, by the steady time."""
        self.keys: dict[Key, tuple[str, bytes]] = {}
        self._contexts: dict[str, str | dict[str, None]] = {}
        """The tasks of a context, without one of the same id. A bare id costs the collector
        nothing."""
        self.post = MemoryOutbox()

    def __contains__(self, task_id: object) -> bool:
        """Whether there is such a task."""
        return task_id in self.live or task_id in self.finished

    def row_of(self, task_id: str) -> Row:
        """The row of a task, whosever it is."""
        return (self.live.get(task_id) or self.finished[task_id]).row

    # Writing: what went wrong, or None.

    def create(self, draft: Draft) -> Exception | None:
        """See `Store.create`."""
        row = draft.row
        task_id = row.task_id
        key: Key | None = None
        if draft.idempotency is not None:
            key = (row.agent, row.tenant, row.principal, draft.idempotency.key)
            known = self.keys.get(key)
            if known is not None:
                return Existing(known[0], same=known[1] == draft.idempotency.digest)
        if task_id in self.live or task_id in self.finished:
            return Conflict("A task with this id exists.", task_id=task_id)
        try:
            row = rules.opened(draft)
            log = pack(draft.entries)
            if draft.ended is None:
                self.live[task_id] = LiveTask(row, [log], key)
            elif len(draft.entries) <= BRIEF:
                self.file(FrozenTask(row, key, log))
            else:
                self.file(FrozenTask(row, key, pack([log]), pack(draft.ended)))
        except DragomanError as error:
            return error
        if key is not None and draft.idempotency is not None:
            self.keys[key] = (task_id, draft.idempotency.digest)
        self._enter(row)
        return None

    def append(self, write: Write) -> Exception | None:
        """See `Store.append`."""
        live = self.live.get(write.claim.task_id)
        if live is None:
            return Fenced(task_id=write.claim.task_id)
        try:
            row = rules.appended(live.row, write)
            # Encoded before anything changes: what cannot be written down is refused whole.
            piece = pack(write.entries) if write.entries else b""
            task = pack(write.ended) if write.ended is not None else b""
        except (DragomanError, Unheard) as error:
            return error
        if piece:
            live.log.append(piece)
        if task:
            self.file(FrozenTask(row, live.key, pack(live.log), task, keys=tuple(live.keys)))
            return None
        live.row = row
        if write.records:
            if live.records is None:
                live.records = {}
            for record in write.records:
                live.records.setdefault(record.key, record)
        if write.forget and live.inputs:
            live.inputs = [
                rules.wiped(said) if said.n in write.forget else said for said in live.inputs
            ]
        return None

    def file(self, frozen: FrozenTask) -> None:
        """Puts a finished task where finished tasks are."""
        self.live.pop(frozen.row.task_id, None)
        self.archive.add(frozen)
        if len(self.finished) > self.archive.limit:
            oldest = next(iter(self.finished))
            self.drop(oldest)
            self.post.drop(oldest)

    def drop(self, task_id: str) -> None:
        """Forgets a task altogether."""
        kept = self.live.pop(task_id, None) or self.archive.remove(task_id)
        if kept is None:
            return
        for key in (kept.key, *kept.keys):
            if key is not None:
                self.keys.pop(key, None)
        context_id = kept.row.context_id
        if context_id == task_id:
            return
        context = self._contexts.get(context_id)
        if isinstance(context, dict):
            context.pop(task_id, None)
        if not isinstance(context, dict) or not context:
            self._contexts.pop(context_id, None)

    def adopt(
        self, kept: LiveTask | FrozenTask, digest: bytes | None, digests: tuple[bytes, ...] = ()
    ) -> None:
        """Takes in a task that was read from a disk, and the digests behind its keys."""
        task_id = kept.row.task_id
        row = kept.row
        # Whoever wrote it saw this time, or a later one.
        self._latest = max(self._latest, row.status_at, row.run_at - backoff(row.attempt))
        if isinstance(kept, FrozenTask):
            self.file(kept)
        else:
            self.live[task_id] = kept
        if kept.key is not None and digest is not None:
            self.keys[kept.key] = (task_id, digest)
        for key, said in zip(kept.keys, digests, strict=True):
            self.keys[key] = (task_id, said)
        self._enter(kept.row)

    def _enter(self, row: Row) -> None:
        if row.context_id == row.task_id:
            return
        context = self._contexts.get(row.context_id)
        if context is None:
            self._contexts[row.context_id] = row.task_id
        elif isinstance(context, str):
            self._contexts[row.context_id] = {context: None, row.task_id: None}
        else:
            context[row.task_id] = None

    # Workers.

    def held(self, worker: str) -> list[LiveTask]:
        """What a worker holds."""
        return [live for live in self.live.values() if live.row.worker == worker]

    def enlist(self, worker: str, lease_ms: int) -> None:
        """See `Store.enlist`."""
        self.workers[worker] = self._steady() + lease_ms

    def beat(self, worker: str, lease_ms: int) -> bool:
        """See `Store.beat`."""
        if worker not in self.workers:
            return False
        self.enlist(worker, lease_ms)
        return True

    def retire(self, worker: str) -> list[LiveTask]:
        """See `Store.retire`; tells what it gave up."""
        self.workers.pop(worker, None)
        given = self.held(worker)
        for live in given:
            live.row = rules.released(live.row, self.clock(), runnable=not live.row.resting)
        return given

    def reap(self) -> list[LiveTask]:
        """See `Store.reap`; tells what was taken."""
        now, steady = self.clock(), self._steady()
        self._look_back(now)
        for worker in [name for name, until in self.workers.items() if until <= steady]:
            del self.workers[worker]
        lost = [
            live
            for live in self.live.values()
            if live.row.worker and live.row.worker not in self.workers
        ]
        for live in lost:
            live.row = rules.reaped(live.row, now)
        return lost

    def _look_back(self, now: int) -> None:
        """If the clock was set back, so is what has to wait for it."""
        by, self._latest = self._latest - now, now
        if by > 0:
            for live in self.live.values():
                live.row = rules.set_back(live.row, by)
            self.post.set_back(by, now)

    def claim(self, worker: str, agent: str, limit: int) -> list[LiveTask]:
        """See `Store.claim`."""
        if worker not in self.workers:
            return []
        now = self.clock()
        due = [
            live
            for live in self.live.values()
            if live.row.runnable and live.row.run_at <= now and live.row.agent == agent
        ]
        due.sort(key=lambda live: (live.row.run_at, live.row.task_id))
        for live in due[:limit]:
            live.row = rules.claim(live.row, worker)
        return due[:limit]

    def seize(self, worker: str, task_id: str, epoch: int) -> LiveTask | None:
        """See `Store.seize`."""
        live = self.live.get(task_id)
        if live is None or live.row.epoch != epoch or worker not in self.workers:
            return None
        live.row = rules.claim(live.row, worker)
        return live

    def release(self, claim: Claim, *, runnable: bool) -> LiveTask | None:
        """See `Store.release`."""
        live = self.live.get(claim.task_id)
        if live is None or not rules.held(live.row, claim):
            return None
        live.row = rules.released(live.row, self.clock(), runnable=runnable)
        return live

    # Callers.

    def row(self, scope: Scope, task_id: str) -> Row:
        """See `Store.row`."""
        kept = self.live.get(task_id) or self.finished.get(task_id)
        if kept is not None and kept.row.belongs_to(scope):
            return kept.row
        raise TaskNotFound(task_id=task_id)

    def add_input(
        self, scope: Scope, task_id: str, said: Input, question: str | None
    ) -> tuple[Row, Input]:
        """See `Store.add_input`; also gives what was kept."""
        if said.key is not None and (known := self.find_key(scope, said.key.key)) is not None:
            raise Existing(known[0], same=known[1] == said.key.digest)
        row, answers = rules.add_input(self.row(scope, task_id), self.clock(), question, said.by)
        said = replace(said, question=answers, n=row.inputs)
        live = self.live[task_id]
        if said.key is not None:
            key = (scope.agent, scope.tenant, scope.principal, said.key.key)
            live.keys.append(key)
            self.keys[key] = (task_id, said.key.digest)
        live.row = row
        if live.inputs is None:
            live.inputs = []
        live.inputs.append(said)
        return row, said

    def find_key(self, scope: Scope, key: str) -> tuple[str, bytes] | None:
        """See `Store.find_key`."""
        return self.keys.get((scope.agent, scope.tenant, scope.principal, key))

    def ask_cancel(self, scope: Scope, task_id: str) -> Row:
        """See `Store.ask_cancel`."""
        row = self.row(scope, task_id)
        if row.final or row.cancel:
            return row
        live = self.live[task_id]
        live.row = rules.request_cancel(row, self.clock())
        return live.row

    def find(self, scope: Scope, which: Filter, limit: int) -> tuple[list[Place], int]:
        """The places of the tasks that fit, newest first, and how many fit in all."""
        if which.context_id:
            rows = [row for row in self._in_context(which.context_id) if fits(row, scope, which)]
        else:
            rows = [live.row for live in self.live.values() if fits(live.row, scope, which)]
        places = [(row.status_at, row.task_id) for row in rows]
        total = len(places)
        if which.before is not None:
            places = [place for place in places if place < which.before]
        if not which.context_id:
            more, count = self.archive.find(scope, which, limit)
            places += more
            total += count
        return nlargest(limit, places), total

    def _in_context(self, context_id: str) -> Iterator[Row]:
        first = self.live.get(context_id) or self.finished.get(context_id)
        if first is not None and first.row.context_id == context_id:
            yield first.row
        context = self._contexts.get(context_id, ())
        for task_id in (context,) if isinstance(context, str) else context:
            yield (self.live.get(task_id) or self.finished[task_id]).row

    def _all(self) -> Iterator[Row]:
        for live in self.live.values():
            yield live.row
        for frozen in self.finished.values():
            yield frozen.row

    # Runs.

    def mine(self, claim: Claim) -> LiveTask:
        """The task behind a claim that is in force."""
        live = self.live.get(claim.task_id)
        if live is None or not rules.held(live.row, claim):
            raise Fenced(task_id=claim.task_id)
        return live

    # Webhooks.

    def set_hook(self, scope: Scope, hook: Hook) -> None:
        """See `Store.set_hook`."""
        row = self.row(scope, hook.task_id)
        sent = row.last_seq - 1 if row.final else row.last_seq
        self.post.set(scope, hook, sent=sent, last=row.last_seq, now=self.clock())

    def hooks(self, scope: Scope, task_id: str) -> list[Hook]:
        """See `Store.hooks`."""
        self.row(scope, task_id)
        return [mail.hook for mail in self.post.of(task_id)]

    def delete_hook(self, scope: Scope, task_id: str, hook_id: str) -> bool:
        """See `Store.delete_hook`; tells whether there was one."""
        mine = any(mail.scope == scope for mail in self.post.of(task_id))
        return mine and self.post.drop(task_id, [hook_id])

    def settle(self, id: int, rule: Rule) -> str:
        """Something became of a delivery; the task whose mail changed."""
        return self.post.change(id, rule, self.clock())

    # Housekeeping.

    def expired(self, agent: str, limit: int) -> list[Row]:
        """See `Store.expired`."""
        now = self.clock()
        over = [
            live.row
            for live in self.live.values()
            if 0 < live.row.expires_at <= now
            and live.row.state in WAITING
            and live.row.resting
            and live.row.agent == agent
        ]
        over.sort(key=lambda row: (row.expires_at, row.task_id))
        return over[:limit]

    def old(
        self, agent: str, events_ms: int, tasks_ms: int, limit: int
    ) -> tuple[list[str], list[str]]:
        """Finished tasks of an agent that must lose their log, and those that must go, oldest
        first."""
        now = self.clock()
        return self.archive.old(agent, now - events_ms, now - tasks_ms, limit, self.post)

    def counts(self, agent: str) -> dict[str, int]:
        """See `Store.counts`."""
        counted = self.archive.counts(agent)
        counted["runnable"] = 0
        for live in self.live.values():
            if live.row.agent == agent and not live.row.hidden:
                counted[live.row.state.value] += 1
                counted["runnable"] += live.row.runnable
        return dict(counted)

    def count_live(self, scope: Scope) -> int:
        """See `Store.live`."""
        which = Filter()
        return sum(fits(live.row, scope, which) for live in self.live.values())

    # The operator.

    def owned(self, which: AdminFilter, limit: int) -> list[Row]:
        """See `Store.owned`."""
        rows = self._in_context(which.context_id) if which.context_id else self._all()
        found = [row for row in rows if rules.owned(row, which)]
        return sorted(found, key=lambda row: (row.created_at, row.task_id))[:limit]
