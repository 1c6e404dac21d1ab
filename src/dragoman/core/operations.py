"""The operations of a peer, as data. The answer to an `Operation[R]` is an `R`."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from msgspec import Struct

from .card import Card
from .model import AnyPart, Hook, Json, Message, State, Task

R = TypeVar("R")


class Operation(Struct, Generic[R], frozen=True, gc=False, kw_only=True):
    """An operation whose answer is an `R`."""


class SendMessage(Operation[Task | Message], frozen=True, gc=False):
    """Sends a message to the agent, which opens a task, continues one, or answers with a direct
    reply."""

    message: Message
    wait: bool = True
    """Whether the answer waits until the task has finished or asks a question."""
    history_length: int | None = None
    accepts: tuple[str, ...] = ()
    hook: Hook | None = None
    """A webhook that is set for the task together with the message."""
    metadata: dict[str, Json] | None = None
    context: tuple[Json, ...] = ()
    """Fragments of context that the caller sends along, such as files or earlier results."""
    open_as: str = ""
    """The caller's own name for the task (`core.task_names`). The message continues the task of
    that name, or opens one if there is none."""


class GetTask(Operation[Task], frozen=True, gc=False):
    """Gets a task as it stands."""

    task_id: str
    history_length: int | None = None


class TaskPage(Struct, frozen=True):
    """A page of tasks, the latest status first."""

    tasks: tuple[Task, ...]
    next_token: str
    page_size: int
    total: int


class ListTasks(Operation[TaskPage], frozen=True, gc=False):
    """Lists the caller's tasks that fit all filters."""

    context_id: str = ""
    state: State | None = None
    since: int | None = None
    """Selects tasks whose status has changed at this time, in milliseconds, or later."""
    page_size: int = 50
    page_token: str = ""
    history_length: int | None = None
    with_artifacts: bool = False


class CancelTask(Operation[Task], frozen=True, gc=False):
    """Cancels a task; the answer comes when it has stopped."""

    task_id: str
    metadata: dict[str, Json] | None = None


class Resolve(Operation[Task], frozen=True, gc=False):
    """Answers an open question of a task."""

    task_id: str
    question: str
    value: Json
    context_id: str = ""
    """The conversation of the task, for dialects in which a message is the answer."""
    parts: tuple[AnyPart, ...] = ()
    """The answer as the parts of a message, if it is more than one value."""


class Watch(Operation[Task], frozen=True, gc=False):
    """Follows a task: yields its current state and then every event or, with `Context.cursor`, the
    events after the cursor."""

    task_id: str


class GetExtendedCard(Operation[Card], frozen=True, gc=False):
    """Gets the extended card, which the agent shows to authenticated callers."""


class SetHook(Operation[Hook], frozen=True, gc=False):
    """Sets a webhook of a task, or replaces the one with the same id. We choose an id if it is
    empty."""

    hook: Hook


class GetHook(Operation[Hook], frozen=True, gc=False):
    """Gets one webhook of a task, or the first one if none is named."""

    task_id: str
    hook_id: str = ""


class HookPage(Struct, frozen=True):
    """A page of the webhooks of a task."""

    hooks: tuple[Hook, ...]
    next_token: str = ""


class ListHooks(Operation[HookPage], frozen=True, gc=False):
    """Lists the webhooks of a task."""

    task_id: str
    page_size: int = 0
    """The size of a page; 0 means no limit."""
    page_token: str = ""


class DeleteHook(Operation[None], frozen=True, gc=False):
    """Deletes a webhook. It is no error if there was none."""

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
NAMES: dict[str, type[Operation[Any]]] = {
    "SendMessage": SendMessage,
    "GetTask": GetTask,
    "ListTasks": ListTasks,
    "CancelTask": CancelTask,
    "SubscribeToTask": Watch,
    "CreateTaskPushNotificationConfig": SetHook,
    "GetTaskPushNotificationConfig": GetHook,
    "ListTaskPushNotificationConfigs": ListHooks,
    "DeleteTaskPushNotificationConfig": DeleteHook,
    "GetExtendedAgentCard": GetExtendedCard,
}
"""The operations by their names in A2A 1.0, whatever dialect they are asked in. A send and its
stream have one name."""
METHOD = "method:"
"""What the name of a method beyond the protocol begins with, where it stands among operations."""
_NAME_OF = {kind: name for name, kind in NAMES.items()} | {Resolve: "SendMessage"}


def name_of(op: Operation[Any]) -> str:
    """Returns the name of an operation. An answer to a question is a message, too."""
    return METHOD + op.method if isinstance(op, Invoke) else _NAME_OF[type(op)]
