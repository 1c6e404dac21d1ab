"""The format of a task's file: one JSON object a line, made to be read with `less`.

Each line has the time, a description in words, the task's row after the change, and what was added.
Reading a file back is therefore simple: the last row counts, and everything else adds up.

Theory of damage. Each line ends with a checksum of itself (files of older versions have none). A
crash leaves behind the beginning of a line, and a power cut may leave blocks of zeros. Neither was
ever acknowledged, so both are cut off. Anything else that cannot be read is `Damaged`: it may have
been acknowledged, so it is neither guessed at nor deleted.
"""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.errors import StoreError
from dragoman.core.events import (
    AnyEvent,
    ArtifactChunk,
    Asked,
    Noted,
    Opened,
    Snapshot,
    Stamped,
    StateChanged,
)
from dragoman.core.log import Logger
from dragoman.core.model import Message, Task

from ..codec import deeply, pack_piece
from ..local.private_files import FILE
from ..memory.records import FrozenTask, Key, LiveTask
from ..task_row import Idempotency, Row
from ..writes import Input, Record
from .damage import Damaged

log = Logger("store")

_PLAIN = re.compile(r"[0-9a-z][0-9a-z_-]{0,127}")
_SHOWN = 80
"""How many characters of a text a description quotes."""
_BLOCK = 1 << 16
_HOLE = bytes(64)
"""This many zeros are no flipped bit but a block that a power cut left unwritten."""
_CHECK = b',"check":"'
_CHECKED = len(_CHECK) + 10
"""The length of the checksum at the end of a line, in bytes."""


class FileEntry(Struct, omit_defaults=True):
    """An event with its place in the log."""

    seq: int
    at: int
    event: AnyEvent


class FileLine(Struct, omit_defaults=True, kw_only=True):
    """One change of a task."""

    at: str
    what: str
    row: Row
    events: list[FileEntry] = []
    said: Input | None = None
    records: list[Record] = []
    key: Idempotency | None = None
    keys: list[Idempotency] = []
    """In the line that ends the task, the keys of all messages that were sent to it."""
    task: Task | None = None
    """In the line that ends the task, the whole task."""
    dropped: bool = False
    """Whether the events before this line were dropped."""


class TaskFile(Struct):
    """A task as it was read from its file."""

    kept: LiveTask | FrozenTask
    digest: bytes | None
    """The digest that belongs to the key of the task."""
    digests: tuple[bytes, ...] = ()
    """The digests that belong to the keys of later messages."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(FileLine).decode


def file_name(task_id: str) -> str:
    """Returns a name that is safe on every file system. For the ids that we make ourselves, it is
    the id itself."""
    if _PLAIN.fullmatch(task_id):
        return f"{task_id}.jsonl"
    digest = hashlib.sha256(task_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"~{digest}.jsonl"


def line_of(row: Row, now: int, what: str) -> FileLine:
    """Returns a line with the row after a change, the time and a description."""
    at = datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="milliseconds")
    return FileLine(at=at, what=what, row=row)


def entries_out(entries: Iterable[Stamped]) -> list[FileEntry]:
    """Returns the events of a write, as a line holds them."""
    return [FileEntry(entry.seq, entry.at, entry.event) for entry in entries]


def entries_in(line: FileLine) -> list[Stamped]:
    """Returns the events of a line, as a log holds them."""
    row = line.row
    return [Stamped(row.task_id, row.context_id, e.seq, e.at, e.event) for e in line.events]


def line_out(line: FileLine) -> bytes:
    """Returns the bytes of a line. Raises `StoreError` if it cannot be encoded."""
    try:
        data = _encode(line)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"This cannot be stored: {error}.") from error
    return b'%b%b%08x"}\n' % (data[:-1], _CHECK, zlib.crc32(data))


def describe(entries: Iterable[Stamped]) -> str:
    """Describes events in words."""
    return "; ".join(_words(entry.event) for entry in entries)


def _words(event: AnyEvent) -> str:
    match event:
        case Opened(message=message):
            return f"opened: {_quote(message)}"
        case StateChanged(state=state, message=message):
            return f"{state.value}: {_quote(message)}" if message is not None else state.value
        case Asked(kind=kind, message=message):
            return f"asked for {kind.value}: {_quote(message)}"
        case ArtifactChunk(artifact=artifact, append=append, last=last):
            verb = "goes on" if append else "begins"
            return f"artifact {artifact.artifact_id} {verb}{' and is complete' if last else ''}"
        case Noted(kind=kind):
            return f"noted: {kind.value}"
        case Snapshot():
            return "snapshot"


def _quote(message: Message) -> str:
    text = " ".join(message.text.split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def last_line(path: Path) -> FileLine | None:
    """Returns the last line of a file, without reading the rest, or None if it is torn or
    damaged."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        tail = b""
        while end and tail.count(b"\n") < 2:
            start = max(0, end - _BLOCK)
            file.seek(start)
            tail = file.read(end - start) + tail
            end = start
    if not tail.endswith(b"\n"):
        return None
    return _line(tail.removesuffix(b"\n").rpartition(b"\n")[2])


