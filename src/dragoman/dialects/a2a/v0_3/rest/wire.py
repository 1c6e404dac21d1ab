"""The JSON of A2A 0.3 over REST: ProtoJSON of a2a.v1, which differs from its JSON-RPC (a2a-wire
§6.1).

As in 1.0, a name of two words has a field for each of its spellings (see `members`). A comment
marks what is only read: the shapes of types.ts, and names on which the .proto and the SDKs differ.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType, field

from dragoman.core.model import Json

from ... import objects
from ...members import Bag, Flag, NoTwins, Number, Word, Words, json_name
from ..wire import PushConfig


class Wire(Struct, frozen=True, gc=False, omit_defaults=True, rename=json_name):
    """The base of all messages that only this wire has."""


class File(Wire, frozen=True, gc=False):
    file_with_uri: str | None = None
    file_with_bytes: str | None = None
    mime_type: Word = ""
    name: Word = ""
    file_with_uri_: str | None = None
    file_with_bytes_: str | None = None
    mime_type_: str = ""
    # Read: types.ts.
    uri: str | None = None
    bytes: str | None = None


class DataPart(Wire, frozen=True, gc=False):
    data: Json


class Part(Wire, frozen=True, gc=False):
    text: str | None = None
    file: File | None = None
    data: Json | UnsetType = UNSET
    metadata: Bag = None
    # Read: types.ts. Where it stands, `data` is the value itself. And what 0.1 calls it.
    kind: str | None = None
    type: Json = None


class Message(objects.ProtoMessage[Part], frozen=True, gc=False):
    parts: tuple[Part, ...] | None = field(default=None, name="content")
    # Read: types.ts and go say `parts`.
    parts_: tuple[Part, ...] | None = None


class Artifact(objects.ProtoArtifact[Part], frozen=True, gc=False):
    pass


class ArtifactUpdate(objects.ProtoArtifactUpdate[Artifact], frozen=True, gc=False):
    pass


class Status(objects.SharedStatus[Message], frozen=True, gc=False):
    message_: Message | None = field(default=None, name="update")


class Task(objects.ProtoTask[Status, Artifact, Message], frozen=True, gc=False):
    status: Status = Status()


class TaskPage(Wire, frozen=True, gc=False):
    """Only read: 0.3 §3.5.3 has a bare array."""

    tasks: tuple[Task, ...] | None = None
    next_page_token: Word = ""
    next_page_token_: str = ""


class StatusUpdate(objects.SharedStatusUpdate[Status], frozen=True, gc=False):
    status: Status = Status()
    final: Flag = False
    metadata: Bag = None
    task_id_: str = ""
    context_id_: str = ""


class Step(objects.ProtoStep[Task, Message, StatusUpdate, ArtifactUpdate], frozen=True, gc=False):
    """StreamResponse and SendMessageResponse."""

    message_: Message | None = field(default=None, name="msg")


class StepIn(Step, frozen=True, gc=False):
    """A step, or one of its members without the wrapper, as types.ts has it."""

    id: Json = None
    status: Json = None
    artifact: Json = None
    parts: Json = field(default=None, name="content")
    parts_: Json = None


class TaskPushConfig(Wire, frozen=True, gc=False):
    """`name` is tasks/{task}/pushNotificationConfigs/{config}."""

    name: Word = ""
    push_notification_config: PushConfig | None = None
    push_notification_config_: PushConfig | None = None


class PushPage(Wire, frozen=True, gc=False):
    configs: tuple[TaskPushConfig, ...] | None = None
    next_page_token: Word = ""
    next_page_token_: str = ""


class Configuration(Wire, frozen=True, gc=False):
    accepted_output_modes: Words = ()
    push_notification: PushConfig | None = None
    history_length: Number = None
    blocking: Flag = None
    accepted_output_modes_: Words = ()
    push_notification_: PushConfig | None = None
    history_length_: Number = None
    # Read: types.ts.
    push_notification_config: PushConfig | None = None


class Params(Wire, frozen=True, gc=False, kw_only=True):
    """The params of a request that has none but its path."""


class SendParams(Params, frozen=True, gc=False):
    message: Message | None = None
    configuration: Configuration | None = None
    metadata: Bag = None
    # Read: the name of the field, which the Python SDK's later client writes.
    request: Message | None = None
    msg: Message | None = None


class TaskParams(Params, frozen=True, gc=False):
    """The params of requests that get, cancel or follow one task."""

    id: str = ""
    history_length: Number = None
    metadata: Bag = None
    history_length_: Number = None


class ListParams(NoTwins, Params, frozen=True, gc=False):
    """The params of a list. 0.3 names no filters; these are those of drafts, as in `tasks/list`."""

    context_id: Word = ""
    status: Word = None
    page_size: Number = None
    page_token: Word = ""
    history_length: Number = None
    status_timestamp_after: Word = ""
    include_artifacts: Flag = False
    last_updated_after: str | int | None = None


class SetPushParams(Params, frozen=True, gc=False):
    """All three bodies that clients send (a2a-wire §5): a request, its `config` alone, or a bare
    webhook."""

    id: Word = ""
    """The id in the path."""
    parent: Word = ""
    config_id: Word = ""
    config: TaskPushConfig | None = None
    config_id_: str = ""
    # The annotation's body is the config itself.
    push_notification_config: PushConfig | None = None
    push_notification_config_: PushConfig | None = None
    name: Word = ""


class PushParams(Params, frozen=True, gc=False):
    """The params of a webhook, which are in the path alone."""

    id: Word = ""
    push_notification_config_id: Word = ""
    page_size: Number = None
    page_token: Word = ""
