"""The size of a task in characters and bytes: cheap to compute, and accurate enough for limits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable

import msgspec

from dragoman.core.errors import PeerMisbehaved, TooMany
from dragoman.core.events import (
    AnyEvent,
    ArtifactChunk,
    Asked,
    Note,
    Noted,
    Opened,
    Snapshot,
    Stamped,
)
from dragoman.core.model import AnyPart, Artifact, Blob, Data, Json, Link, Message, Task, Text

PART, ITEM = 64, 256
"""The approximate memory, in bytes, that a part, and a message or an artifact, need in addition to
their content."""


def weight(parts: Iterable[AnyPart]) -> int:
    """Returns the size of parts, in characters and bytes."""
    total = 0
    for part in parts:
        if type(part) is Text:
            total += len(part.text)
        elif type(part) is Blob:
            total += len(part.content)
        elif type(part) is Data:
            total += len(msgspec.json.encode(part.value))
        elif type(part) is Link:
            total += len(part.url)
    return total


def task_weight(task: Task) -> int:
    """Returns the size of a task's artifacts and messages, in characters and bytes."""
    items: list[Artifact | Message] = [*task.artifacts, *task.history]
    if task.status.message is not None:
        items.append(task.status.message)
    return sum(weight(item.parts) for item in items)


class TaskGrowth:
    """Measures the growth of a remote task, and enforces a limit.

    Theory. A hostile peer may try to fill our memory, so unlike `weight` this also counts items
    without content: a million empty messages are large. An event costs the same however large the
    task is. Only what is kept counts: an artifact that is replaced gives its room back, and a state
    without a message needs none.
    """

    __slots__ = ("_artifacts", "_count", "_limit", "_rest", "_setting", "_total")

    def __init__(
        self,
        limit: int = sys.maxsize,
        setting: str = "",
        count: Callable[[int], None] | None = None,
    ) -> None:
        """`limit` is in characters and bytes; `setting` is what the error tells people to raise.
        `count` is called with the size of what is kept beside the task."""
        self._limit, self._setting, self._count = limit, setting, count
        self._artifacts: dict[str, int] = {}
        self._rest = self._total = 0

    def add(self, event: AnyEvent) -> None:
        """Counts an event that is about to be kept. Raises `PeerMisbehaved` beyond the limit."""
        if isinstance(event, ArtifactChunk):
            self._chunk(event.artifact, append=event.append)
        elif isinstance(event, Snapshot):
            self.reset(event.task)
            return
        elif isinstance(event, Opened):
            self._rest += size_of(event.message) + _json_size(event.metadata)
        elif isinstance(event, Asked):
            self._rest += size_of(event.message)
        elif isinstance(event, Noted):
            # Of all notes only those about usage become part of the task.
            self._rest += _json_size(event.body) if event.kind is Note.USAGE else 0
        else:
            for message in (event.message, event.heard):
                self._rest += size_of(message) if message is not None else 0
        self._check()

    def reset(self, task: Task) -> None:
        """Starts again from a whole task."""
        self._artifacts, self._total = {}, 0
        messages = [*task.history, *([task.status.message] if task.status.message else ())]
        self._rest = sum(map(size_of, messages))
        self._rest += _json_size(task.metadata) + _json_size(task.usage)
        for artifact in task.artifacts:
            self._chunk(artifact, append=False)
        self._check()

    def hold(self, size: int) -> None:
        """Counts what is kept beside the task; a negative size gives it back."""
        self._rest += size
        self._check()
        if self._count is not None:
            self._count(size)

    def _chunk(self, artifact: Artifact, *, append: bool) -> None:
        before = self._artifacts.get(artifact.artifact_id)
        size = _content(artifact)
        if artifact.name or artifact.description:
            size += len(artifact.name) + len(artifact.description)
        if before is None:
            size += ITEM + len(artifact.artifact_id)
        self._total += size
        if before is not None and append:
            size += before
        elif before is not None:
            self._total -= before
        self._artifacts[artifact.artifact_id] = size

    def _check(self) -> None:
        if self._total + self._rest > self._limit:
            raise PeerMisbehaved(
                f"The agent's task has grown beyond {self._limit} bytes ({self._setting})",
                limit=str(self._limit),
                setting=self._setting,
            )


class CallerSizes:
    """What the unfinished relayed tasks of each caller have written, in one process.

    Theory. A task has a limit of its own, but an agent that streams without end fills one task
    after the other up to it, and a caller may have thousands of them. So all relayed tasks of a
    caller have one budget. It counts every event, because the log has every event: also notes, and
    artifacts that are replaced later.
    """

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, caller: tuple[str, str], size: int) -> int:
        """Adds to the size of a caller's tasks, and returns it; a negative size gives it back."""
        total = self._sizes.get(caller, 0) + size
        if total > 0:
            self._sizes[caller] = total
        else:
            self._sizes.pop(caller, None)
        return total


class SizeShare:
    """The part of one relayed task in the budget of its caller."""

    __slots__ = ("_caller", "_limit", "_setting", "_sizes", "_taken", "exceeded")

    def __init__(
        self, sizes: CallerSizes, caller: tuple[str, str], *, limit: int, setting: str
    ) -> None:
        """`caller` is its tenant and its principal."""
        self._sizes, self._caller = sizes, caller
        self._limit, self._setting = limit, setting
        self._taken = 0
        self.exceeded = False

    def add(self, size: int) -> None:
        """Counts what the task has written, or holds back; a negative size gives it back. Raises
        `TooMany` if the caller has used up its budget."""
        self._taken += size
        if self._sizes.add(self._caller, size) >= self._limit and size >= 0:
            self.exceeded = True
            raise TooMany(
                f"The unfinished tasks of this caller have written more than {self._limit} bytes "
                f"together ({self._setting}); try again when some of them have ended",
                limit=str(self._limit),
                setting=self._setting,
            )

    def release(self) -> None:
        """Gives back everything, at the end of the task."""
        self._sizes.add(self._caller, -self._taken)
        self._taken = 0


def entry_size(entry: Stamped | Message) -> int:
    """Returns the approximate size of an entry of a log, in bytes."""
    if isinstance(entry, Message):
        return size_of(entry)
    event = entry.event
    if isinstance(event, ArtifactChunk):
        return ITEM + _content(event.artifact)
    if isinstance(event, Snapshot):
        return ITEM + task_weight(event.task)
    if isinstance(event, Noted):
        return ITEM + _json_size(event.body)
    if isinstance(event, Opened | Asked):
        return ITEM + size_of(event.message)
    said = [each for each in (event.message, event.heard) if each is not None]
    if not said and not event.metadata:
        return 0  # agents say again and again that they work, which is not written again
    return ITEM + sum(map(size_of, said)) + _json_size(event.metadata)


def size_of(message: Message) -> int:
    """Returns the approximate size of a message in memory, in bytes."""
    references = message.references
    size = _content(message) + ITEM + len(message.message_id)
    return size + _text_size(references) if references else size


def _content(item: Artifact | Message) -> int:
    total = 0
    for part in item.parts:
        total += PART + (len(part.text) if type(part) is Text else weight((part,)))
        if part.metadata or part.filename or part.media_type:
            total += _json_size(part.metadata) + len(part.filename) + len(part.media_type)
    if item.metadata or item.extensions:
        total += _json_size(item.metadata) + _text_size(item.extensions)
    return total


def _text_size(texts: Collection[str]) -> int:
    return sum(map(len, texts)) + PART * len(texts)


def _json_size(value: Json) -> int:
    return len(msgspec.json.encode(value)) if value else 0
