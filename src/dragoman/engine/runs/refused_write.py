"""How a task goes on when the store refuses a write because of what it says.

There are two such refusals. `Unheard`: the task would end over an input that its run has not heard,
and a caller whose message was accepted must find it in history. Any other: the content cannot be
stored, whoever writes it. Both go back to the task as the store holds it and continue from there.
"""

from __future__ import annotations

from msgspec.structs import replace

from dragoman.core.errors import DragomanError
from dragoman.core.events import StateChanged
from dragoman.core.log import Logger
from dragoman.core.model import Json, State
from dragoman.store.interface import Unheard, Write

from .event_writer import EventWriter, Owner
from .questions import history_message

log = Logger("run")


async def recover(writer: EventWriter, owner: Owner, write: Write, error: Exception) -> None:
    """Queues anew what the task can still say, and lets its writer go on."""
    unheard = isinstance(error, Unheard)
    try:
        await (_hear_then_end(writer, write) if unheard else _end_as_refused(writer, error))
    except DragomanError as exc:
        owner.lose(exc)
        return
    writer.resume()
    if not unheard:
        owner.stop_code()


async def _hear_then_end(writer: EventWriter, write: Write) -> None:
    # Everything is read before anything changes: until then the fold says that the task is over,
    # so nothing that its code or its caller says can come in between.
    inputs = await writer.shared.store.inputs(writer.claim)
    queue = await writer.reload()
    for entry in inputs:
        if entry.n > writer.heard:
            writer.heard = entry.n
            if entry.sealed:  # no run will need it again
                writer.forget += (entry.n,)
            given = writer.shared.open_input(writer.row.task_id, entry)
            heard = history_message(writer, given)
            writer.stamp(StateChanged(state=State.WORKING, heard=heard))
    for stamped in (*write.entries, *queue):
        writer.stamp(stamped.event)
    writer.records = write.records + writer.records
    writer.forget = write.forget + writer.forget


async def _end_as_refused(writer: EventWriter, error: Exception) -> None:
    log.error("The store refused an event", task=writer.row.task_id, error=error)
    await writer.reload()
    writer.records = ()
    reason = error.reason if isinstance(error, DragomanError) else "agent_misbehaved"
    metadata: dict[str, Json] = {"reason": reason}
    message = replace(
        writer.closing_message("What the agent said cannot be kept"), metadata=metadata
    )
    writer.stamp(StateChanged(state=State.FAILED, message=message, metadata=metadata))
