"""The life cycle of a task: the table of its states, and the fold that builds it from its events.

Rule: everything that decides on states lives in this file. Other modules use `FINAL`, `WAITING`,
`may_follow` and `Fold`, and never spell out a list of states themselves.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from .events import ArtifactChunk, Asked, Note, Noted, Opened, Stamped, StateChanged
from .model import AnyPart, Artifact, Json, Message, State, Status, Task, Text

S = State
_ANY = frozenset(S) - {S.SUBMITTED, S.UNKNOWN}

NEXT: dict[State, frozenset[State]] = {
    S.SUBMITTED: _ANY,
    S.WORKING: _ANY,
    S.INPUT_REQUIRED: _ANY,
    S.AUTH_REQUIRED: _ANY,
    S.COMPLETED: frozenset(),
    S.FAILED: frozenset(),
    S.CANCELED: frozenset(),
    S.REJECTED: frozenset(),
    S.UNKNOWN: _ANY | {S.SUBMITTED},
}
FINAL = frozenset(state for state, after in NEXT.items() if not after)
"""The final states: no event follows them."""

WAITING = frozenset({S.INPUT_REQUIRED, S.AUTH_REQUIRED})
"""The states in which a task waits for its caller."""

_SUBMITTED = S.SUBMITTED

ENDS_STREAM = FINAL | {S.INPUT_REQUIRED}
"""A stream ends after an event that brings the task into one of these states. Auth-required is not
one of them: credentials may arrive out of band while the caller keeps listening (A2A 1.0 §7.6;
a2a-wire D2)."""


def may_follow(before: State, after: State) -> bool:
    """Returns whether a task may go from the state `before` to `after`."""
    return after in NEXT[before]


class _Growing:
    """An artifact under construction: chunks are appended, never copied."""

    __slots__ = ("head", "parts", "texts")

    def __init__(self, head: Artifact) -> None:
        self.head = head
        self.parts: list[AnyPart] = []
        self.texts: list[str] = []
        self.add(head.parts)

    def add(self, parts: Iterable[AnyPart]) -> None:
        for part in parts:
            if type(part) is Text and not (part.metadata or part.filename or part.media_type):
                self.texts.append(part.text)
            else:
                self._join()
                self.parts.append(part)

    def grow(self, chunk: Artifact) -> None:
        head = self.head
        renamed = chunk.name and chunk.name != head.name
        if renamed or chunk.metadata or chunk.description or chunk.extensions:
            self.head = replace(
                head,
                name=chunk.name or head.name,
                description=chunk.description or head.description,
                metadata={**(head.metadata or {}), **(chunk.metadata or {})} or None,
                extensions=tuple(dict.fromkeys((*head.extensions, *chunk.extensions))),
            )
        self.add(chunk.parts)

    def _join(self) -> None:
        if self.texts:
            self.parts.append(Text("".join(self.texts)))
            self.texts.clear()

    def artifact(self) -> Artifact:
        self._join()
        parts = self.parts
        last = parts[-1] if parts else None
        if isinstance(last, Text) and not _dressed(last):
            # The text that was joined for this snapshot may still grow, so it stays open for the
            # next chunk.
            parts.pop()
            self.texts.append(last.text)
            return replace(self.head, parts=(*parts, last))
        return replace(self.head, parts=tuple(parts))


def joined(parts: Iterable[AnyPart]) -> tuple[AnyPart, ...]:
    """Returns the parts, with adjacent plain texts joined into one (DESIGN §4.1)."""
    return _Growing(Artifact(artifact_id="", parts=tuple(parts))).artifact().parts


def _dressed(part: AnyPart) -> bool:
    return bool(part.metadata or part.filename or part.media_type)


def _begun(artifact: Artifact) -> Artifact | _Growing:
    """Returns an artifact that is ready to grow. Most artifacts are one part, sent at once, and
    never grow: they are kept as they are. The adjacent texts of all others are joined."""
    return artifact if len(artifact.parts) == 1 else _Growing(artifact)


def _whole(known: Artifact | _Growing) -> Artifact:
    return known.artifact() if isinstance(known, _Growing) else known


_NEW = Status(S.SUBMITTED)


class Fold:
    """Builds a task from its events, one at a time, at a cost that does not grow with the task."""

    __slots__ = (
        "_artifacts",
        "_history",
        "_metadata",
        "_usage",
        "context_id",
        "seq",
        "status",
        "task_id",
    )

    def __init__(self, task_id: str, context_id: str) -> None:
        self.task_id = task_id
        self.context_id = context_id
        self.seq = 0
        self.status = _NEW
        self._history: list[Message] = []
        self._artifacts: dict[str, Artifact | _Growing] = {}
        self._metadata: dict[str, Json] | None = None
        self._usage: dict[str, Json] | None = None

    @classmethod
    def of(cls, task: Task, seq: int) -> Fold:
        """Makes a fold that goes on from a snapshot taken at `seq`."""
        fold = cls(task.id, task.context_id)
        fold.seq = seq
        fold._take(task)
        return fold

    def _take(self, task: Task) -> None:
        self.status = task.status
        self._history = list(task.history)
        self._artifacts = {each.artifact_id: _begun(each) for each in task.artifacts}
        self._metadata = task.metadata
        self._usage = task.usage

    @property
    def state(self) -> State:
        """Returns the state of the task."""
        return self.status.state

    def add(self, entry: Stamped) -> None:
        """Takes the next event of the log."""
        self.seq = entry.seq
        event = entry.event
        # This runs per event: `match` would cost three times as much, and an `isinstance` that
        # fails costs a search in the metaclass of a Struct.
        if type(event) is StateChanged:
            self._status(event.state, entry.at, event.message, event.heard)
        elif type(event) is ArtifactChunk:
            chunk = event.artifact
            known = self._artifacts.get(chunk.artifact_id) if event.append else None
            if known is None:
                self._artifacts[chunk.artifact_id] = _begun(chunk)
            else:
                if not isinstance(known, _Growing):
                    known = self._artifacts[chunk.artifact_id] = _Growing(known)
                known.grow(chunk)
        elif type(event) is Opened:
            self.status = Status(_SUBMITTED, entry.at)
            self._history.append(event.message)
            self._metadata = event.metadata
        elif type(event) is Asked:
            self._status(event.state, entry.at, event.message, None)
        elif type(event) is Noted:
            self._status(event.state, entry.at, None, None)
            if event.kind is Note.USAGE and isinstance(event.body, dict):
                self._usage = {**(self._usage or {}), **event.body}
        else:
            self._take(event.task)  # type: ignore[union-attr]  # nothing but a snapshot is left

    def _status(
        self, state: State, at: int, message: Message | None, heard: Message | None
    ) -> None:
        """Sets the status. The history holds every message except the one in the current status
        (DESIGN §4.1), so the previous one moves into the history."""
        if self.status.message is not None:
            self._history.append(self.status.message)
        if heard is not None:
            self._history.append(heard)
        self.status = Status(state, at, message)

    def history(self) -> tuple[Message, ...]:
        """Returns all messages of both sides so far; the message of the current status is the
        last."""
        said = self.status.message
        return (*self._history, said) if said is not None else tuple(self._history)

    def artifact(self, artifact_id: str) -> Artifact | None:
        """Returns one artifact as it stands, or None."""
        known = self._artifacts.get(artifact_id)
        return _whole(known) if known is not None else None

    def task(self) -> Task:
        """Returns the task as it stands."""
        return Task(
            id=self.task_id,
            context_id=self.context_id,
            status=self.status,
            artifacts=tuple([_whole(known) for known in self._artifacts.values()]),
            history=tuple(self._history),
            metadata=self._metadata,
            usage=self._usage,
        )


def added_up(log: Iterable[Stamped]) -> Task:
    """Returns the task that a whole log adds up to."""
    entries = iter(log)
    first = next(entries)
    fold = Fold(first.task_id, first.context_id)
    fold.add(first)
    for entry in entries:
        fold.add(entry)
    return fold.task()


def shortened(task: Task, history_length: int | None) -> Task:
    """Returns the task with at most that many of its latest messages; None means all of them."""
    if history_length is None or len(task.history) <= history_length:
        return task
    return replace(task, history=task.history[-history_length:] if history_length else ())
