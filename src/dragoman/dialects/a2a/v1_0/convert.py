"""The parts of A2A 1.0, and its names for states and roles."""

from __future__ import annotations

from msgspec import UNSET

from dragoman.core.model import AnyPart, Blob, Data, Link, Role, State, Text

from ..codec import task_codec
from ..events import event_codec, step_codec
from ..scalars import Wrong, base64_in, base64_out
from . import wire

STATES_OUT = {
    State.UNKNOWN: "TASK_STATE_UNSPECIFIED",
    State.SUBMITTED: "TASK_STATE_SUBMITTED",
    State.WORKING: "TASK_STATE_WORKING",
    State.COMPLETED: "TASK_STATE_COMPLETED",
    State.FAILED: "TASK_STATE_FAILED",
    State.CANCELED: "TASK_STATE_CANCELED",
    State.INPUT_REQUIRED: "TASK_STATE_INPUT_REQUIRED",
    State.REJECTED: "TASK_STATE_REJECTED",
    State.AUTH_REQUIRED: "TASK_STATE_AUTH_REQUIRED",
}
STATES_IN: dict[str | int | None, State] = {
    **{name: state for state, name in STATES_OUT.items()},
    # ProtoJSON also accepts the numbers; the table above is in their order.
    **dict(enumerate(STATES_OUT)),
}
ROLES_OUT = {Role.USER: "ROLE_USER", Role.AGENT: "ROLE_AGENT"}
ROLES_IN: dict[str | int | None, Role] = {
    "ROLE_USER": Role.USER,
    "ROLE_AGENT": Role.AGENT,
    1: Role.USER,
    2: Role.AGENT,
}


def part_in(part: wire.Part) -> AnyPart:
    text, raw, url, data = part.text, part.raw, part.url, part.data
    filename, metadata = part.filename or "", part.metadata
    media_type = part.media_type or part.media_type_
    if text is not None and raw is None and url is None and data is UNSET:  # nearly all of them
        return Text(text, filename=filename, media_type=media_type, metadata=metadata)
    if (text is not None) + (raw is not None) + (url is not None) + (data is not UNSET) != 1:
        if part.file is not UNSET:
            raise Wrong("Expected `url` or `raw`, got `file`, which is a file of 0.3")
        raise Wrong("Expected exactly one of `text`, `raw`, `url`, `data`")
    if raw is not None:
        content = base64_in(raw, ".raw")
        return Blob(content, filename=filename, media_type=media_type, metadata=metadata)
    if url is not None:
        return Link(url, filename=filename, media_type=media_type, metadata=metadata)
    return Data(data, filename=filename, media_type=media_type, metadata=metadata)


def part_out(part: AnyPart) -> wire.Part:
    filename, media_type = part.filename, part.media_type
    if isinstance(part, Text):
        return wire.Part(part.text, None, None, UNSET, filename, media_type, part.metadata)
    if isinstance(part, Blob):
        raw = base64_out(part.content)
        return wire.Part(None, raw, None, UNSET, filename, media_type, part.metadata)
    if isinstance(part, Link):
        return wire.Part(None, None, part.url, UNSET, filename, media_type, part.metadata)
    return wire.Part(None, None, None, part.value, filename, media_type, part.metadata)


CODEC = task_codec(
    (wire.Message, wire.Artifact, wire.Status, wire.Task),
    *((part_in, part_out), (ROLES_IN, ROLES_OUT), (STATES_IN, STATES_OUT)),
    role_names="`ROLE_USER` or `ROLE_AGENT`",
    link=".url",
)
EVENTS = event_codec(CODEC, wire, final=False)
STEPS = step_codec(CODEC, EVENTS, wire)
message_out, task_out = CODEC.message_out, CODEC.task_out
