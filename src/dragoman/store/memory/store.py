"""`memory:` keeps tasks as long as the process lives.

The rules are applied to dicts, at once and without waiting: no method here ever suspends. A
finished task is frozen to bytes in a struct that the garbage collector does not follow, so a
quarter of a million of them cost it nothing.

`FileStore` is a memory store that also writes every change to a file. It overrides `_put`, through
which every change of a row passes except those of `create` and `append`.
"""

from __future__ import annotations

from msgspec.structs import replace

from dragoman.core.errors import Conflict, DragomanError, Fenced
from dragoman.core.log import Logger
from dragoman.core.model import Hook, Task
from dragoman.core.outage import Outage

from .. import rules
from ..bulkheads import Bulkheads
from ..clock import Clock, steady_of
from ..codec import BRIEF, cut, pack, pack_piece
from ..interface import AdminFilter, Delivery, Filter, Listing, Page
from ..limits.budgets import BudgetStore
from ..limits.run_limits import NO_LIMITS, RunLimits
from ..link_keys import LinkKeyStore
from ..link_status import LinkStatusStore
from ..outbox import OutboxCalls, Rule
from ..registry import RegistryStore
from ..replicas import ReplicaStore
from ..sessions import SessionStore
from ..task_row import Claim, HeldTask, Row, Scope
from ..transfer.memory import MemoryTransfer
from ..transfer.stored_task import TransferStore
from ..writes import Done, Draft, Existing, Input, Record, Unheard, Write
from .budgets import MemoryBudgets
from .collections import MemoryCollections
from .outbox import MemoryOutbox
from .records import FrozenTask, Key, LiveTask
from .task_table import TaskTable

log = Logger("store")

FINISHED_LIMIT = 250_000
"""The maximum number of finished tasks that are kept; the oldest are dropped first."""


