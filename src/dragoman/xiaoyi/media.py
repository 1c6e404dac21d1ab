"""The files that phones send: kept on disk before the skill runs, within limits.

A file is downloaded, or taken from its message, and written to the folder of its task under a name
that is computed here. Nothing that a phone says is part of a path, and nothing is unpacked. The
part itself stays as it came, and its metadata tells where the file is. If a file cannot be kept,
the metadata tells why, and the skill runs nevertheless: the person at the phone gets an answer to
the rest of the message, and the skill can ask for another file.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from dragoman.core.errors import BadParams, DragomanError, TooLarge, TooMany
from dragoman.core.log import Logger
from dragoman.core.model import AnyPart, Blob, File, Json, Link, Message, Text
from dragoman.core.peer import Context
from dragoman.dialects.xiaoyi.parts import FILE_SCHEME
from dragoman.files import FileDoor, safe_name
from dragoman.files.download import Downloader, matches
from dragoman.files.file_door import Chunks
from dragoman.settings import LinkSettings

log = Logger("xiaoyi")

PATH, ERROR = "path", "mediaError"
"""The metadata keys of a file that is on disk, and of one that could not be kept."""
MOST_MESSAGES = 4
"""The messages of one session whose files are received at the same time."""
_ENDING = re.compile(r"[a-z0-9]{1,8}")
_TEXT_ENDINGS = {
    *("txt", "md", "markdown", "json", "jsonl", "csv", "tsv", "xml", "yaml", "yml", "toml", "ini"),
    *("log", "html", "htm", "srt", "vtt"),
}
_TEXT_TYPES = ("text/*", "application/json", "application/xml", "application/yaml")
_ENCODINGS = ("utf-8-sig", "gb18030")


def media_path(caller: Context, file: File) -> Path | None:
    """Returns where a file of a phone is on disk, or None if it is not. `caller` is
    `turn.caller`: callers in other dialects may write any metadata they like."""
    path = (file.metadata or {}).get(PATH)
    return Path(path) if caller.dialect == "xiaoyi" and isinstance(path, str) else None


class MediaReceiver:
    """Keeps the files of messages on disk."""

    def __init__(self, door: FileDoor, settings: LinkSettings, *, allow_private: bool) -> None:
        """`door` has the folder, and deletes its files after a time."""
        self._door, self._settings = door, settings
        self._downloader = Downloader(
            allow_private=allow_private,
            max_size=settings.media_size,
            seconds=settings.media_time,
            types=settings.media_types,
        )
        self._busy: Counter[str] = Counter()

    async def receive(self, message: Message, *, task_id: str, caller: str) -> Message:
        """Returns the message with the paths of its files in their metadata, and with the texts of
        its text files if the settings want them."""
        self._busy[caller] += 1
        try:
            work = []
            files = 0
            for index, part in enumerate(message.parts):
                if _is_file(part):
                    files += 1
                key = repr((message.message_id, index))
                work.append(self._part(part, files, key, task_id, caller))
            found = await asyncio.gather(*work)
        finally:
            self._busy[caller] -= 1
            if not self._busy[caller]:
                del self._busy[caller]
        return replace(message, parts=tuple(part for parts in found for part in parts))

    async def close(self) -> None:
        """Ends all downloads."""
        await self._downloader.close()

    async def _part(
        self, part: AnyPart, number: int, key: str, task_id: str, caller: str
    ) -> tuple[AnyPart, ...]:
        if not isinstance(part, Blob | Link) or not _is_file(part):
            return (part,)
        part = replace(part, filename=safe_name(part.filename) if part.filename else "")
        try:
            if number > self._settings.media_files:
                raise TooMany(f"More than {self._settings.media_files} files in one message")
            if self._busy[caller] > MOST_MESSAGES:
                raise TooMany("Other files of this session are still being received")
            return await self._kept(part, key, task_id)
        except DragomanError as exc:
            # The message may quote the address, which may be signed, so it is not logged.
            log.warning("A file was not kept", task=task_id, why=exc.reason)
            return (_with(part, **{ERROR: exc.message}),)
        except OSError as exc:
            log.warning("A file was not kept", task=task_id, why=exc)
            return (_with(part, **{ERROR: "The file cannot be written to the disk"}),)

    async def _kept(self, part: File, key: str, task_id: str) -> tuple[AnyPart, ...]:
        if isinstance(part, Blob):
            self._check(part)
            name, chunks = part.filename, _content(part)
            key += hashlib.sha256(part.content).hexdigest()
        else:
            name = part.filename or _name_in(part.url)
            chunks = self._downloader.chunks(part.url)
            key += part.url
        ending = name.rpartition(".")[2].lower()
        ending = ending if _ENDING.fullmatch(ending) else "bin"
        path = await self._door.save(chunks, task_id=task_id, key=key, ending=f".{ending}")
        kept = _with(part, **{PATH: str(path.absolute())})
        if not (self._settings.media_text and _is_text(part.media_type, ending)):
            return (kept,)
        text = await asyncio.to_thread(_read_text, path, self._settings.media_text)
        if text is None:
            return (kept,)
        return (kept, Text(text, filename=part.filename, media_type=part.media_type))

    def _check(self, part: Blob) -> None:
        most, types = self._settings.media_size, self._settings.media_types
        if len(part.content) > most:
            raise TooLarge(f"The file is larger than {most} bytes")
        if types and not any(matches(part.media_type.lower(), each) for each in types):
            raise BadParams(f"Files of the type {part.media_type or 'unknown'} are not accepted")


def _is_file(part: AnyPart) -> bool:
    """Returns whether a part has a content, or an address that can be called. A file that has only
    a `fileId` has neither."""
    return isinstance(part, Blob) or (
        isinstance(part, Link) and not part.url.startswith(FILE_SCHEME)
    )


def _with(part: File, **more: Json) -> File:
    return replace(part, metadata={**(part.metadata or {}), **more})


def _name_in(url: str) -> str:
    try:
        return unquote(urlsplit(url).path)
    except ValueError:  # the client refuses this address
        return ""


async def _content(part: Blob) -> Chunks:
    yield part.content


def _is_text(media_type: str, ending: str) -> bool:
    given = media_type.partition(";")[0].strip().lower()
    return ending in _TEXT_ENDINGS or any(matches(given, each) for each in _TEXT_TYPES)


def _read_text(path: Path, most: int) -> str | None:
    """Returns the text of a file, or None if it is too large or no text."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most or b"\0" in content:
        return None
    for encoding in _ENCODINGS:
        try:
            return content.decode(encoding)
        except UnicodeDecodeError:
            continue
    return None
