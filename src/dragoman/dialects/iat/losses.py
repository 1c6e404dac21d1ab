"""The declared losses of IAT, for tests and for people: what of a signal does not survive it.

Ids are strings. A notification has no id. There are no webhooks. An opened task is sent as a task,
and the messages that it has received meanwhile are not sent. Tasks, messages and artifacts are
complete only for callers that set `"detail": "full"`, as ours does. The flat form has no further
losses: its times are milliseconds, and the nested form has its seconds beside ours.
"""

from __future__ import annotations

from msgspec.structs import replace

from dragoman.core.events import Opened, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import Fold
from dragoman.core.operations import SendMessage
from dragoman.core.session import Call, Signal, Update

from .wire import id_out


def carried(signal: Signal) -> Signal:
    """Returns what remains of a signal."""
    match signal:
        case Call(id=id, op=op, silent=silent):
            if isinstance(op, SendMessage):
                op = replace(op, hook=None)
            return replace(signal, id=None if silent else id_out(id), op=op)
        case Update(entry=Stamped(event=Opened()) as entry):
            fold = Fold(entry.task_id, entry.context_id)
            fold.add(entry)
            return replace(signal, entry=replace(entry, event=Snapshot(task=fold.task())))
        case Update(entry=Stamped(event=StateChanged() as event) as entry):
            return replace(signal, entry=replace(entry, event=replace(event, heard=None)))
        case _:
            return signal


def carried_by_socket(signal: Signal) -> Signal:
    """Returns what remains of a signal on a WebSocket, where a send that does not wait has no
    stream."""
    told = carried(signal)
    match told:
        case Call(op=SendMessage(wait=wait), silent=silent):
            return replace(told, stream=told.stream and wait and not silent)
        case _:
            return told
