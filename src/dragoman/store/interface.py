"""Where tasks live: one small interface, each method one transaction, no rules of the protocol.

The log of a task is the truth; its row is what must be found fast. Whoever holds the *claim* of a
task is the only one to append to it, and every append names the claim and the place in the log it
continues, so a process that lost its claim can change nothing (DESIGN §5.3).

`create` and `append` are handed over with a callback instead of being awaited: a run goes on while
its changes are on their way to the disk, and only an acknowledgement waits for the commit. The
callback is called in the event loop, in the order of the hand-overs of one task, with what went
wrong or None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from dragoman.core.events import Ask, Stamped
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import Hook, Json, Message, State, Task

from .bulkheads import Bulkheads
from .sessions import SessionBook

Done = Callable[[Exception | None], None]
"""Called in the event loop after the commit (None), or with what prevented it."""

BACKOFF_LIMIT = 30_000
"""Milliseconds between two attempts at the most."""

WORKER_LOST = "worker_lost"

SILENCE = "nobody"
"""Who answers an approval when its time is over: with a no."""


class Scope(Struct, frozen=True, gc=False):
    """Whose tasks: what belongs to anyone else, or to another agent, does not exist."""

    tenant: str
    principal: str
    agent: str = ""
    """The name of the agent in this store; no agent has an empty one."""


class Claim(Struct, frozen=True, gc=False):
    """The right to write a task. `token` never recurs, `epoch` grows with every claim."""

    task_id: str
    worker: str
    token: str
    epoch: int


class Row(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """All about a task but its content."""

    task_id: str
    context_id: str
    tenant: str
    principal: str
    agent: str
    skill: str
    dialect: str
    state: State
    last_seq: int
    created_at: int
    status_at: int
    worker: str = ""
    token: str = ""
    epoch: int = 0
    attempt: int = 0
    runnable: bool = False
    run_at: int = 0
    inputs: int = 0
    """How many messages came for the run,"""
    heard: int = 0
    """and how many of them are in its log."""
    question: str = ""
    asking: Ask | None = None
    expires_at: int = 0
    cancel: bool = False
    hidden: bool = False
    """Whether no list shows it and nobody counts it: it is kept only to be found by its id or its
    key."""

    @property
    def scope(self) -> Scope:
        """Whose task it is."""
        return Scope(self.tenant, self.principal, self.agent)

    def belongs_to(self, scope: Scope) -> bool:
        """Whether it exists for this caller of this agent."""
        return (
            self.principal == scope.principal
            and self.tenant == scope.tenant
            and self.agent == scope.agent
        )

    @property
    def claim(self) -> Claim:
        """The claim its worker holds."""
        return Claim(self.task_id, self.worker, self.token, self.epoch)

    @property
    def final(self) -> bool:
        """Nothing follows."""
        return self.state in FINAL

    @property
    def resting(self) -> bool:
        """Finished, or waiting for its caller with nothing left unheard."""
        return self.state in FINAL or (self.state in WAITING and self.inputs == self.heard)


class Idempotency(Struct, frozen=True, gc=False):
    """A caller's own key for a send, and a digest of what was sent."""

    key: str
    digest: bytes


class Draft(Struct, frozen=True, gc=False, kw_only=True):
    """A task to be created, with its first events."""

    row: Row
    entries: tuple[Stamped, ...]
    idempotency: Idempotency | None = None
    ended: Task | None = None
    """The whole task, when its first events already end it."""
    hook: Hook | None = None
    """A webhook set with the task; its first events are told to it too."""


