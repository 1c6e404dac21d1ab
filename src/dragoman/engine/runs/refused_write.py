"""Recovers a task after the store has refused a write because of its content.

There are two such refusals. `Unheard`: the task would end although its run has not received one of
its inputs, and a caller whose message was accepted must find it in the history. Any other: the
content cannot be stored at all. Both restore the task from the store and continue from there.
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
    """Queues the events that the task can still record, and resumes its writer."""
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
    # Everything is read before anything changes. Until then the fold says that the task is over, so
    # no event of its code and no input of its caller can come in between.
    inputs = await writer.shared.store.inputs(writer.claim)
    queue = await writer.reload()
    for entry in inputs:
        if entry.n > writer.heard:
            writer.heard = entry.n
            if entry.sealed:  # the task ends, so no run will need these credentials again
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
        writer.closing_message("The output of the agent cannot be stored"), metadata=metadata
    )
    writer.stamp(StateChanged(state=State.FAILED, message=message, metadata=metadata))
