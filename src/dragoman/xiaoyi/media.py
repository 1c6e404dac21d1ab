"""The files that phones send: kept on disk before the skill runs, within limits.

A file is downloaded, or taken from its message, and written to the folder of its task under a name
that is computed here. Nothing that a phone says is part of a path, and nothing is unpacked. The
part itself stays as it came, and its metadata tells where the file is. All of that is part of the
run: its task exists before the first byte is downloaded, and what became of the files is recorded,
so that a run that starts again finds the same. If a file cannot be kept,
the metadata tells why, and the skill runs nevertheless: the person at the phone gets an answer to
the rest of the message, and the skill can ask for another file.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.errors import BadParams, DragomanError, TooLarge, TooMany
from dragoman.core.log import Logger
from dragoman.core.model import AnyPart, Blob, File, Json, Link, Message, Text
from dragoman.core.peer import Context
from dragoman.dialects.xiaoyi.parts import FILE_SCHEME
from dragoman.engine.runs.run_context import ReceivingRun
from dragoman.files import FileDoor, safe_name
from dragoman.files.download import Downloader, matches
from dragoman.files.file_door import Chunks
from dragoman.settings import LinkSettings

log = Logger("xiaoyi")

DIALECT = "xiaoyi"
_RECORDS = "media:"
"""The prefix of the journal keys under which it is recorded what became of files."""
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
    return Path(path) if caller.dialect == DIALECT and isinstance(path, str) else None


class KeptFile(Struct, frozen=True, omit_defaults=True):
    """What became of a file: where it is, or why it is nowhere, and its text if that is wanted."""

    path: str = ""
    error: str = ""
    text: str | None = None


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

    async def receive(self, run: ReceivingRun, message: Message) -> Message:
        """Returns a message of a phone with the paths of its files in their metadata, and with the
        texts of its text files if the settings want them. It is the receiver of an engine."""
        if run.caller.dialect != DIALECT or not any(map(_is_file, message.parts)):
            return message
        key = f"{_RECORDS}{message.message_id}"
        await run.begin()
        recorded = run.recorded(key)
        if recorded is None:
            kept = await self._keep(message, run.task_id, run.caller.principal)
            await run.record(key, msgspec.json.encode(kept))
        else:
            kept = msgspec.json.decode(recorded, type=list[KeptFile | None])
        parts = (_parts(part, its) for part, its in zip(message.parts, kept, strict=True))
        return replace(message, parts=tuple(chain.from_iterable(parts)))

    async def _keep(self, message: Message, task_id: str, caller: str) -> list[KeptFile | None]:
        self._busy[caller] += 1
        try:
            work = []
            files = 0
            for index, part in enumerate(message.parts):
                if _is_file(part):
                    files += 1
                key = repr((message.message_id, index))
                work.append(self._part(part, files, key, task_id, caller))
            return await asyncio.gather(*work)
        finally:
            self._busy[caller] -= 1
            if not self._busy[caller]:
                del self._busy[caller]

    async def close(self) -> None:
        """Ends all downloads."""
        await self._downloader.close()

    async def _part(
        self, part: AnyPart, number: int, key: str, task_id: str, caller: str
    ) -> KeptFile | None:
        if not isinstance(part, Blob | Link) or not _is_file(part):
            return None
        try:
            if number > self._settings.media_files:
                raise TooMany(f"More than {self._settings.media_files} files in one message")
            if self._busy[caller] > MOST_MESSAGES:
                raise TooMany("Other files of this session are still being received")
            return await self._kept(part, key, task_id)
        except DragomanError as exc:
            # The message may quote the address, which may be signed, so it is not logged.
            log.warning("A file was not kept", task=task_id, why=exc.reason)
            return KeptFile(error=exc.message)
        except OSError as exc:
            log.warning("A file was not kept", task=task_id, why=exc)
            return KeptFile(error="The file cannot be written to the disk")

    async def _kept(self, part: File, key: str, task_id: str) -> KeptFile:
        if isinstance(part, Blob):
            self._check(part)
            name, chunks = _name(part), _content(part)
            key += hashlib.sha256(part.content).hexdigest()
        else:
            name = _name(part) or _name_in(part.url)
            chunks = self._downloader.chunks(part.url)
            key += part.url
        ending = name.rpartition(".")[2].lower()
        ending = ending if _ENDING.fullmatch(ending) else "bin"
        path = await self._door.save(chunks, task_id=task_id, key=key, ending=f".{ending}")
        text = None
        if self._settings.media_text and _is_text(part.media_type, ending):
            text = await asyncio.to_thread(_read_text, path, self._settings.media_text)
        return KeptFile(path=str(path.absolute()), text=text)

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


def _parts(part: AnyPart, kept: KeptFile | None) -> Iterator[AnyPart]:
    """Yields what a skill gets of a part."""
    if kept is None or not isinstance(part, Blob | Link):
        yield part
        return
    about: dict[str, Json] = {PATH: kept.path} if kept.path else {ERROR: kept.error}
    name = _name(part)
    yield replace(part, filename=name, metadata={**(part.metadata or {}), **about})
    if kept.text is not None:
        yield Text(kept.text, filename=name, media_type=part.media_type)


def _name(part: File) -> str:
    return safe_name(part.filename) if part.filename else ""


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
