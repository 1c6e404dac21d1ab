"""What can be asked, as data. `Operation[R]` is answered with an `R`."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from .card import Card
from .model import Hook, Json, Message, State, Task

R = TypeVar("R")


class Operation(Struct, Generic[R], frozen=True, gc=False, kw_only=True):
    """A question whose answer is an `R`."""


class SendMessage(Operation[Task | Message], frozen=True, gc=False):
    """Says something to the agent: opens a task, continues one, or gets a direct reply."""

    message: Message
    wait: bool = True
    """Whether the answer waits for the task to finish or to ask back."""
    history_length: int | None = None
    accepts: tuple[str, ...] = ()
    hook: Hook | None = None
    """A webhook for the task, set in the same breath."""
    metadata: dict[str, Json] | None = None
    context: tuple[Json, ...] = ()
    """Fragments of context sent along: files, earlier results, whatever the caller has."""
    open_as: str = ""
    """What the caller calls the task: continues the one it calls so, else opens one (`names`)."""


class GetTask(Operation[Task], frozen=True, gc=False):
    """The task as it stands."""

    task_id: str
    history_length: int | None = None


class TaskPage(Struct, frozen=True):
    """One page of tasks, newest status first."""

    tasks: tuple[Task, ...]
    next_token: str
    page_size: int
    total: int


class ListTasks(Operation[TaskPage], frozen=True, gc=False):
    """The caller's tasks that fit all filters."""

    context_id: str = ""
    state: State | None = None
    since: int | None = None
    """Only tasks whose status is from this millisecond or later."""
    page_size: int = 50
    page_token: str = ""
    history_length: int | None = None
    with_artifacts: bool = False


class CancelTask(Operation[Task], frozen=True, gc=False):
    """Stops a task; answers when it has stopped."""

    task_id: str
    metadata: dict[str, Json] | None = None


class Resolve(Operation[Task], frozen=True, gc=False):
    """Answers an open question of a task."""

    task_id: str
    question: str
    value: Json


class Watch(Operation[Task], frozen=True, gc=False):
    """Follows a task: what it is now, then what happens, or from `Context.cursor` on."""

    task_id: str


class GetExtendedCard(Operation[Card], frozen=True, gc=False):
    """What the agent says about itself to callers it knows."""


class SetHook(Operation[Hook], frozen=True, gc=False):
    """Sets a webhook of a task, or another one under its id; an empty id is given by us."""

    hook: Hook


class GetHook(Operation[Hook], frozen=True, gc=False):
    """One webhook of a task; the first if it is not named."""

    task_id: str
    hook_id: str = ""


class HookPage(Struct, frozen=True):
    """Webhooks of a task."""

    hooks: tuple[Hook, ...]
    next_token: str = ""


class ListHooks(Operation[HookPage], frozen=True, gc=False):
    """All webhooks of a task."""

    task_id: str
    page_size: int = 0
    """0: all of them."""
    page_token: str = ""


class DeleteHook(Operation[None], frozen=True, gc=False):
    """Ends a webhook; fine if there was none."""

    task_id: str
    hook_id: str


class Invoke(Operation[Json], frozen=True, gc=False):
    """Calls a method of the agent's own, beyond the protocol (A2A 0.3 §3.5.5)."""

    method: str
    params: Json = None


Streamed = SendMessage | Watch
AnyOperation = (
    SendMessage
    | GetTask
    | ListTasks
    | CancelTask
    | Resolve
    | Watch
    | GetExtendedCard
    | SetHook
    | GetHook
    | ListHooks
    | DeleteHook
    | Invoke
)