def read_lines(path: Path) -> list[FileLine]:
    """Returns all lines of a finished task's file, up to the first that is damaged."""
    data = path.read_bytes()
    found, good = _parse(data)
    if good < len(data):
        log.error("A file is damaged", file=path, where=_where(found, good))
    return found


def read_whole(path: Path) -> list[FileLine]:
    """Returns all lines of a file. Raises `OSError` if any is damaged."""
    data = path.read_bytes()
    found, good = _parse(data)
    if good < len(data) or not found:
        raise OSError(f"{path} is damaged: {_where(found, good)}")
    return found


def recover_lines(path: Path) -> list[FileLine]:
    """Returns all lines of a file after a crash. What was left half written is cut off."""
    data = path.read_bytes()
    found, good = _parse(data)
    rest = data[good:]
    if not rest:
        return found
    if b"\n" not in rest:
        last = _line(rest[:-1])
        if last is not None and _continues(found, last):
            # Only its last character, the end of the line, is damaged.
            log.error("A file was damaged at the end of its last line, and mended", file=path)
            _mend(path, len(data) - 1, b"\n")
            return [*found, last]
        log.warning("A half written line was cut off", file=path)
    elif _HOLE in rest:
        aside = path.with_suffix(".torn")
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE), "wb") as file:
            file.write(rest)
        log.error("A damaged file was cut", file=path, at_byte=good, rest=aside)
    else:
        raise Damaged(_where(found, good))
    _mend(path, good, b"")
    return found


def _where(found: list[FileLine], good: int) -> str:
    return f"line {len(found) + 1}, from byte {good} on"


def _mend(path: Path, at: int, end: bytes) -> None:
    with path.open("r+b") as file:
        file.truncate(at)
        file.seek(at)
        file.write(end)
        file.flush()
        os.fsync(file.fileno())


def _parse(data: bytes) -> tuple[list[FileLine], int]:
    found: list[FileLine] = []
    good = 0
    while good < len(data):
        end = data.find(b"\n", good) + 1
        line = _line(data[good : end - 1]) if end else None
        if line is None or not _continues(found, line):
            break
        found.append(line)
        good = end
    return found, good


def _line(raw: bytes) -> FileLine | None:
    """Decodes a line without its end. Returns None if the line is damaged."""
    if raw[-_CHECKED:].startswith(_CHECK):
        known = zlib.crc32(b"}", zlib.crc32(memoryview(raw)[:-_CHECKED]))
        if raw[-10:] != b'%08x"}' % known:
            return None
    try:
        return deeply(_decode, raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _continues(read: list[FileLine], line: FileLine) -> bool:
    expected = read[-1].row.last_seq if read else line.row.last_seq - len(line.events)
    return line.row.last_seq == expected + len(line.events)


def read_task(path: Path) -> TaskFile | None:
    """Reads a task from its file. Returns None if not even its first line was written completely.
    Raises `Damaged` if the file can no longer be read."""
    last = last_line(path)
    found: list[FileLine] = []
    if last is None or not last.row.final:
        found = recover_lines(path)
        if not found:
            return None
        last = found[-1]
    if last.row.final:
        key, digest = _key(last)
        keys, digests = _keys(last.row, last.keys)
        return TaskFile(
            FrozenTask(last.row, key, b"", b"", not last.dropped, keys), digest, digests
        )
    key, digest = _key(found[0])
    live = LiveTask(
        found[-1].row, [pack_piece(entries_in(line)) for line in found if line.events], key
    )
    for line in found:
        if line.said is not None:
            live.inputs = [*(live.inputs or ()), line.said]
        if line.records:
            live.records = live.records or {}
            for record in line.records:
                live.records.setdefault(record.key, record)
    said = [each.key for each in live.inputs or () if each.key is not None]
    keys, digests = _keys(live.row, said)
    live.keys = list(keys)
    return TaskFile(live, digest, digests)


def _keys(row: Row, found: list[Idempotency]) -> tuple[tuple[Key, ...], tuple[bytes, ...]]:
    keys = tuple((row.agent, row.tenant, row.principal, each.key) for each in found)
    return keys, tuple(each.digest for each in found)


def _key(line: FileLine) -> tuple[Key | None, bytes | None]:
    if line.key is None:
        return None, None
    row = line.row
    return (row.agent, row.tenant, row.principal, line.key.key), line.key.digest


def only_agent(found: Iterable[TaskFile]) -> str:
    """Returns the agent that all these tasks belong to, or an empty text if there are several."""
    names = {each.kept.row.agent for each in found} - {""}
    return names.pop() if len(names) == 1 else ""


def name_agent(found: TaskFile, agent: str) -> None:
    """Migrates a hidden task of an older version, which stored an empty name instead of the agent.
    The task is given to the only agent that has used the folder."""
    kept = found.kept
    if not kept.row.agent:
        kept.row = replace(kept.row, agent=agent, hidden=True)
        kept.key = (agent, *kept.key[1:]) if kept.key is not None else None
        keys = [(agent, *key[1:]) for key in kept.keys]
        kept.keys = keys if isinstance(kept, LiveTask) else tuple(keys)
