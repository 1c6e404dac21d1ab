"""Names that callers give the tasks of a backend: to the ids of its author, and back.

An author's system has ids of its own, so a name (`SendMessage.open_as`) never reaches it. The
caller that chose the name is shown an id that says it (`dragoman.core.task_names`).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dragoman.core.events import Snapshot, Stamped
from dragoman.core.model import Hook, Message, Task
from dragoman.core.operations import HookPage, Operation, SendMessage, SetHook
from dragoman.core.peer import Context
from dragoman.core.task_names import name_of, task_id_of


def task_of(op: Operation[Any]) -> str:
    """Returns the id of the task that an operation is about, or an empty text."""
    match op:
        case SendMessage(message=message):
            return message.task_id
        case SetHook(hook=hook):
            return hook.task_id
        case _:
            return getattr(op, "task_id", "")


def addressed(op: Any, task_id: str) -> Any:
    """Returns the same operation on the task with this id."""
    match op:
        case SendMessage(message=message):
            return replace(op, message=replace(message, task_id=task_id), open_as="")
        case SetHook(hook=hook):
            return SetHook(hook=replace(hook, task_id=task_id))
        case _:
            return replace(op, task_id=task_id)


def name_in(said: str) -> str:
    """Returns the name in what a caller says: the name itself, or the id that it was shown."""
    return name_of(said) or said


def shown_as(name: str, ctx: Context) -> str:
    """Returns the id of a named task as its caller sees it."""
    return task_id_of(name, ctx.tenant, ctx.principal)


def renamed(answer: Any, task_id: str) -> Any:
    """Returns the same answer about a task with this id."""
    match answer:
        case Task():
            return replace(answer, id=task_id)
        case Message(task_id=str(said)) if said:
            return replace(answer, task_id=task_id)
        case Hook():
            return replace(answer, task_id=task_id)
        case HookPage(hooks=hooks):
            return replace(answer, hooks=tuple(renamed(hook, task_id) for hook in hooks))
        case Stamped(event=Snapshot(task=task)):
            event = Snapshot(task=replace(task, id=task_id))
            return Stamped(task_id, answer.context_id, answer.seq, answer.at, event)
        case Stamped():
            return Stamped(task_id, answer.context_id, answer.seq, answer.at, answer.event)
        case _:
            return answer
