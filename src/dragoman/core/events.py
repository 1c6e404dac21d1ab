"""The events of a task. Each is one entry of the task's log and one frame of a stream."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from .card import Tool
from .model import Artifact, Json, Message, State, Task, Text

MOST_CHARS = 60
"""The number of characters of a text that the `repr` of an event shows."""


def _brief(*shown: object) -> str:
    """Returns what the `repr` of an event shows: words as they are, and the beginning of texts."""
    words = []
    for each in shown:
        parts = each.parts if isinstance(each, Message | Artifact) else None
        if parts is not None:
            text = "".join(part.text for part in parts if isinstance(part, Text))
            others = len(parts) - sum(isinstance(part, Text) for part in parts)
            if text:
                words.append(repr(text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}..."))
            if others:
                words.append(f"{others} other part{'s' if others > 1 else ''}")
        elif each not in ("", None, False):
            words.append(str(each))
    return ", ".join(words)


class Event(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="event"):
    """Base of all events."""


class Opened(Event, frozen=True, gc=False, omit_defaults=True, tag="opened"):
    """The task was opened; this is always seq 1. It holds all that a run needs to start, also after
    a crash."""

    message: Message
    skill: str = ""
    metadata: dict[str, Json] | None = None
    accepts: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    context: tuple[Json, ...] = ()
    trace: str = ""
    tools: tuple[Tool, ...] = ()
    """The tools that the caller runs for the agent; a run that starts again still has them."""
    hops: int = 0
    deadline: float | None = None
    """The deadline of the caller's `Context`. Like `hops`, it also applies to the calls
    that the run makes to other agents."""
    headers: dict[str, str] | None = None
    """The headers of the request that the agent wants to see; a run that starts again still has
    them."""

    def __repr__(self) -> str:
        return f"Opened({_brief(self.skill, self.message)})"


class StateChanged(Event, frozen=True, gc=False, omit_defaults=True, tag="state"):
    """The task has changed to `state`. `message` is what the agent says about it; `heard` is the
    message of the caller that caused the change."""

    state: State
    message: Message | None = None
    heard: Message | None = None
    metadata: dict[str, Json] | None = None

    def __repr__(self) -> str:
        more = "metadata" if self.metadata else ""
        return f"StateChanged({_brief(self.state.value, self.message, more)})"


class Ask(StrEnum):
    """The kinds of questions that a run asks its caller."""

    INPUT = "input"
    APPROVAL = "approval"
    CREDENTIALS = "credentials"
    TOOL = "tool"


class Asked(Event, frozen=True, gc=False, omit_defaults=True, tag="asked"):
    """The run asks its caller something and waits. `question` names it; `Resolve` or a message
    answers it."""

    question: str
    """The name of the question, which `Resolve` repeats."""
    kind: Ask
    message: Message
    """The question in words, for callers that know no kinds."""
    body: Json = None
    """What the answer is about: details, arguments of a tool, or security schemes."""

    @property
    def state(self) -> State:
        """Returns auth-required for a question about credentials, input-required for all others."""
        return State.AUTH_REQUIRED if self.kind is Ask.CREDENTIALS else State.INPUT_REQUIRED

    def __repr__(self) -> str:
        return f"Asked({_brief(self.kind.value, self.message)})"


class ArtifactChunk(Event, frozen=True, gc=False, omit_defaults=True, tag="chunk"):
    """A piece of an artifact, which is appended to what is there or, with append=False, replaces
    it."""

    artifact: Artifact
    append: bool = False
    last: bool = False
    metadata: dict[str, Json] | None = None
    """The metadata of this piece alone; the metadata of the whole artifact stands in `artifact`."""

    def __repr__(self) -> str:
        how = ("append" if self.append else "", "last" if self.last else "")
        return f"ArtifactChunk({_brief(self.artifact.artifact_id, self.artifact, *how)})"


class Note(StrEnum):
    """The kinds of notes that a run makes about its work."""

    THOUGHT = "thought"
    LOG = "log"
    USAGE = "usage"


class Noted(Event, frozen=True, gc=False, omit_defaults=True, tag="noted"):
    """A note about the work itself. Callers see its body only if they activate
    `urn:dragoman:work:1`."""

    kind: Note
    body: Json
    """A text, a line of log with its fields, or figures of usage."""
    state: State = State.WORKING

    def __repr__(self) -> str:
        body = str(self.body)
        return f"Noted({self.kind.value}, {body[:MOST_CHARS]}{'...' * (len(body) > MOST_CHARS)})"


class Snapshot(Event, frozen=True, gc=False, omit_defaults=True, tag="snapshot"):
    """The whole task as it stands. It begins a stream on a task that exists, and is never in the
    log."""

    task: Task

    def __repr__(self) -> str:
        return f"Snapshot({_brief(self.task.id, self.task.state.value, *self.task.artifacts)})"


AnyEvent = Opened | StateChanged | Asked | ArtifactChunk | Noted | Snapshot


class Stamped(Struct, frozen=True, gc=False, array_like=True):
    """An event with its place in the log."""

    task_id: str
    context_id: str
    seq: int
    at: int
    event: AnyEvent

    def __repr__(self) -> str:
        return f"<{self.seq} {self.event!r}>"