class MemoryStore(OutboxCalls):
    """Implements `Store`. `done` is called before `create` and `append` return."""

    shared = False

    def __init__(
        self, clock: Clock, *, limit: int = FINISHED_LIMIT, kept: MemoryCollections | None = None
    ) -> None:
        self._clock, self._steady, self._limit = clock, steady_of(clock), limit
        self.outage = Outage("The store", clock, log)
        kept = kept or MemoryCollections(clock)
        self.sessions: SessionStore = kept.sessions
        self.registry: RegistryStore = kept.registry
        self.link_keys: LinkKeyStore = kept.link_keys
        self.link_status: LinkStatusStore = kept.link_status
        self.budgets: BudgetStore = MemoryBudgets(
            clock, lambda: self._leases.keys(), lambda scope: self._tasks.count_unfinished(scope)
        )
        self.replicas: ReplicaStore = kept.replicas
        self._transfer = MemoryTransfer(kept)
        self.transfer: TransferStore = self._transfer
        self._clear()

    def _clear(self) -> None:
        self._latest = 0
        """The latest time of day that was seen."""
        self._tasks = TaskTable(self._limit)
        self._live, self._finished = self._tasks.live, self._tasks.finished
        self._leases: dict[str, int] = {}
        """When the lease of each worker runs out, by the steady clock."""
        self._outbox = MemoryOutbox()
        self._transfer.use(self._tasks, self._outbox)

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    # Workers.

    async def enlist(self, worker: str, lease_ms: int) -> None:
        self._leases[worker] = self._steady() + lease_ms

    async def beat(self, worker: str, lease_ms: int) -> bool:
        if worker not in self._leases:
            return False
        await self.enlist(worker, lease_ms)
        return True

    async def list_workers(self) -> list[str]:
        now = self._steady()
        return sorted(name for name, until in self._leases.items() if until > now)

    async def list_held_tasks(self, worker: str) -> list[HeldTask]:
        rows = [live.row for live in self._held_by(worker)]
        return [HeldTask(row.claim, row.inputs, row.cancel) for row in rows]

    def _held_by(self, worker: str) -> list[LiveTask]:
        return [live for live in self._live.values() if live.row.worker == worker]

    async def retire(self, worker: str) -> None:
        self._leases.pop(worker, None)
        for live in self._held_by(worker):
            row = rules.release(live.row, self._clock(), runnable=not live.row.resting)
            self._put(live, row, "given back: its worker ended")

    async def reap(self) -> list[str]:
        now, steady = self._clock(), self._steady()
        self._note_time(now)
        for worker in [name for name, until in self._leases.items() if until <= steady]:
            del self._leases[worker]
        lost = [
            live
            for live in self._live.values()
            if live.row.worker and live.row.worker not in self._leases
        ]
        return [
            self._put(live, rules.reap(live.row, now), "lost its worker").task_id for live in lost
        ]

    def _note_time(self, now: int) -> None:
        """If the clock was set back, moves back everything that waits for a time of day."""
        by, self._latest = self._latest - now, now
        if by > 0:
            self._tasks.set_back(by)
            self._outbox.set_back(by, now)

    # Tasks: writing.

    def create(self, draft: Draft, done: Done) -> None:
        error = self._create(draft)
        if error is None and draft.hook is not None:
            row, now = draft.row, self._clock()
            self._outbox.set(row.scope, draft.hook, sent=0, last=row.last_seq, now=now)
        done(error)

    def _create(self, draft: Draft) -> Exception | None:
        row = draft.row
        task_id = row.task_id
        key: Key | None = None
        if draft.idempotency is not None:
            key = (row.agent, row.tenant, row.principal, draft.idempotency.key)
            known = self._tasks.keys.get(key)
            if known is not None:
                return Existing(known[0], same=known[1] == draft.idempotency.digest)
        if task_id in self._live or task_id in self._finished:
            return Conflict("A task with this id exists.", task_id=task_id)
        try:
            row = rules.open_task(draft)
            log = pack_piece(draft.entries)
            kept: LiveTask | FrozenTask
            if draft.ended is None:
                kept = LiveTask(row, [log], key)
                if draft.records:
                    kept.records = {record.key: record for record in draft.records}
            elif len(draft.entries) <= BRIEF:
                kept = FrozenTask(row, key, log)
            else:
                kept = FrozenTask(row, key, pack([log]), pack(draft.ended))
        except DragomanError as error:
            return error
        digest = draft.idempotency.digest if draft.idempotency is not None else None
        if oldest := self._tasks.add(kept, digest):
            self._drop(oldest)
        return None

    def append(self, write: Write, done: Done) -> None:
        error = self._append(write)
        task_id = write.claim.task_id
        if error is None and task_id in self._outbox.tasks:
            self._outbox.grow(task_id, write.base + len(write.entries), self._clock())
        done(error)

    def _append(self, write: Write) -> Exception | None:
        live = self._live.get(write.claim.task_id)
        if live is None:
            return Fenced(task_id=write.claim.task_id)
        try:
            row = rules.append(live.row, write)
            # It is encoded before anything changes, so that a write that cannot be encoded is
            # refused as a whole.
            piece = pack_piece(write.entries) if write.entries else b""
            task = pack(write.ended) if write.ended is not None else b""
        except (DragomanError, Unheard) as error:
            return error
        if piece:
            live.log.append(piece)
        if task:
            frozen = FrozenTask(row, live.key, pack(live.log), task, keys=tuple(live.keys))
            if oldest := self._tasks.finish(frozen):
                self._drop(oldest)
            return None
        live.row = row
        if write.records:
            if live.records is None:
                live.records = {}
            for record in write.records:
                live.records.setdefault(record.key, record)
        if write.forget and live.inputs:
            live.inputs = [
                rules.wipe(said) if said.n in write.forget else said for said in live.inputs
            ]
        return None

    def _put(self, live: LiveTask, row: Row, what: str, said: Input | None = None) -> Row:
        """Changes the row of a task. `what` describes the change in words and `said` is the
        message that caused it, for a store that writes them down."""
        live.row = row
        if row.runnable:
            self._tasks.queue.add(row)
        return row

    def _drop(self, task_id: str) -> bool:
        """Forgets a task and its webhooks. Returns whether it had webhooks."""
        self._tasks.forget(task_id)
        return self._outbox.drop(task_id)

    async def claim(
        self, worker: str, agent: str, limit: int, limits: RunLimits = NO_LIMITS
    ) -> list[Row]:
        if worker not in self._leases:
            return []
        running = self._tasks.running(agent) if limits else None
        due = self._tasks.queue.pick(agent, limit, limits, self._clock(), running)
        return [self._take(self._live[task_id], worker, "taken") for task_id in due]

    async def seize(self, worker: str, task_id: str, epoch: int) -> Row | None:
        live = self._live.get(task_id)
        if live is None or live.row.epoch != epoch or worker not in self._leases:
            return None
        return self._take(live, worker, "seized")

    def _take(self, live: LiveTask, worker: str, how: str) -> Row:
        return self._put(live, rules.claim(live.row, worker), how)

    async def release(self, claim: Claim, *, runnable: bool) -> None:
        live = self._live.get(claim.task_id)
        if live is not None and rules.holds(live.row, claim):
            row = rules.release(live.row, self._clock(), runnable=runnable)
            self._put(live, row, f"given back by {claim.worker}")

    async def discard(self, claim: Claim) -> None:
        live = self._live.get(claim.task_id)
        if live is not None and rules.holds(live.row, claim):
            await self.erase([claim.task_id])

    # Tasks: the caller's side.

    async def add_input(self, scope: Scope, task_id: str, said: Input, question: str | None) -> Row:
        if said.key is not None and (known := self._known(scope, said.key.key)) is not None:
            raise Existing(known[0], same=known[1] == said.key.digest)
        row, answers = rules.add_input(
            self._tasks.row(scope, task_id), self._clock(), question, said.by
        )
        said = replace(said, question=answers, n=row.inputs)
        live = self._live[task_id]
        if said.key is not None:
            key = (scope.agent, scope.tenant, scope.principal, said.key.key)
            live.keys.append(key)
            self._tasks.keys[key] = (task_id, said.key.digest)
        if live.inputs is None:
            live.inputs = []
        live.inputs.append(said)
        # The message itself is not quoted: it may be a secret that is wiped later.
        what = "the caller answered" if said.question else "the caller said more"
        return self._put(live, row, what, said)

    async def find_key(self, scope: Scope, key: str) -> tuple[str, bytes] | None:
        return self._known(scope, key)

    def _known(self, scope: Scope, key: str) -> tuple[str, bytes] | None:
        return self._tasks.keys.get((scope.agent, scope.tenant, scope.principal, key))

    async def ask_cancel(self, scope: Scope, task_id: str) -> Row:
        row = self._tasks.row(scope, task_id)
        if row.final or row.cancel:
            return row
        row = rules.request_cancel(row, self._clock())
        return self._put(self._live[task_id], row, "asked to cancel")

    async def row(self, scope: Scope, task_id: str) -> Row:
        return self._tasks.row(scope, task_id)

    async def load(self, scope: Scope, task_id: str) -> tuple[Row, Task]:
        return self._tasks.row(scope, task_id), self._task(task_id)

    def _task(self, task_id: str) -> Task:
        live = self._live.get(task_id)
        return live.task() if live else self._finished[task_id].thaw()

    async def read(self, scope: Scope, task_id: str, after: int, limit: int) -> Page:
        row = self._tasks.row(scope, task_id)
        live = self._live.get(task_id)
        pieces = live.log if live is not None else self._finished[task_id].pieces
        return Page(row, cut(pieces, after, limit))

    async def find(self, scope: Scope, which: Filter, limit: int) -> Listing:
        places, total = self._tasks.find(scope, which, limit)
        return Listing([self._task(task_id) for _, task_id in places], places, total)

    # Runs.

    async def inputs(self, claim: Claim) -> list[Input]:
        return list(self._claimed(claim).inputs or ())

    async def records(self, claim: Claim) -> list[Record]:
        return list((self._claimed(claim).records or {}).values())

    async def records_of(self, scope: Scope, task_id: str) -> list[Record]:
        self._tasks.row(scope, task_id)
        live = self._live.get(task_id)
        return list((live.records or {}).values()) if live is not None else []

    def _claimed(self, claim: Claim) -> LiveTask:
        live = self._live.get(claim.task_id)
        if live is None or not rules.holds(live.row, claim):
            raise Fenced(task_id=claim.task_id)
        return live

    # Webhooks.

    async def set_hook(self, scope: Scope, hook: Hook) -> None:
        row = self._tasks.row(scope, hook.task_id)
        sent = row.last_seq - 1 if row.final else row.last_seq
        self._outbox.set(scope, hook, sent=sent, last=row.last_seq, now=self._clock())

    async def hooks(self, scope: Scope, task_id: str) -> list[Hook]:
        self._tasks.row(scope, task_id)
        return [cursor.hook for cursor in self._outbox.of(task_id)]

    async def delete_hook(self, scope: Scope, task_id: str, hook_id: str) -> None:
        self._drop_hook(scope, task_id, hook_id)

    def _drop_hook(self, scope: Scope, task_id: str, hook_id: str) -> bool:
        mine = any(cursor.scope == scope for cursor in self._outbox.of(task_id))
        return mine and self._outbox.drop(task_id, [hook_id])

    async def claim_deliveries(
        self, agent: str, limit: int, hold_ms: int, bulkheads: Bulkheads | None = None
    ) -> list[Delivery]:
        return self._outbox.claim_deliveries(agent, limit, self._clock(), hold_ms, bulkheads)

    async def _settle(self, id: int, rule: Rule) -> bool:
        return bool(self._outbox.change(id, rule, self._clock()))

    async def outbox(self, *, dead: bool, limit: int, agent: str | None = None) -> list[Delivery]:
        return self._outbox.deliveries(dead=dead, limit=limit, agent=agent)

    # Housekeeping.

    async def list_expired_tasks(self, agent: str, limit: int) -> list[Row]:
        return self._tasks.expired(agent, self._clock())[:limit]

    async def agents_due(self) -> set[str]:
        now = self._clock()
        return self._tasks.agents_due(now) | self._outbox.agents_due(now)

    async def sweep(self, agent: str, events_ms: int, tasks_ms: int, limit: int) -> int:
        shrink, go = await self._old(agent, events_ms, tasks_ms, limit)
        for task_id in shrink:
            self._finished[task_id].drop_log()
        for task_id in go:
            self._drop(task_id)
        return len(shrink) + len(go)

    async def _old(
        self, agent: str, events_ms: int, tasks_ms: int, limit: int
    ) -> tuple[list[str], list[str]]:
        """Returns the finished tasks whose logs must be deleted, and those that must be deleted
        altogether, oldest first."""
        now = self._clock()
        return self._tasks.archive.old(agent, now - events_ms, now - tasks_ms, limit, self._outbox)

    async def count_by_state(self, agent: str) -> dict[str, int]:
        return self._tasks.count_by_state(agent)

    async def count_unfinished(self, scope: Scope) -> int:
        return self._tasks.count_unfinished(scope)

    async def count_queued(self, agent: str, limit: int) -> int:
        return self._tasks.count_queued(agent, limit)

    async def probe(self) -> None: ...

    async def data_version(self) -> int:
        return 0

    # The operator's side.

    async def find_in_all_scopes(self, which: AdminFilter, limit: int) -> list[Row]:
        found = [row for row in self._tasks.rows(which.context_id) if rules.matches(row, which)]
        return sorted(found, key=lambda row: (row.created_at, row.task_id))[:limit]

    async def erase(self, task_ids: list[str]) -> int:
        known = [task_id for task_id in task_ids if task_id in self._tasks]
        for task_id in known:
            self._drop(task_id)
        return len(known)

    async def remove_traces(self, seconds: float) -> bool:
        return True
