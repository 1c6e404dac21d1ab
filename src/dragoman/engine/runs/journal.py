"""What a run has recorded of its calls, so that no run that starts again makes them twice."""

from __future__ import annotations

import asyncio

from dragoman.agent.remote_calls import Outside, StartedCall, unfinished
from dragoman.core.errors import DragomanError
from dragoman.core.log import Logger
from dragoman.store.interface import Record

from .event_writer import EventWriter

log = Logger("run")

STOP_SECONDS = 5.0
"""Seconds that agents elsewhere have to take a cancel, before our own task ends without them."""


class Journal:
    """The records of one task: its steps, answers and calls of other agents, by key."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self.entries: dict[str, bytes] = {}
        self.loaded = True
        """Whether the records of earlier runs are among them."""
        self.last_seq = 0
        """How long the log was at the last record of earlier runs."""

    def load(self, records: list[Record]) -> None:
        """Takes what earlier runs have recorded."""
        self.entries = {record.key: record.value for record in records}
        self.last_seq = records[-1].seq if records else 0
        self.loaded = True

    def add(self, key: str, value: bytes) -> None:
        """Records the result of a call with the next commit; the first record of a key counts."""
        if key not in self.entries:
            self.entries[key] = value
            writer = self._writer
            writer.records += (Record(key=key, value=value, seq=writer.fold.seq),)

    @property
    def calls_pending(self) -> bool:
        """Whether tasks of other agents may still work for this one."""
        return not self.loaded or bool(unfinished(self.entries))

    async def stop_calls(self, outside: Outside) -> None:
        """Has other agents stop what they still do for this task."""
        writer = self._writer
        try:
            if not self.loaded:
                self.load(await writer.shared.store.records(writer.claim))
        except DragomanError as exc:  # the task is someone else's by now, who will tell them
            log.warning("The calls of a task were not stopped", task=writer.row.task_id, why=exc)
            return
        async with asyncio.TaskGroup() as group:
            for call in unfinished(self.entries):
                group.create_task(_stop_call(outside, call))


async def _stop_call(outside: Outside, call: StartedCall) -> None:
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await outside.stop(call)
    except (DragomanError, TimeoutError) as exc:
        log.warning("A call was not stopped", task=call.task_id, at=call.address, why=exc)
