"""Checks what the functions of a backend return, and turns it into answers and events."""

from __future__ import annotations

import time
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from dragoman.core import operations as ops
from dragoman.core.events import AnyEvent, Event, Snapshot, Stamped
from dragoman.core.lifecycle import ENDS_STREAM, shortened
from dragoman.core.model import Message, State, Task


class WrongAnswer(TypeError):
    """A function of a backend returned something that is not allowed. Only the log says what it
    was."""


class AnswerStory:
    """What a stream told so far: gives each piece its place, and refuses what breaks the order.

    A2A 1.0 §3.1.2: one message and nothing else, or a task and then what happens to it.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.over = False
        self._last: Stamped | None = None

    def entry(self, piece: object) -> Stamped | Message:
        """Returns a piece as a stream carries it. A piece is a Task, a Message, an event, or an
        event with its place."""
        if isinstance(piece, Message) and self._last is None:
            self.over = True
            return cast(Message, checked(self.what, piece, (Message,)))
        stamped = self._stamped(piece)
        state = state_in(stamped)
        self.over = state in ENDS_STREAM
        self._last = stamped
        return stamped

    def _stamped(self, piece: object) -> Stamped:
        last = self._last
        if isinstance(piece, Stamped):
            return cast(Stamped, checked(self.what, piece, (Stamped,)))
        if isinstance(piece, Task):
            event: AnyEvent = Snapshot(task=checked(self.what, piece, (Task,)))
            ids = piece.id, piece.context_id
        elif isinstance(piece, Message):
            raise WrongAnswer(
                f"{self.what} gave a Message after a Task; "
                "say it with a state: StateChanged(state=..., message=...)"
            )
        elif not isinstance(piece, Event):
            raise WrongAnswer(
                f"{self.what} gave {named(piece)}; give a Task, then events "
                "(StateChanged, ArtifactChunk), or a single Message"
            )
        elif last is None:
            raise WrongAnswer(f"{self.what} gave {named(piece)} before a Task")
        else:
            event = checked(self.what, piece, (type(piece),))
            ids = last.task_id, last.context_id
        seq = last.seq + 1 if last is not None else 1
        return Stamped(*ids, seq, time.time_ns() // 1_000_000, event)


def checked(what: str, value: object, kinds: tuple[type, ...]) -> Any:
    """Returns the value if it is valid, and raises `WrongAnswer` if not. Structs do not check their
    own fields."""
    if not kinds:
        return None
    kind = next((kind for kind in kinds if isinstance(value, kind)), None)
    if kind is None:
        names = " or ".join(each.__name__ for each in kinds)
        raise WrongAnswer(f"{what} gave {named(value)}; it must give {names}")
    try:
        return msgspec.convert(msgspec.to_builtins(value), kind)
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError) as exc:
        raise WrongAnswer(f"{what} gave a {kind.__name__} that is none: {exc}") from exc


def page(op: ops.Operation[Any], value: object) -> object:
    """Turns a list into the page that it is the whole of."""
    if isinstance(op, ops.ListTasks) and isinstance(value, list | tuple):
        tasks = cast("tuple[Task, ...]", tuple(value))  # checked next
        return ops.TaskPage(tasks=tasks, next_token="", page_size=op.page_size, total=len(value))
    if isinstance(op, ops.ListHooks) and isinstance(value, list | tuple):
        return ops.HookPage(hooks=tuple(value))
    return value


def fitting(op: ops.Operation[Any], value: Any) -> Any:
    """Returns the answer cut to what was asked for, so that the functions need not do it."""
    match op:
        case ops.SendMessage() | ops.GetTask() if isinstance(value, Task):
            value = shortened(value, op.history_length)
        case ops.ListTasks():
            tasks = tuple(shortened(task, op.history_length) for task in value.tasks)
            if not op.with_artifacts:
                tasks = tuple(replace(task, artifacts=()) for task in tasks)
            value = replace(value, tasks=tasks)
    asked = getattr(op, "task_id", "")
    if asked and isinstance(value, Task) and value.id != asked:
        raise WrongAnswer(f"asked for task {asked!r}, the backend gave {value.id!r}")
    return value


def state_in(told: Task | Stamped) -> State | None:
    """Returns the state of a task after this piece, or None if the piece says nothing about it."""
    if isinstance(told, Task):
        return told.state
    event = told.event
    return event.task.state if isinstance(event, Snapshot) else getattr(event, "state", None)


def named(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
