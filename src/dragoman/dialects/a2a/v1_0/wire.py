"""The JSON of A2A 1.0 (ProtoJSON of lf.a2a.v1), with a Struct for each message.

A name of two words has a field for each of its spellings (see `members`). Null means absent, except
for `Part.data`. The codec, which knows both names, checks the required members of a request.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from dragoman.core.model import Json
from dragoman.core.session import Id

from .. import objects
from ..members import Bag, Flag, Name, Number, Word, Words, json_name


class Wire(Struct, frozen=True, gc=False, omit_defaults=True, rename=json_name):
    """The base of all messages that only 1.0 has."""


class Part(Wire, frozen=True, gc=False):
    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Json | UnsetType = UNSET
    filename: Word = ""
    media_type: Word = ""
    metadata: Bag = None
    media_type_: str = ""
    # A file of 0.3 is read only to be refused with a clear message.
    file: Json | UnsetType = UNSET


class Message(objects.ProtoMessage[Part], frozen=True, gc=False):
    pass


class Artifact(objects.ProtoArtifact[Part], frozen=True, gc=False):
    pass


class Status(objects.SharedStatus[Message], frozen=True, gc=False):
    pass


class Task(objects.ProtoTask[Status, Artifact, Message], frozen=True, gc=False):
    status: Status = Status()


class StatusUpdate(objects.SharedStatusUpdate[Status], frozen=True, gc=False):
    status: Status = Status()
    metadata: Bag = None
    task_id_: str = ""
    context_id_: str = ""


class ArtifactUpdate(objects.ProtoArtifactUpdate[Artifact], frozen=True, gc=False):
    pass


class Step(objects.ProtoStep[Task, Message, StatusUpdate, ArtifactUpdate], frozen=True, gc=False):
    """StreamResponse and SendMessageResponse."""


class StepIn(Step, frozen=True, gc=False):
    """A step, or one of its members without the wrapper."""

    id: Json = None
    status: Json = None
    artifact: Json = None
    parts: Json = None


class Answer(Struct, frozen=True, gc=False):
    """A JSON-RPC response whose result is a step."""

    id: Id = None
    result: Step | None = None
    error: Json = None


class Page(Wire, frozen=True, gc=False):
    """A ListTasksResponse. All four members are always written (1.0 §3.1.4), so they have no
    defaults."""

    tasks: tuple[Task, ...] | None
    next_page_token: str | None
    page_size: Number
    total_size: Number


class PageIn(Wire, frozen=True, gc=False):
    """A page from peers that leave out empty members, or write `tasks: null` (go)."""

    tasks: tuple[Task, ...] | None = None
    next_page_token: Word = ""
    page_size: Number = None
    total_size: Number = None
    next_page_token_: str = ""
    page_size_: Number = None
    total_size_: Number = None


class Params(Wire, frozen=True, gc=False, kw_only=True):
    """The members that every request may have, which are all members of GetExtendedAgentCard."""

    tenant: Word = ""


class Authentication(Wire, frozen=True, gc=False):
    scheme: Word = None
    """The scheme is required, so it is written even if it is empty; None is only read."""
    credentials: Word = ""


class PushConfig(Params, frozen=True, gc=False):
    """A TaskPushNotificationConfig, as it is set and as it is shown."""

    id: Word = ""
    task_id: Word = ""
    url: Word = ""
    token: Word = ""
    authentication: Authentication | None = None
    task_id_: str = ""


class DraftAuthentication(Authentication, frozen=True, gc=False):
    schemes: Words = ()


class DraftPushConfig(Wire, frozen=True, gc=False):
    """What `pushNotificationConfig` holds in the nested form of the drafts."""

    id: Word = ""
    url: Word = ""
    token: Word = ""
    authentication: DraftAuthentication | None = None


class DraftSetParams(PushConfig, frozen=True, gc=False):
    """The params of SetTaskPushNotificationConfig, flat as in 1.0 or nested as in the drafts."""

    push_notification_config: DraftPushConfig | None = None
    push_notification_config_: DraftPushConfig | None = None


class Configuration(Wire, frozen=True, gc=False):
    accepted_output_modes: Words = ()
    history_length: Number = None
    return_immediately: Flag = False
    task_push_notification_config: PushConfig | None = None
    accepted_output_modes_: tuple[str, ...] = ()
    history_length_: Number = None
    return_immediately_: Flag = False
    task_push_notification_config_: PushConfig | None = None


class SendParams(Params, frozen=True, gc=False):
    message: Message
    configuration: Configuration | None = None
    metadata: Bag = None


class GetParams(Params, frozen=True, gc=False):
    id: str
    history_length: Number = None
    history_length_: Number = None


class CancelParams(Params, frozen=True, gc=False):
    id: str
    metadata: Bag = None


class WatchParams(Params, frozen=True, gc=False):
    id: str


class ListParams(Params, frozen=True, gc=False):
    context_id: Word = ""
    status: Name = None
    page_size: Number = None
    page_token: Word = ""
    history_length: Number = None
    status_timestamp_after: Word = ""
    include_artifacts: Flag = False
    context_id_: str = ""
    page_size_: Number = None
    page_token_: str = ""
    history_length_: Number = None
    status_timestamp_after_: str = ""
    include_artifacts_: Flag = False


class PushParams(Params, frozen=True, gc=False):
    """The params of requests that get or delete one webhook."""

    task_id: Word = ""
    id: Word = ""
    task_id_: str = ""


class PushListParams(Params, frozen=True, gc=False):
    task_id: Word = ""
    page_size: Number = None
    page_token: Word = ""
    task_id_: str = ""
    page_size_: Number = None
    page_token_: str = ""


class PushPage(Wire, frozen=True, gc=False):
    configs: tuple[PushConfig, ...] | None = None
    next_page_token: Word = ""
    next_page_token_: str = ""
