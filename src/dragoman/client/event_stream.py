"""The stream object that `RemoteAgent.stream` and `watch` return."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Protocol

from dragoman.agent.remote_calls import as_task
from dragoman.core.errors import PeerMisbehaved, PeerRefused
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.core.model import AnyPart, Message, State, Task
from dragoman.core.operations import Streamed
from dragoman.core.peer import Batch, Context

from .resumable_stream import ResumableStream

Begin = Callable[[], Awaitable[tuple[Streamed, Context]]]


class Follows(Protocol):
    """A peer with resumable streams."""

    def follow(self, op: Streamed, ctx: Context) -> ResumableStream:
        """Returns a stream that survives broken connections."""


class Events:
    """Yields every event of a task once and in order, and builds the task from them.

    >>> async for event in agent.stream("Three days in Kyoto"):
    ...     print(event)
    """

    def __init__(self, follows: Follows, begin: Begin) -> None:
        self._follows = follows
        self._begin = begin
        self._follower: ResumableStream | None = None
        self._batches: AsyncGenerator[Batch, None] | None = None
        self._ready: list[Stamped | Message] = []
        self.on_end: Callable[[Task | Message], object] | None = None
        """Called with the result when the stream has ended."""

    @property
    def task(self) -> Task | None:
        """The task, built from the events so far."""
        return self._follower.seen.task() if self._follower is not None else None

    @property
    def reply(self) -> Message | None:
        """The direct reply, if the agent gave one instead of a task."""
        return self._follower.seen.reply if self._follower is not None else None

    @property
    def cursor(self) -> int:
        """The number of the last event, for `watch(task, cursor)`; 0 if events have no numbers."""
        return self._follower.seen.seq if self._follower is not None else 0

    @property
    def connections(self) -> int:
        """The number of connections so far."""
        return self._follower.connections if self._follower is not None else 0

    async def result(self) -> Task:
        """Returns the task when the stream has ended. A direct reply gives a completed task whose
        id is empty, as it does in `send`; `reply` is the message."""
        async for _ in self:
            pass
        found = self.reply or self.task
        if found is None:
            raise PeerMisbehaved("The stream ended without telling anything")
        return as_task(found)

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> Stamped | Message:
        while not self._ready:
            if self._batches is None:
                if self._follower is not None:
                    raise StopAsyncIteration
                self._follower = self._follows.follow(*await self._begin())
                self._batches = self._follower.batches()
            try:
                batch = await anext(self._batches)
            except StopAsyncIteration:
                self._batches = None
                self._end()
                raise
            self._ready = [*reversed(batch.entries)]
        return self._ready.pop()

    def _end(self) -> None:
        found = self.reply or self.task
        if self.on_end is not None and found is not None:
            self.on_end(found)

    async def aclose(self) -> None:
        """Stops reading; the task continues."""
        batches, self._batches = self._batches, None
        if batches is not None:
            await batches.aclose()
            self._end()

    async def __aenter__(self) -> Events:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class TaskEvents(Events):
    """The events of a task that exists already, as `watch` yields them."""

    def __aiter__(self) -> TaskEvents:
        return self

    async def __anext__(self) -> Stamped:
        entry = await super().__anext__()
        if isinstance(entry, Message):
            raise PeerMisbehaved("The agent answered with a message about no task")
        return entry


async def text_of(events: Events) -> AsyncGenerator[str, None]:
    """Yields the text of an answer as it arrives. Raises `PeerRefused` if the task does not
    complete."""
    told: dict[str, int] = {}
    async with events:
        async for entry in events:
            if isinstance(entry, Message):
                yield entry.text
                return
            if not isinstance(entry.event, ArtifactChunk):
                continue
            artifact, text = entry.event.artifact, entry.event.artifact.text
            known = told.get(artifact.artifact_id, 0)
            if not entry.event.append:  # a run that started again sends an artifact anew
                text, length = text[known:], max(known, len(text))
            else:
                length = known + len(text)
            told[artifact.artifact_id] = length
            if text:
                yield text
        task = events.task
    if task is not None:
        result_parts(task, "The task")
        if not any(told.values()) and task.text:
            yield task.text


def result_parts(answer: Task | Message, skill: str) -> Sequence[AnyPart]:
    """Returns the result parts of a finished skill. Raises `PeerRefused` if it did not complete."""
    if isinstance(answer, Message):
        return answer.parts
    if answer.state is not State.COMPLETED:
        said = answer.status.text
        raise PeerRefused(
            f"{skill} is {answer.state.value}" + (f": {said}" if said else ""),
            task_id=answer.id,
            state=answer.state.value,
        )
    return answer.parts
