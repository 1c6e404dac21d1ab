"""The interface of a store of tasks. Each method is one transaction, and knows no protocol.

The log of a task is the source of truth; its row holds what must be found fast. Only the worker
that holds the *claim* of a task may append to its log, and every append names the claim and the
length of the log that it continues. A process that has lost its claim can therefore change nothing
(DESIGN §5.3).

`create` and `append` are handed over with a callback instead of being awaited: a run goes on while
its changes are on their way to the disk, and only an acknowledgement waits for the commit. The
callback is called in the event loop, in the order in which the changes of one task were handed
over, with None or with the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from msgspec import Struct

from dragoman.core.events import Stamped
from dragoman.core.model import Hook, State, Task
from dragoman.core.outage import Outage

from .bulkheads import Bulkheads
from .limits.budgets import BudgetStore
from .limits.run_limits import NO_LIMITS, RunLimits
from .link_keys import LinkKeyStore
from .link_status import LinkStatusStore
from .registry import RegistryStore
from .replicas import ReplicaStore
from .sessions import SessionStore
from .task_row import Claim, HeldTask, Idempotency, Row, Scope
from .writes import Done, Draft, Existing, Input, Record, Unheard, Write

if TYPE_CHECKING:
    from .transfer.stored_task import TransferStore

__all__ = [
    "NO_LIMITS",
    "SILENCE",
    "WORKER_LOST",
    "AdminFilter",
    "Claim",
    "Delivery",
    "Done",
    "Draft",
    "Existing",
    "Filter",
    "HeldTask",
    "Idempotency",
    "Input",
    "Listing",
    "Page",
    "Record",
    "Row",
    "RunLimits",
    "Scope",
    "Store",
    "Unheard",
    "WatchedStore",
    "Write",
]

WORKER_LOST = "worker_lost"
"""The reason of a task that failed because too many of its workers died."""

SILENCE = "nobody"
"""The sender of the denial that an approval gets when it expires."""


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
    """Selects the tasks that come after this (status_at, task_id) in the order of the list."""


class Listing(Struct, frozen=True, gc=False):
    """Tasks by the time of their status, newest first, and how many fit in all."""

    tasks: list[Task]
    places: list[tuple[int, str]]
    total: int


class Delivery(Struct, frozen=True, gc=False, kw_only=True):
    """One event on its way to one webhook."""

    id: int
    hook: Hook
    scope: Scope
    seq: int
    last: int = 0
    """The newest event that waits for this webhook, or 0 for a dead letter that is tried again:
    a dead letter is delivered alone."""
    attempt: int = 0
    """The number of tries so far. It includes the one for which the delivery was taken."""
    due_at: int = 0
    dead_at: int = 0
    """When it was given up; 0 while it is tried."""
    status: int = 0
    """The HTTP status of the last answer; 0 if there was none."""
    error: str = ""
    """What prevented an answer at the last try."""


class AdminFilter(Struct, frozen=True, gc=False, kw_only=True):
    """Which tasks of all callers and agents, for the operator. A field that is None does not
    filter."""

    tenant: str | None = None
    principal: str | None = None
    context_id: str | None = None
    task_id: str | None = None
    agent: str | None = None
    dialect: str | None = None
    active_since: int | None = None
    """Only unfinished tasks, and those that ended at this time in milliseconds or later. Stores
    find them without a look at all older tasks."""
    ended_before: int | None = None
    """Only finished tasks that ended before this time in milliseconds."""


class Store(Protocol):
    """Keeps tasks. `dragoman.testing.stores.StoreContract` tests every promise made here."""

    shared: bool
    """Whether another process may change this store while it is open."""
    outage: Outage
    """Whether the store does not work now, in words for the operator."""
    sessions: SessionStore
    """The session tokens that were given out. It may be used only while the store is open."""
    registry: RegistryStore
    """The agents that were registered. It may be used only while the store is open."""
    link_keys: LinkKeyStore
    """The keys of agents that dial in. It may be used only while the store is open."""
    link_status: LinkStatusStore
    """The status of links. It may be used only while the store is open."""
    budgets: BudgetStore
    """What the processes share of the callers' rates and quotas. It may be used only while the
    store is open."""
    replicas: ReplicaStore
    """The reports of the processes that serve from this store. It may be used only while the store
    is open."""
    transfer: TransferStore
    """Exports and imports everything. It may be used only while the store is open."""

    async def open(self) -> None:
        """Opens the store and migrates an older layout. Raises `ConfigError` if it cannot be
        used."""

    async def close(self) -> None:
        """Finishes what was handed over, then closes the store."""

    # Workers: processes that run tasks.

    async def enlist(self, worker: str, lease_ms: int) -> None:
        """Adds a worker, which is alive until its lease runs out or its process ends.

        A lease is measured by a monotonic clock: setting the time of day must neither end it nor
        prolong it."""

    async def beat(self, worker: str, lease_ms: int) -> bool:
        """Renews the lease. Returns False if the worker has been declared dead."""

    async def list_workers(self) -> list[str]:
        """Returns the workers that are alive, by name."""

    async def list_held_tasks(self, worker: str) -> list[HeldTask]:
        """Returns the tasks that the worker holds. This only reads, so no other process sees a
        change."""

    async def retire(self, worker: str) -> None:
        """Removes a worker and gives back the tasks that it holds."""

    async def reap(self) -> list[str]:
        """Takes the tasks of dead workers away from them, and returns their ids. A task that was
        running becomes runnable after a pause; one that waits for its caller goes on waiting."""

    # Tasks: writing.

    def create(self, draft: Draft, done: Done) -> None:
        """Creates a task. The error is `Existing` if its idempotency key is taken."""

    def append(self, write: Write, done: Done) -> None:
        """Continues a log. The error is `Fenced` if the claim is lost, and `Unheard` if the task
        would end before its run has received all inputs."""

    async def claim(
        self, worker: str, agent: str, limit: int, limits: RunLimits = NO_LIMITS
    ) -> list[Row]:
        """Claims up to `limit` runnable tasks of an agent that are due: the oldest of each tenant
        first, and tenants in turns. Tasks for which the limits leave no place stay in the queue;
        they hold in all processes together. The claim may return fewer tasks than there are, but
        returns none only if there is none to claim."""

    async def seize(self, worker: str, task_id: str, epoch: int) -> Row | None:
        """Claims one unfinished task, whether another worker holds it or not, if its epoch is still
        this one. Like `claim` it draws a new token, raises the epoch and counts an attempt."""

    async def release(self, claim: Claim, *, runnable: bool) -> None:
        """Gives a task back; the attempt does not count. Without the claim nothing happens."""

    async def discard(self, claim: Claim) -> None:
        """Drops a task with everything that belongs to it, its idempotency key too, because its
        caller was answered without it. Without the claim nothing happens."""

    # Tasks: the caller's side.

    async def add_input(self, scope: Scope, task_id: str, said: Input, question: str | None) -> Row:
        """Stores a message of the caller, bound to the open question, and makes the task runnable
        if no worker holds it. Raises `Existing` if the key is taken, `TaskFinished` if the task has
        ended, and `Conflict` if `question` is given and is not the open one."""

    async def find_key(self, scope: Scope, key: str) -> tuple[str, bytes] | None:
        """Returns the task that a caller opened or continued under this idempotency key, and the
        digest of the message. Keys live as long as their task."""

    async def ask_cancel(self, scope: Scope, task_id: str) -> Row:
        """Marks an unfinished task for cancellation, and makes it due at once if no worker holds
        it. The row says what became of it."""

    async def row(self, scope: Scope, task_id: str) -> Row:
        """Returns the row. Raises `TaskNotFound` if the task does not exist in this scope."""

    async def load(self, scope: Scope, task_id: str) -> tuple[Row, Task]:
        """Returns the row and the whole task."""

    async def read(self, scope: Scope, task_id: str, after: int, limit: int) -> Page:
        """Returns the row and the events after the seq `after`."""

    async def find(self, scope: Scope, which: Filter, limit: int) -> Listing:
        """Returns the tasks of a scope that match a filter, newest status first."""

    # Runs.

    async def inputs(self, claim: Claim) -> list[Input]:
        """Returns every message that the caller sent to the task, in order."""

    async def records(self, claim: Claim) -> list[Record]:
        """Returns every call that the run has recorded, in order."""

    async def records_of(self, scope: Scope, task_id: str) -> list[Record]:
        """Returns the same for another task of the caller; `TaskNotFound` if it is not in this
        scope. Of a finished task they are kept as long as its log, by a store that outlives its
        process."""

    # Webhooks. For every event and every hook that its task has at that time, `create` and `append`
    # put a delivery into the outbox, in the same transaction.

    async def set_hook(self, scope: Scope, hook: Hook) -> None:
        """Stores a webhook, replacing the one with the same id. Raises `TaskNotFound` if there is
        no such task.

        A webhook that is set on a finished task gets the last event once."""

    async def hooks(self, scope: Scope, task_id: str) -> list[Hook]:
        """Returns the webhooks of a task, oldest first."""

    async def delete_hook(self, scope: Scope, task_id: str, hook_id: str) -> None:
        """Deletes a webhook and everything that is still due to it, if there is one."""

    async def claim_deliveries(
        self, agent: str, limit: int, hold_ms: int, bulkheads: Bulkheads | None = None
    ) -> list[Delivery]:
        """Claims the deliveries of an agent's tasks that are due, oldest first, and hides them from
        others for `hold_ms`. Deliveries that the bulkheads do not admit are skipped.

        Of each webhook only the oldest delivery that is neither done nor given up is claimed, so a
        webhook gets its events in order."""

    async def mark_delivered(self, id: int, through: int = 0) -> None:
        """Records the arrival of the delivery, and of every later one up to the seq `through`."""

    async def retry(
        self, id: int, wait_ms: int, status: int, error: str, *, tried: bool = True
    ) -> None:
        """Records that the delivery failed and is due again after this time. If it was not even
        tried, the attempt does not count."""

    async def mark_dead(self, id: int, status: int, error: str, through: int = 0) -> None:
        """Gives the delivery up: it becomes a dead letter that stands for every one up to the seq
        `through`. Later deliveries are tried as usual."""

    async def outbox(self, *, dead: bool, limit: int, agent: str | None = None) -> list[Delivery]:
        """Returns the deliveries on their way, or the dead letters, oldest first. Without `agent`
        they are those of all agents."""

    async def redeliver(self, id: int) -> bool:
        """Schedules a dead letter again, as a first attempt. Returns False if there is none."""

    # Housekeeping.

    async def list_expired_tasks(self, agent: str, limit: int) -> list[Row]:
        """Returns the tasks of an agent that have waited for their caller for too long."""

    async def agents_due(self) -> set[str]:
        """Returns the names of the agents for which `claim`, `claim_deliveries` or
        `list_expired_tasks` would find something. A process with many agents needs only this one
        query to learn that most of them have nothing to do."""

    async def sweep(self, agent: str, events_ms: int, tasks_ms: int, limit: int) -> int:
        """Drops the logs, and later the whole tasks, of an agent that ended this long ago. Returns
        how many tasks were shortened or dropped."""

    async def count_by_state(self, agent: str) -> dict[str, int]:
        """Returns how many tasks of an agent are in each state, and how many are `runnable`, which
        means that they wait for a worker."""

    async def count_unfinished(self, scope: Scope) -> int:
        """Returns how many tasks of a caller are not finished."""

    async def count_queued(self, agent: str, limit: int) -> int:
        """Returns how many tasks of an agent wait for a worker, and counts up to this number."""

    async def probe(self) -> None:
        """Makes a write without effect, and raises the error that would prevent any write."""

    async def data_version(self) -> int:
        """Returns a number that differs from the one before if another process has changed
        something in between. Several engines call this, so each compares its own numbers."""

    # The operator's side: privacy (A2A 0.3 §10.2) and retention.

    async def find_in_all_scopes(self, which: AdminFilter, limit: int) -> list[Row]:
        """Returns the tasks of all callers and agents that match a filter, oldest first."""

    async def erase(self, task_ids: list[str]) -> int:
        """Drops whole tasks, including running ones: log, artifacts, inputs, records, webhooks and
        what was on its way to them. Returns how many there were."""

    async def remove_traces(self, seconds: float) -> bool:
        """Makes sure that what was erased is not in the files of the store any more, and waits for
        others that read at most so many seconds. Returns whether that succeeded. A database server
        reuses the space in its own time, and only what it reuses is gone from its disk."""


@runtime_checkable
class WatchedStore(Store, Protocol):
    """A store that tells which changes concern other processes, for a bell between them."""

    on_news: Callable[[list[str]], None]
    """Called after a commit with the tasks whose news another process waits for: new events of a
    watched task, and inputs, cancels and claims of a task that another worker holds."""

    async def watch(self, task_ids: list[str]) -> list[str]:
        """Marks tasks whose changes others are to tell, until they end. Returns those that were not
        marked before: they may have changed unnoticed."""
