"""The row of a task: what a store knows about a task besides its content, and who may see and write
it."""

from __future__ import annotations

from msgspec import Struct

from dragoman.core.events import Ask
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import State

LOW, NORMAL, HIGH = -1, 0, 1
PRIORITIES = {"low": LOW, "normal": NORMAL, "high": HIGH}
"""The priorities of tasks, by the words that callers use."""


class Scope(Struct, frozen=True, gc=False):
    """A caller of an agent. The tasks of other callers and of other agents do not exist for it."""

    tenant: str
    principal: str
    agent: str = ""
    """The name of the agent in this store; no agent has an empty one."""


class Claim(Struct, frozen=True, gc=False):
    """The right to write a task. A token never recurs, and the epoch grows with every claim."""

    task_id: str
    worker: str
    token: str
    epoch: int


class HeldTask(Struct, frozen=True, gc=False):
    """What the store knows about a task that a worker holds."""

    claim: Claim
    inputs: int
    cancel: bool


class Idempotency(Struct, frozen=True, gc=False):
    """The key that a caller chose for a message, and a digest of the message."""

    key: str
    digest: bytes


class Row(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Everything about a task except its content. Stores derive their columns from its fields."""

    task_id: str
    context_id: str
    tenant: str
    principal: str
    agent: str
    skill: str
    dialect: str
    state: State
    last_seq: int
    """The length of the log."""
    created_at: int
    status_at: int
    """The time of the latest state; lists are sorted by it."""
    worker: str = ""
    """The worker that holds the task, or empty if none does."""
    token: str = ""
    epoch: int = 0
    attempt: int = 0
    runnable: bool = False
    """Whether any worker may claim it, from `run_at` on."""
    run_at: int = 0
    inputs: int = 0
    """The number of messages that the caller has sent to the task since it was opened."""
    heard: int = 0
    """The number of those that the run has taken into its log."""
    question: str = ""
    """The name of the open question, or empty if there is none."""
    asking: Ask | None = None
    """The kind of the open question."""
    expires_at: int = 0
    """When the task stops waiting for its caller; 0 if it waits without a limit."""
    cancel: bool = False
    """Whether the caller wants the task to stop."""
    hidden: bool = False
    """Whether the task stays out of lists and counts. It can be found by its id and its key."""
    priority: int = 0
    """Which of the tasks that wait is claimed first: `LOW`, `NORMAL` or `HIGH`."""

    @property
    def scope(self) -> Scope:
        """The caller and the agent that the task belongs to."""
        return Scope(self.tenant, self.principal, self.agent)

    def belongs_to(self, scope: Scope) -> bool:
        """Returns whether the task exists for this caller of this agent."""
        return (
            self.principal == scope.principal
            and self.tenant == scope.tenant
            and self.agent == scope.agent
        )

    @property
    def claim(self) -> Claim:
        """The claim under which its worker writes."""
        return Claim(self.task_id, self.worker, self.token, self.epoch)

    @property
    def final(self) -> bool:
        """Whether the task has ended, so that no event can follow."""
        return self.state in FINAL

    @property
    def resting(self) -> bool:
        """Whether the task has ended, or waits for its caller and has received all inputs."""
        return self.state in FINAL or (self.state in WAITING and self.inputs == self.heard)
