"""The journal of a run: the results of its calls, so that a run that starts again does not repeat
them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any

from dragoman.agent.remote_calls import Outside, StartedCall, unfinished
from dragoman.agent.run_api import RunApi
from dragoman.core.errors import DragomanError
from dragoman.core.log import Logger
from dragoman.core.peer import Context
from dragoman.store.interface import Record

from .event_writer import EventWriter

log = Logger("run")

STOP_SECONDS = 5.0
"""Seconds that other agents have to confirm a cancel before our own task ends without them."""
STOP_PATIENCE = 3600.0
"""Seconds for which an agent that cannot be reached is asked again to cancel a task."""
LONGEST_PAUSE = 30.0
"""The longest time in seconds between two of these attempts."""


class Journal:
    """The records of one task: its steps, answers and calls of other agents, by key."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self.entries: dict[str, bytes] = {}
        self.loaded = True
        """Whether the records of earlier runs are included."""
        self.last_seq = 0
        """The length of the log at the last record of earlier runs."""

    def load(self, records: list[Record]) -> None:
        """Adds the records of earlier runs."""
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
        """Whether remote tasks may still be running for this task."""
        return not self.loaded or bool(unfinished(self.entries))

    async def stop_calls(
        self, outside: Outside, caller: Context, abandoned: RunApi | None = None
    ) -> None:
        """Cancels the remote tasks that may still be running for this task of this caller.
        `abandoned` is the run if its code has not begun: it may have opened one that it could not
        record."""
        writer = self._writer
        try:
            if not self.loaded:
                self.load(await writer.shared.store.records(writer.claim))
        except DragomanError as exc:  # another worker has the task, and will cancel them
            log.warning(
                "The remote tasks of a task could not be canceled", task=writer.row.task_id, why=exc
            )
            return
        if abandoned is not None:
            await outside.stop_unrecorded(abandoned)
        calls = unfinished(self.entries)
        await asyncio.gather(*(stop_call(outside, call, caller) for call in calls))


def has_begun(task: asyncio.Task[Any] | None) -> bool:
    """Returns whether the code of a run has begun. A cancel that arrives before its first step ends
    it without any of its own code, so nothing in it could cancel the tasks of earlier runs."""
    code = None if task is None else task.get_coro()
    return isinstance(code, Coroutine) and getcoroutinestate(code) != CORO_CREATED


async def stop_call(outside: Outside, call: StartedCall, caller: Context) -> None:
    """Cancels a remote task, at once or when its agent can be reached again."""
    pause = STOP_SECONDS / 20
    try:
        async with asyncio.timeout(STOP_PATIENCE):
            while True:
                try:
                    async with asyncio.timeout(STOP_SECONDS):
                        await outside.stop(call, caller)
                    return
                except (DragomanError, TimeoutError) as exc:
                    if isinstance(exc, DragomanError) and not exc.retry:
                        raise
                    log.info(
                        "A remote task could not be canceled yet",
                        task=call.task_id,
                        at=call.address,
                        why=exc,
                    )
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
    except (DragomanError, TimeoutError) as exc:
        log.warning(
            "A remote task could not be canceled", task=call.task_id, at=call.address, why=exc
        )
