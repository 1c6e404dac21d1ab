"""The parts of a message in a chat: text and data are its body, files are posted beside it.

Data is a code block that people can read, marked as ours (`json data`): a block that somebody wrote
stays a part of the text. The address of a file is a line of text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from dragoman.core.model import AnyPart, Blob, Data, Json, Link, Text
from dragoman.core.nesting import too_deep

from .blocks import split_blocks
from .wire import file_name

_opening = re.compile(r"(?:^|(?<=\n))```json data\n")
_closing = re.compile(r"\n```(?:\n|\Z)")
_like_block = re.compile(r"(?:^|(?<=\n))```json(?= +data)")
_escaped_block = re.compile(r"(?:^|(?<=\n))```json (?= +data)")


class PostFile(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A file that the channel carries beside a text."""

    name: str
    content: bytes
    media_type: str = ""


def parts_out(parts: Iterable[AnyPart], *, glue: str = "\n") -> tuple[str, tuple[Blob, ...]]:
    """Returns the body and the files of some parts. `glue` stands between adjacent texts."""
    said, files = list[str](), list[Blob]()
    before: type[AnyPart] | None = None
    for part in parts:
        match part:
            case Text(text=text):
                body = escape_blocks(text)
            case Data(value=value):
                body = f"```json data\n{_json(value)}\n```"
            case Link(url=url, filename=filename):
                body = f"{filename}: {url}" if filename else url
            case Blob():
                files.append(part)
                continue
        if before is not None:
            said.append(glue if isinstance(part, Text) and before is Text else "\n")
        said.append(body)
        before = type(part)
    return "".join(said), tuple(files)


def parts_in(body: str, files: Iterable[PostFile] = ()) -> tuple[AnyPart, ...]:
    """Returns the parts of a message. Text without content is left out."""
    parts: list[AnyPart] = []
    texts = split_blocks(body, _opening, _closing)
    for number, text in enumerate(texts):
        value = _value(text) if number % 2 else msgspec.UNSET
        if value is not msgspec.UNSET:
            parts.append(Data(value))
            continue
        if number % 2:
            text = f"```json data\n{text}\n```"  # not ours after all
        elif number < len(texts) - 1:
            text = text.removesuffix("\n")
        if text:
            parts.append(Text(_escaped_block.sub("```json", text)))
    return (*parts, *blobs_in(files))


def blobs_in(files: Iterable[PostFile]) -> tuple[Blob, ...]:
    """Returns posted files as parts."""
    return tuple(
        Blob(each.content, filename=each.name, media_type=each.media_type) for each in files
    )


def escape_blocks(text: str) -> str:
    """Returns a text in which no block can be read as data."""
    return _like_block.sub("```json ", text)


def name_of(file: Blob) -> str:
    """Returns the name under which a file is posted."""
    return file_name(file.filename) or "file"


def posted(files: Iterable[Blob]) -> tuple[PostFile, ...]:
    """Returns files as they are posted."""
    return tuple(PostFile(name_of(each), each.content, each.media_type) for each in files)


def _json(value: Json) -> str:
    encoded = msgspec.json.encode(value)
    return (encoded if len(encoded) <= 80 else msgspec.json.format(encoded, indent=2)).decode()


def _value(text: str) -> Json:
    encoded = text.encode("utf-8", "replace")
    try:
        return msgspec.UNSET if too_deep(encoded) else msgspec.json.decode(encoded)
    except (msgspec.DecodeError, RecursionError):
        return msgspec.UNSET
