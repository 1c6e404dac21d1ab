"""What A2A 0.1, the community a2a-go and IAT can ask at all."""

from __future__ import annotations

from dragoman.core.dialect import Dialect
from dragoman.core.operations import (
    CancelTask,
    GetHook,
    GetTask,
    Invoke,
    SendMessage,
    SetHook,
    Watch,
)
from dragoman.core.session import Call
from dragoman.core.task_names import fit
from dragoman.dialects.a2a.legacy.v0_1.calls import name_out

NARROW = {"a2a-0.1", "a2a-go"}
IAT_ASKS = (SendMessage, GetTask, CancelTask, Watch, Invoke)


def asks(dialect: Dialect, call: Call) -> bool:
    """Whether a dialect has words for a call, and the task a name that it allows."""
    if dialect.name.startswith("iat"):
        return isinstance(call.op, IAT_ASKS)
    if dialect.name not in NARROW:
        return True
    match call.op:
        case SendMessage() as op:
            return fit(name_out(op))
        case Watch(task_id=task_id):
            # How a stream of a2a-go begins depends on what was asked; losses do not.
            return fit(task_id) and dialect.name != "a2a-go"
        case GetTask(task_id=task_id) | CancelTask(task_id=task_id) | GetHook(task_id=task_id):
            return fit(task_id)
        case SetHook(hook=hook):
            return fit(hook.task_id)
        case Invoke():
            return dialect.name != "a2a-go"
        case _:
            return False
