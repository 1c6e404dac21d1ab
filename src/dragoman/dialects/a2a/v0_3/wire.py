"""The JSON of A2A 0.3 over JSON-RPC (types.ts of v0.3.0), with a Struct for each object.

0.2.x is the same on this wire. `kind` is always written and need not be read: examples and older
clients leave it out. Null means absent. What is required is checked in `convert` and `calls`.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from dragoman.core.model import Json

from .. import objects
from ..members import Authentication, Bag, Flag, NoTwins, Word, Words


class Wire(NoTwins, Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The base of all objects that only 0.3 has."""


class File(objects.File, frozen=True, gc=False):
    # These names of REST and gRPC are read only to be refused with a clear message.
    file_with_bytes: Json = None
    file_with_uri: Json = None


class Part(Wire, frozen=True, gc=False):
    """A part with text, a file or data. It is flat, because `kind` may be missing."""

    kind: str | None = None
    text: str | None = None
    file: File | None = None
    data: Json | UnsetType = UNSET
    metadata: Bag = None
    # Read: what 0.1 calls `kind`.
    type: Json = None


class Message(objects.SharedMessage[Part], frozen=True, gc=False, tag_field="kind", tag="message"):
    role: Word = ""


class Artifact(objects.SharedArtifact[Part], frozen=True, gc=False):
    pass


class Status(objects.SharedStatus[Message], frozen=True, gc=False):
    state: Word = ""


class Task(
    objects.SharedTask[Status, Artifact, Message],
    frozen=True,
    gc=False,
    tag_field="kind",
    tag="task",
):
    status: Status = Status()


class StatusUpdate(
    objects.SharedStatusUpdate[Status], frozen=True, gc=False, tag_field="kind", tag="status-update"
):
    status: Status = Status()
    final: Flag = None
    metadata: Bag = None


class ArtifactUpdate(
    objects.SharedArtifactUpdate[Artifact],
    frozen=True,
    gc=False,
    tag_field="kind",
    tag="artifact-update",
):
    pass


Step = Task | Message | StatusUpdate | ArtifactUpdate
"""The answer to a send and the content of a stream, without a wrapper."""


class StepIn(Wire, frozen=True, gc=False):
    """The members that identify a step without `kind`, and the wrappers that confused peers add."""

    id: Json = None
    status: Json = None
    artifact: Json = None
    parts: Json = None
    task: Task | None = None
    message: Message | None = None
    status_update: StatusUpdate | None = None
    artifact_update: ArtifactUpdate | None = None


class Page(Wire, frozen=True, gc=False):
    """The answer to tasks/list, a method of a draft: that of 1.0 with the objects of 0.3, all
    members written."""

    tasks: tuple[Task, ...] | None
    next_page_token: str | None
    page_size: int | None
    total_size: int | None


class PageIn(Wire, frozen=True, gc=False):
    """A page from peers that leave out empty members."""

    tasks: tuple[Task, ...] | None = None
    next_page_token: Word = ""
    page_size: int | None = None
    total_size: int | None = None


class PushConfig(Wire, frozen=True, gc=False):
    """A PushNotificationConfig: a webhook, independent of its task."""

    id: Word = ""
    url: Word = ""
    token: Word = ""
    authentication: Authentication | None = None


class Configuration(Wire, frozen=True, gc=False):
    accepted_output_modes: Words = ()
    history_length: int | None = None
    blocking: Flag = None
    push_notification_config: PushConfig | None = None


class Params(Wire, frozen=True, gc=False, kw_only=True):
    """The members that every request may have."""

    metadata: Bag = None


class SendParams(Params, frozen=True, gc=False):
    message: Message
    configuration: Configuration | None = None


class TaskParams(Params, frozen=True, gc=False):
    id: str
    history_length: int | None = None


class ListParams(Params, frozen=True, gc=False):
    context_id: Word = ""
    status: Word = None
    page_size: int | None = None
    page_token: Word = ""
    history_length: int | None = None
    status_timestamp_after: Word = ""
    include_artifacts: Flag = False
    last_updated_after: str | int | None = None
    """The name of statusTimestampAfter in a draft, where it is in milliseconds."""


class TaskPushConfig(Params, frozen=True, gc=False):
    """A TaskPushNotificationConfig: a webhook with its task."""

    task_id: Word = ""
    push_notification_config: PushConfig = PushConfig()
    id: Word = ""
    """How other methods name the task, and confused clients here."""


class PushParams(Params, frozen=True, gc=False):
    id: Word = ""
    push_notification_config_id: Word = ""
    """The id of the webhook, which clients of 0.2 before 0.2.5 do not send."""
