"""A task of an agent behind a link or in a chat room, as far as we have received it.

Links and rooms have no method to get a task, so the received events are kept here. Every reader of
the task reads this log, from any position, so a broken link does not break a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, Stamped
from dragoman.core.lifecycle import FINAL, WAITING, Fold
from dragoman.core.model import Task
from dragoman.core.peer import Batch
from dragoman.store.clock import wall_clock

AHEAD = 1_000
"""The maximum number of events that wait for their reader. While there are more, the link is not
read."""
_MARK = "@"


def id_of(name: str, session: str) -> str:
    """Returns the id of a task, which contains its name on the link and its session, so that both
    can be read from it after a restart."""
    return f"{name}{_MARK}{session}"


def parsed(task_id: str) -> tuple[str, str]:
    """Returns the name of a task on the link, and its session."""
    name, mark, session = task_id.rpartition(_MARK)
    return (name, session) if mark else (task_id, task_id)


class ReceivedTask:
    """The log of one task."""

    def __init__(self, name: str, session: str, after: int = 0) -> None:
        """`after` is the number of the last event that was read before this log was begun."""
        self.id, self.name, self.session = id_of(name, session), name, session
        """The id of the task, the name of its latest request on the link, and its session."""
        self._after = after
        self._fold = Fold(self.id, session)
        self._entries: list[Stamped] = []
        self._error: DragomanError | None = None
        self._read = 0
        """The number of events that were read."""
        self._readers = 0
        self._changed = asyncio.Event()
        self.pump: asyncio.Task[None] | None = None
        """The background work that receives the answer to the latest request."""

    @property
    def over(self) -> bool:
        """Whether the task has ended."""
        return self._fold.state in FINAL or self._error is not None

    @property
    def _rests(self) -> bool:
        """Whether no event can follow before another request."""
        return self.over or (self._fold.state in WAITING and self.pump is None)

    @property
    def seq(self) -> int:
        """The number of the last event."""
        return self._after + len(self._entries)

    def task(self) -> Task:
        """Returns the current task. Raises the error with which it was lost."""
        if self._error is not None:
            raise self._error
        return self._fold.task()

    def add(self, event: AnyEvent) -> None:
        """Adds events to the log, unless the task has ended."""
        if not self.over:
            entry = Stamped(self.id, self.session, self.seq + 1, wall_clock(), event)
            self._entries.append(entry)
            self._fold.add(entry)
            self._wake()

    def fail(self, error: DragomanError) -> None:
        """Records that no more events will arrive."""
        if not self.over:
            self._error = error
        self._wake()

    def rest(self) -> None:
        """Records that the latest request was answered."""
        self.pump = None
        self._wake()

    async def room(self) -> None:
        """Waits while its reader has many events to read. A task without a reader is not waited
        for, because the link is shared with other tasks."""
        while self._readers and len(self._entries) - self._read > AHEAD:
            changed = self._changed
            await changed.wait()

    async def follow(self, after: int) -> AsyncGenerator[Batch, None]:
        """Yields the events after this one until the task ends or waits."""
        after = max(0, after - self._after)
        self._readers += 1
        try:
            while True:
                changed = self._changed
                entries = self._entries[after:]
                after += len(entries)
                rests = self._rests
                if entries or rests:
                    self._read = max(self._read, after)
                    self._wake()
                    if not entries and self._error is not None:
                        raise self._error
                    last = rests and self._error is None
                    yield Batch(entries, last=last)
                    if last:
                        return
                else:
                    await changed.wait()
        finally:
            self._readers -= 1
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
