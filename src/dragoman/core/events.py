"""What can happen to a task. Each event is one entry of its log and one frame of a stream."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from .card import Tool
from .model import Artifact, Json, Message, State, Task


class Event(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="event"):
    """Base of all events."""


class Opened(Event, frozen=True, gc=False, omit_defaults=True, tag="opened"):
    """The task exists: always seq 1. Holds all that a run needs to start, also after a crash."""

    message: Message
    skill: str = ""
    metadata: dict[str, Json] | None = None
    accepts: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    context: tuple[Json, ...] = ()
    trace: str = ""
    tools: tuple[Tool, ...] = ()
    """What the caller runs for the agent, so that a run that starts again still has them."""
    hops: int = 0
    deadline: float | None = None
    """As `Context` has them: what the task asks of other agents is under them too."""


class StateChanged(Event, frozen=True, gc=False, omit_defaults=True, tag="state"):
    """The task is in `state`; `message` is what the agent says with it, `heard` what arrived."""

    state: State
    message: Message | None = None
    heard: Message | None = None
    metadata: dict[str, Json] | None = None


class Ask(StrEnum):
    """What a run can want from its caller."""

    INPUT = "input"
    APPROVAL = "approval"
    CREDENTIALS = "credentials"
    TOOL = "tool"


class Asked(Event, frozen=True, gc=False, omit_defaults=True, tag="asked"):
    """The run waits for an answer. `question` names it; `Resolve` or a message answers it."""

    question: str
    kind: Ask
    message: Message
    body: Json = None

    @property
    def state(self) -> State:
        """Credentials make the task auth-required, everything else input-required."""
        return State.AUTH_REQUIRED if self.kind is Ask.CREDENTIALS else State.INPUT_REQUIRED


class ArtifactChunk(Event, frozen=True, gc=False, omit_defaults=True, tag="chunk"):
    """A piece of an artifact: appended to what is there, or (append=False) instead of it."""

    artifact: Artifact
    append: bool = False
    last: bool = False
    metadata: dict[str, Json] | None = None
    """Of this piece alone; what belongs to the artifact stands there."""


class Note(StrEnum):
    """What a run can tell about its work."""

    THOUGHT = "thought"
    LOG = "log"
    USAGE = "usage"


class Noted(Event, frozen=True, gc=False, omit_defaults=True, tag="noted"):
    """Something about the work itself. Callers see its body only under `urn:dragoman:work:1`."""

    kind: Note
    body: Json
    state: State = State.WORKING


class Snapshot(Event, frozen=True, gc=False, omit_defaults=True, tag="snapshot"):
    """The whole task as it stands. Begins a stream on a task that exists; never in the log."""

    task: Task


AnyEvent = Opened | StateChanged | Asked | ArtifactChunk | Noted | Snapshot


class Stamped(Struct, frozen=True, gc=False, array_like=True):
    """An event with its place in the log."""

    task_id: str
    context_id: str
    seq: int
    at: int
    event: AnyEvent
