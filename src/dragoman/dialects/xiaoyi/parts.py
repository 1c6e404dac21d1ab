"""Parts of messages and artifacts: texts, files and data."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator

from msgspec import UNSET

from dragoman.core.errors import BadParams
from dragoman.core.model import AnyPart, Blob, Data, Link, Text

from . import wire

TEXT, REASONING, FILE, DATA = "text", "reasoningText", "file", "data"
FILE_ID = "fileId"
"""The metadata key of a part for the id of a file in the platform's own storage."""
FILE_SCHEME = "xiaoyi-file:"
"""The prefix of the address of a file that has only such an id. Nothing can be fetched there."""
MOST_TEXT = 4_000
"""The maximum number of characters in one frame: larger frames have been seen to cut the link."""


def part_out(part: AnyPart) -> wire.Part:
    """Writes a part."""
    match part:
        case Text(text=text):
            return wire.Part(TEXT, text=text)
        case Data(value=value):
            # The source document allows only objects.
            return wire.Part(DATA, data=value if isinstance(value, dict) else {"value": value})
        case Blob(content=content):
            encoded = base64.b64encode(content).decode()
            return wire.Part(FILE, file=wire.File(part.filename, part.media_type, bytes=encoded))
        case Link(url=url):
            known = (part.metadata or {}).get(FILE_ID)
            file_id = known if isinstance(known, str) else UNSET
            uri = UNSET if url.startswith(FILE_SCHEME) else url
            file = wire.File(part.filename, part.media_type, uri=uri, file_id=file_id)
            return wire.Part(FILE, file=file)


def part_in(part: wire.PartIn) -> AnyPart | None:
    """Reads a part, or returns None if it has no content. Raises `BadParams`."""
    if part.file is not None:
        return file_in(part.file)
    if part.data is not UNSET:
        return Data(part.data)
    text = part.text if part.text is not None else part.reasoning_text
    return Text(text) if text is not None else None


def file_in(file: wire.FileIn) -> Blob | Link | None:
    """Reads a file: its content if it has any, and otherwise its address or id."""
    filename, media_type = file.name or "", file.mime_type or ""
    metadata = {FILE_ID: file.file_id} if file.file_id else None
    if file.bytes or (file.bytes is not None and not (file.uri or file.file_id)):
        try:
            content = base64.b64decode(file.bytes, validate=True)
        except (binascii.Error, ValueError):
            raise BadParams("file.bytes is not Base64", field="parts.file.bytes") from None
        return Blob(content, filename=filename, media_type=media_type, metadata=metadata)
    url = file.uri or (f"{FILE_SCHEME}{file.file_id}" if file.file_id else "")
    if not url:
        return None
    return Link(url, filename=filename, media_type=media_type, metadata=metadata)


def parts_in(parts: Iterable[wire.PartIn] | None) -> tuple[AnyPart, ...]:
    """Reads the parts of a message."""
    return tuple(found for part in parts or () if (found := part_in(part)) is not None)


def split(text: str) -> Iterator[str]:
    """Yields pieces of a text that each fit in a frame."""
    for begin in range(0, len(text), MOST_TEXT):
        yield text[begin : begin + MOST_TEXT]
