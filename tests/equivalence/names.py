"""Under which name each operation is asked, by binding: A2A 0.3 §3.5.6 and its likes."""

from __future__ import annotations

import msgspec

from dragoman.core.model import Hook
from dragoman.core.operations import (
    AnyOperation,
    CancelTask,
    DeleteHook,
    GetExtendedCard,
    GetHook,
    GetTask,
    Invoke,
    ListHooks,
    ListTasks,
    SetHook,
    Watch,
)
from dragoman.core.session import Call
from equivalence.callers import BINDINGS, Binding, said

TASK, HOOK = "{id}", "{configId}"
ASKED: dict[str, tuple[AnyOperation, bool]] = {
    "send": (said("hi"), False),
    "stream": (said("hi"), True),
    "get": (GetTask(task_id=TASK), False),
    "list": (ListTasks(), False),
    "cancel": (CancelTask(task_id=TASK), False),
    "follow": (Watch(task_id=TASK), True),
    "set a webhook": (SetHook(hook=Hook(hook_id=HOOK, task_id=TASK, url="https://x")), False),
    "get a webhook": (GetHook(task_id=TASK, hook_id=HOOK), False),
    "list webhooks": (ListHooks(task_id=TASK), False),
    "delete a webhook": (DeleteHook(task_id=TASK, hook_id=HOOK), False),
    "extended card": (GetExtendedCard(), False),
    "a method of the agent's own": (Invoke(method="example.sums/add", params={}), False),
}
NONE = "none"


def name_of(what: str, binding: Binding) -> str:
    """What the wire calls it: a method, a verb and a path, or an rpc."""
    op, stream = ASKED[what]
    frames = list(binding.session().send(Call(1, op, stream)))
    if not frames:
        return NONE
    (frame,) = frames
    if frame.target.startswith("/"):
        service, _, rpc = frame.target[1:].partition("/")
        return rpc if service.endswith("A2AService") else f"{service}/{rpc}"
    if frame.target == "POST":
        return str(msgspec.json.decode(frame.body)["method"])
    path = frame.target.partition("?")[0]
    return path.replace("%7B", "{").replace("%7D", "}")


def names() -> list[str]:
    """The table as lines of Markdown."""
    lines = ["| | " + " | ".join(binding.name for binding in BINDINGS) + " |"]
    lines.append("|---" * (len(BINDINGS) + 1) + "|")
    for what in ASKED:
        found = (name_of(what, binding) for binding in BINDINGS)
        cells = (name if name == NONE else f"`{name}`" for name in found)
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    return lines
