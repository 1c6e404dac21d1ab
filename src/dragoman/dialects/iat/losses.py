"""What of a signal does not survive IAT: the declared losses, for tests and for people.

Ids are strings. A call that wants no answer has no name. There are no webhooks. An opened task is
told as the task it is, and what was heard meanwhile is not told. Tasks, messages and artifacts are
whole only for callers that ask with `"detail": "full"`, as ours does. The flat form has no more
losses: its times are milliseconds, the nested form's seconds stand beside ours.
"""

from __future__ import annotations

from msgspec.structs import replace

from dragoman.core.events import Opened, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import Fold
from dragoman.core.operations import SendMessage
from dragoman.core.session import Call, Signal, Update

from .wire import id_out


def carried(signal: Signal) -> Signal:
    """What of a signal arrives."""
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
    """The same of a WebSocket: nobody can hear the stream of a send that is not waited for."""
    told = carried(signal)
    match told:
        case Call(op=SendMessage(wait=wait), silent=silent):
            return replace(told, stream=told.stream and wait and not silent)
        case _:
            return told
