"""The parts of A2A 0.3's ProtoJSON. What they share with its JSON-RPC is in `v0_3.convert`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import UNSET

from dragoman.core.model import AnyPart, Blob, Data, Json, Link, Role, State, Text

from ...codec import task_codec
from ...events import event_codec, step_codec
from ...members import Bag
from ...scalars import Wrong, base64_in, base64_out
from ...v1_0 import convert as v1_0
from .. import files
from ..convert import pack_names, part_reader, wrap_value
from . import wire

STATES_OUT = v1_0.STATES_OUT | {State.CANCELED: "TASK_STATE_CANCELLED"}
STATES_IN: dict[str | int | None, State] = {
    **v1_0.STATES_IN,
    **{state.value: state for state in State},
    "TASK_STATE_CANCELLED": State.CANCELED,
}
ROLES_OUT = v1_0.ROLES_OUT
ROLES_IN: dict[str | int | None, Role] = {
    **v1_0.ROLES_IN,
    **{role.value: role for role in Role},
}


# Parts


def _bare(data: Json, kind: str | None) -> Json:
    """Returns the value of a data part. A DataPart of the .proto has it in `data`; types.ts, which
    is recognised by `kind`, has it directly."""
    if kind is None and isinstance(data, dict) and data.keys() == {"data"}:
        return data["data"]
    return data


def check_data(parts: Iterable[wire.Part], path: str) -> None:
    """Raises `Wrong` for data that is not an object, which callers may not send in 0.3."""
    for index, part in enumerate(parts):
        if part.data is not UNSET and not isinstance(_bare(part.data, part.kind), dict):
            raise Wrong("Expected an object: in 0.3 data is nothing else", f"{path}[{index}].data")


def file_in(file: wire.File, metadata: Bag) -> AnyPart:
    filename, media_type = file.name or "", file.mime_type or file.mime_type_
    twice = file.file_with_bytes if file.file_with_bytes is not None else file.file_with_bytes_
    uri = next(
        (u for u in (file.file_with_uri, file.file_with_uri_, file.uri) if u is not None), None
    )
    found = (twice is not None) + (file.bytes is not None) + (uri is not None)
    if not found:
        raise Wrong("Expected `fileWithBytes` or `fileWithUri`", ".file")
    if found > 1:
        raise Wrong("Expected one of `fileWithBytes` and `fileWithUri`, not both", ".file")
    if uri is not None:
        return Link(uri, filename=filename, media_type=media_type, metadata=metadata)
    if twice is not None:
        raw = files.bytes_in(base64_in(twice, ".file.fileWithBytes"), media_type)
    else:
        raw = base64_in(file.bytes or "", ".file.bytes")
    return Blob(raw, filename=filename, media_type=media_type, metadata=metadata)


part_in = part_reader(file_in, data_in=_bare)


def file_notes(params: wire.SendParams) -> Iterator[Mapping[str, Json]]:
    """Returns how the bytes of each file were interpreted, for the log."""
    message = params.message or params.request or params.msg or wire.Message()
    return files.notes(
        (index, base64_in(twice), part.file.mime_type or part.file.mime_type_)
        for index, part in enumerate(message.parts or message.parts_ or ())
        if part.file is not None
        and (twice := part.file.file_with_bytes or part.file.file_with_bytes_)
    )


def part_out(part: AnyPart) -> wire.Part:
    if isinstance(part, Text):
        return wire.Part(part.text, None, UNSET, pack_names(part))
    if isinstance(part, Data):
        value, metadata = wrap_value(part.value, pack_names(part))
        return wire.Part(None, None, wire.DataPart(value), metadata)
    media_type, filename = part.media_type, part.filename
    if isinstance(part, Blob):
        twice = base64_out(base64_out(part.content).encode())
        file = wire.File(None, twice, media_type, filename)
    else:
        file = wire.File(part.url, None, media_type, filename)
    return wire.Part(None, file, UNSET, part.metadata)


CODEC = task_codec(
    (wire.Message, wire.Artifact, wire.Status, wire.Task),
    *((part_in, part_out), (ROLES_IN, ROLES_OUT), (STATES_IN, STATES_OUT)),
    role_names="`ROLE_USER` or `ROLE_AGENT`",
    parts_path=".content",
    link=".file.fileWithUri",
    check_parts=check_data,
)
EVENTS = event_codec(CODEC, wire, final=True)
STEPS = step_codec(CODEC, EVENTS, wire)
