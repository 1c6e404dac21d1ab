"""The JSON of A2A 0.1 (the first public API, a2a-wire §9), with a Struct for each object.

Members that only later readers know (`kind`, `contextId`, `artifactId`...) are written where a
reader may be of either version, see `convert.BOTH`. Those of the community a2a-go (`mimeType`
beside a file, `final` on artifacts) are written only there, see `a2a_go`. Null means absent.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from dragoman.core.model import Json

from ...members import Authentication, Bag, Flag, NoTwins, Word, Words
from ...objects import File


class Wire(NoTwins, Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The base of all objects."""


class Part(Wire, frozen=True, gc=False):
    """A part with text, a file or data. It is flat, because the earliest schema allows `type` to be
    left out."""

    type: Word = ""
    text: str | None = None
    file: File | None = None
    data: Json | UnsetType = UNSET
    mime_type: Word = ""
    metadata: Bag = None
    kind: Word = ""


class Message(Wire, frozen=True, gc=False):
    role: Word = ""
    parts: tuple[Part, ...] | None = None
    metadata: Bag = None
    kind: Word = ""
    message_id: Word = ""
    content: Json = None
    """The only part of a message in python-a2a, with a `type` of its own."""


class Artifact(Wire, frozen=True, gc=False):
    name: Word = ""
    description: Word = ""
    parts: tuple[Part, ...] | None = None
    index: int | None = None
    append: Flag = None
    last_chunk: Flag = None
    metadata: Bag = None
    artifact_id: Word = ""


class Status(Wire, frozen=True, gc=False):
    state: Word = ""
    message: Message | None = None
    timestamp: Word = ""


class Task(Wire, frozen=True, gc=False):
    id: Word = ""
    session_id: Word = ""
    status: Status = Status()
    artifacts: tuple[Artifact, ...] | None = None
    history: tuple[Message, ...] | None = None
    metadata: Bag = None
    kind: Word = ""
    context_id: Word = ""


class StatusUpdate(Wire, frozen=True, gc=False):
    id: Word = ""
    status: Status = Status()
    final: Flag = None
    metadata: Bag = None
    kind: Word = ""
    task_id: Word = ""
    context_id: Word = ""


class ArtifactUpdate(Wire, frozen=True, gc=False):
    id: Word = ""
    artifact: Artifact = Artifact()
    final: Flag = None
    metadata: Bag = None
    kind: Word = ""
    task_id: Word = ""
    context_id: Word = ""
    append: Flag = None
    last_chunk: Flag = None


class EventIn(Wire, frozen=True, gc=False):
    """An event. It does not name its kind, which is recognised by one of these two members."""

    status: Status | None = None
    artifact: Artifact | None = None
    id: Word = ""
    task_id: Word = ""
    final: Flag = None
    metadata: Bag = None


class PushConfig(Wire, frozen=True, gc=False):
    id = ""
    # This is not a member on the wire: 0.1 has one webhook for a task, and no name for it.
    url: Word = ""
    token: Word = ""
    authentication: Authentication | None = None


class Params(Wire, frozen=True, gc=False, kw_only=True):
    """The members that every request may have."""

    metadata: Bag = None


class SendParams(Params, frozen=True, gc=False):
    message: Message
    id: Word = ""
    session_id: Word = ""
    accepted_output_modes: Words = ()
    push_notification: PushConfig | None = None
    history_length: int | None = None


class TaskParams(Params, frozen=True, gc=False):
    id: Word = ""
    history_length: int | None = None


class TaskPushConfig(Params, frozen=True, gc=False):
    id: Word = ""
    push_notification_config: PushConfig | None = None