class Input(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Something the caller said to a task that exists."""

    message: Message
    question: str = ""
    """The question it answers; empty when none was open."""
    value: Json = None
    """The answer as data, when it came through `Resolve`."""
    by: str = ""
    """Who said it, for the audit log of approvals."""
    key: Idempotency | None = None
    """The caller's own key for it."""
    n: int = 0
    """Its number, given by the store."""
    sealed: str = ""
    """Credentials come sealed with the server's key: then message and value say nothing."""


class Record(Struct, frozen=True, gc=False, kw_only=True):
    """A call of the run that is done and must not be done again."""

    key: str
    value: bytes
    seq: int = 0
    """How long the log was when it was recorded."""


class Write(Struct, frozen=True, gc=False, kw_only=True):
    """What one append changes: events, records, and what the row says after them."""

    claim: Claim
    base: int
    """The length of the log this continues; anything else is refused."""
    entries: tuple[Stamped, ...]
    state: State
    status_at: int
    heard: int
    question: str = ""
    asking: Ask | None = None
    expires_at: int = 0
    records: tuple[Record, ...] = ()
    forget: tuple[int, ...] = ()
    """Inputs whose content must not be kept (credentials)."""
    ended: Task | None = None
    """The whole task, when this ends it: frozen, and the claim is given up."""
    fresh: bool = False
    """An answer was heard: the attempts count from anew."""


class Page(Struct, frozen=True, gc=False):
    """Events of a task and its row, from one snapshot of the store."""

    row: Row
    entries: list[Stamped]


class Filter(Struct, frozen=True, gc=False, kw_only=True):
    """Which tasks of a scope to list."""

    context_id: str = ""
    state: State | None = None
    since: int | None = None
    before: tuple[int, str] | None = None
    """Only tasks behind this (status_at, task_id) in the order of the list."""


class Listing(Struct, frozen=True, gc=False):
    """Tasks in the order of their status time, newest first, and how many there are in all."""

    tasks: list[Task]
    places: list[tuple[int, str]]
    total: int


class HeldTask(Struct, frozen=True, gc=False):
    """What the store knows of a task that a worker holds."""

    claim: Claim
    inputs: int
    cancel: bool


class Delivery(Struct, frozen=True, gc=False, kw_only=True):
    """One event on its way to one webhook."""

    id: int
    hook: Hook
    scope: Scope
    seq: int
    last: int = 0
    """The newest event that waits for this webhook; 0 for a dead letter that is tried again, which
    is told alone."""
    attempt: int = 0
    """Tries so far, this one included when it was claimed."""
    due_at: int = 0
    dead_at: int = 0
    """When it was given up; 0 while it is tried."""
    status: int = 0
    """Of the last answer,"""
    error: str = ""
    """or what prevented one."""


class AdminFilter(Struct, frozen=True, gc=False, kw_only=True):
    """Which tasks of all callers, as only the operator may ask; None: whatever it is."""

    tenant: str | None = None
    principal: str | None = None
    context_id: str | None = None
    task_id: str | None = None
    agent: str | None = None
    ended_before: int | None = None
    """Only finished ones, whose end is older than this millisecond."""


class Unheard(Exception):
    """The task cannot end yet: its caller said something the run has not heard."""


class Existing(Exception):
    """Something was sent with this idempotency key before; it is about this task."""

    def __init__(self, task_id: str, *, same: bool) -> None:
        super().__init__(task_id)
        self.task_id = task_id
        self.same = same


class Store(Protocol):
    """The durable home of tasks; `dragoman.testing.stores.StoreContract` proves one."""

    shared: bool
    """Whether another process may change this store while it is open."""
    sessions: SessionBook
    """Session tokens that were given out; asked only while the store is open."""

    async def open(self) -> None:
        """Gets ready, migrating an older layout; raises `ConfigError` if it cannot be used."""

    async def close(self) -> None:
        """Finishes what was handed over and lets go."""

    # Workers: processes that run tasks.

    async def enlist(self, worker: str, lease_ms: int) -> None:
        """A worker begins; it is alive until its lease runs out or its process ends. A lease is
        measured by a time that nobody can set."""

    async def beat(self, worker: str, lease_ms: int) -> bool:
        """Renews the lease; False if the worker counts as dead."""

    async def held(self, worker: str) -> list[HeldTask]:
        """What the worker holds. Only reads: a look must not look like a change to others."""

    async def retire(self, worker: str) -> None:
        """A worker ends; it holds nothing any more."""

    async def reap(self) -> list[str]:
        """Takes the tasks of dead workers from them: runnable after a pause, or left waiting."""

    # Tasks: writing.

    def create(self, draft: Draft, done: Done) -> None:
        """Opens a task; `Existing` if its idempotency key is taken."""

    def append(self, write: Write, done: Done) -> None:
        """Continues a log; `Fenced` without the claim, `Unheard` if it would end too early."""

    async def claim(self, worker: str, agent: str, limit: int) -> list[Row]:
        """Takes up to `limit` runnable tasks of an agent whose time has come, oldest first."""

    async def seize(self, worker: str, task_id: str, epoch: int) -> Row | None:
        """Takes one unfinished task from whoever holds it, if its epoch is still this one.

        Like `claim` it draws a new token, raises the epoch and counts an attempt."""

    async def release(self, claim: Claim, *, runnable: bool) -> None:
        """Gives a task back without counting the attempt; nothing happens without the claim."""

    # Tasks: the caller's side.

    async def add_input(self, scope: Scope, task_id: str, said: Input, question: str | None) -> Row:
        """Keeps what a caller said, bound to the open question, and makes a task nobody holds
        runnable. `Existing` if its key is taken; `TaskFinished` if the task is over; `Conflict` if
        `question` is given and not open."""

    async def find_key(self, scope: Scope, key: str) -> tuple[str, bytes] | None:
        """The task that a caller opened or spoke to under this idempotency key, and the digest of
        what it said. Keys live as long as their task."""

    async def ask_cancel(self, scope: Scope, task_id: str) -> Row:
        """Marks an unfinished task as to be canceled, due at once if nobody holds it; the row tells
        what it found."""

    async def row(self, scope: Scope, task_id: str) -> Row:
        """The row; `TaskNotFound` if it does not exist for this scope."""

    async def load(self, scope: Scope, task_id: str) -> tuple[Row, Task]:
        """The row and the whole task."""

    async def read(self, scope: Scope, task_id: str, after: int, limit: int) -> Page:
        """The row and the events behind `after`."""

    async def find(self, scope: Scope, which: Filter, limit: int) -> Listing:
        """The tasks that fit, newest status first."""

    # Runs.

    async def inputs(self, claim: Claim) -> list[Input]:
        """All that the caller said, in order."""

    async def records(self, claim: Claim) -> list[Record]:
        """What the run has recorded, in order."""

    # Webhooks. For every event and every hook its task has at that time, `create` and `append` put
    # a delivery into the outbox, in the same transaction.

    async def set_hook(self, scope: Scope, hook: Hook) -> None:
        """Keeps a webhook, in the place of one with its id; `TaskNotFound` without the task.

        A hook set on a task that is finished gets its last event once."""

    async def hooks(self, scope: Scope, task_id: str) -> list[Hook]:
        """The webhooks of a task, oldest first."""

    async def delete_hook(self, scope: Scope, task_id: str, hook_id: str) -> None:
        """Ends a webhook and what is still due to it; fine if there is none."""

    async def due(
        self, agent: str, limit: int, hold_ms: int, bulkheads: Bulkheads | None = None
    ) -> list[Delivery]:
        """Takes deliveries of an agent's tasks whose time has come, oldest first, and hides them
        for `hold_ms` from other takers; those that the bulkheads do not admit are passed over.

        Of each hook only the oldest that is neither delivered nor given up: in order per hook."""

    async def delivered(self, id: int, through: int = 0) -> None:
        """It arrived, and with it all that came behind it up to the seq `through`."""

    async def retry(
        self, id: int, wait_ms: int, status: int, error: str, *, tried: bool = True
    ) -> None:
        """It did not; again after this time. If it was not even tried, no attempt is counted."""

    async def mark_dead(self, id: int, status: int, error: str, through: int = 0) -> None:
        """It never will: a dead letter, which stands for all up to the seq `through`. What comes
        behind it is tried again."""

    async def outbox(self, *, dead: bool, limit: int, agent: str | None = None) -> list[Delivery]:
        """What is on its way, or (dead) what was given up, oldest first; of all agents if none is
        named."""

    async def redeliver(self, id: int) -> bool:
        """Tries a dead letter again, from its first attempt on; False if there is none."""

    # Housekeeping.

    async def expired(self, agent: str, limit: int) -> list[Row]:
        """Waiting tasks of an agent whose time is over."""

    async def sweep(self, agent: str, events_ms: int, tasks_ms: int, limit: int) -> int:
        """Drops events, then whole tasks, of an agent that ended this long ago; tells how many
        tasks shrank or went."""

    async def counts(self, agent: str) -> dict[str, int]:
        """How many tasks of an agent are in each state, and `runnable` ones waiting for a
        worker."""

    async def live(self, scope: Scope) -> int:
        """How many tasks of a caller are not finished."""

    async def probe(self) -> None:
        """Writes something that does not matter; raises what would keep a task from being kept."""

    async def changed(self) -> int:
        """A number that is another one whenever another process has changed something since the
        last look. Several may look: each compares it with what it saw itself."""

    # The operator's side: privacy (A2A 0.3 §10.2) and retention.

    async def owned(self, which: AdminFilter, limit: int) -> list[Row]:
        """The tasks that fit, of whomever, oldest first."""

    async def erase(self, task_ids: list[str]) -> int:
        """Drops tasks whole, running ones too: log, artifacts, inputs, records, webhooks and what
        was on its way to them; tells how many there were."""


def backoff(attempt: int) -> int:
    """Milliseconds to wait before the next attempt: 1, 2, 4... 30 s."""
    return int(min(BACKOFF_LIMIT, 1000 * 2 ** max(0, attempt - 1)))
