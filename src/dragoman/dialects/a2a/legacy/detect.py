"""Tells callers apart if the method and the headers do not (a2a-wire §15.4).

- 0.1 and 0.3 share tasks/get, tasks/cancel and tasks/resubscribe. Without a version header the task
  decides: a task that was named by its caller was opened in 0.1, and is sent in a form that readers
  of both versions understand. Any other task is sent in 0.3.
- Parts without `kind`, or a call whose id is null, belong to the hybrid, see `fasta2a`.
- In a stream of 0.1, artifacts are numbered in the order of their arrival, so each stream has an
  encoder of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.events import Stamped
from dragoman.core.model import Message, Task
from dragoman.core.operations import CancelTask, GetTask
from dragoman.core.task_names import name_of

from ..v0_3 import V0_3
from ..version import RpcMethod, Version
from . import fasta2a
from .v0_1 import BOTH, PLAIN, V0_1, EventEncoder, new_stream
from .v0_1.convert import task_out

Look = Callable[[Struct, RpcMethod, object], tuple[Version, RpcMethod]]
"""Returns the method of a call, given its params, the method so far, and its id."""

SHARED = ("tasks/get", "tasks/cancel", "tasks/resubscribe")


def shared_method(header: str | None, name: str) -> tuple[Version, RpcMethod] | None:
    """Returns the method of a shared name, for a caller that declares 0.1."""
    if header is None or header.strip() != V0_1.name or name not in SHARED:
        return None
    return new_stream(V0_1, PLAIN), V0_1.methods[name]


def _stream(params: Struct, method: RpcMethod, id: object) -> tuple[Version, RpcMethod]:
    return new_stream(V0_1, PLAIN), method


def _send(params: Struct, method: RpcMethod, id: object) -> tuple[Version, RpcMethod]:
    if not fasta2a.lacks_kinds(params):
        return V0_3, method
    return fasta2a.HYBRID, fasta2a.STREAM if method.stream else fasta2a.SEND


def _task(params: Struct, method: RpcMethod, id: object) -> tuple[Version, RpcMethod]:
    if id is None:
        return fasta2a.HYBRID, fasta2a.TASKS[method.op]
    return V0_3, _EITHER[method.op]


def _watch(params: Struct, method: RpcMethod, id: object) -> tuple[Version, RpcMethod]:
    return replace(V0_3, event_out=_Either().event_out), method


LOOKS: dict[str, Look] = {
    "message/send": _send,
    "message/stream": _send,
    "tasks/get": _task,
    "tasks/cancel": _task,
    "tasks/resubscribe": _watch,
    "tasks/sendSubscribe": _stream,
    "tasks/stream": _stream,
}


class _Either:
    """Encodes one stream in the version in which its task was opened."""

    def __init__(self) -> None:
        self._encoder = EventEncoder(BOTH)

    def event_out(self, entry: Stamped | Message, notes: bool) -> object:
        named = isinstance(entry, Stamped) and name_of(entry.task_id)
        return (self._encoder if named else V0_3).event_out(entry, notes)


def _either_out(task: Task, op: GetTask | CancelTask) -> object:
    if not name_of(task.id):
        return _LATER[type(op)].result_out(task, op)
    if getattr(op, "history_length", None) is None:  # absent means none in 0.1
        task = replace(task, history=())
    return task_out(task, BOTH)


_LATER: dict[type, RpcMethod] = {
    GetTask: V0_3.methods["tasks/get"],
    CancelTask: V0_3.methods["tasks/cancel"],
}
_EITHER: dict[type, RpcMethod] = {
    op: replace(method, result_out=_either_out) for op, method in _LATER.items()
}
