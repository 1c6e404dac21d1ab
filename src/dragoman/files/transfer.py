"""Passes files from one agent to another, in the form that the other side accepts.

A file is passed on unchanged, unless the other side cannot express that form, its messages are too
small for the content, or the settings require the other form. In these cases a content is offered
at our file door, or a link is downloaded to disk and its content sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core import events as ev
from dragoman.core.dialect import Dialect
from dragoman.core.errors import BadParams, DragomanError, Unsupported
from dragoman.core.model import AnyPart, Artifact, Blob, Link, Message, Task
from dragoman.core.operations import Resolve, SendMessage
from dragoman.core.peer import Batch
from dragoman.dialects.losses import FileForms

from .file_door import Chunks, FileDoor

FileForm = Literal["auto", "value", "reference"]
"""The form in which files are passed: unchanged, by value, or by reference."""
T = TypeVar("T")
AROUND = 64 * 1024
"""The bytes of a message that are reserved for everything but its files."""


def has_files(parts: Iterable[AnyPart]) -> bool:
    """Returns whether there are files among the parts."""
    for part in parts:  # noqa: SIM110  asked of every message, and a generator costs more
        if type(part) is Blob or type(part) is Link:
            return True
    return False


def room_in(dialect: Dialect) -> int:
    """Returns the bytes of files that fit into a message of this dialect, given that base64 turns
    three bytes into four, or 0 if the limit is not known."""
    return max(0, dialect.max_message - AROUND) * 3 // 4


class FileTransfer(Struct, kw_only=True):
    """Converts the files of one task for one side."""

    door: FileDoor
    task_id: str
    takes: FileForms
    """The forms that the other side accepts."""
    form: FileForm = "auto"
    room: int = 0
    """The bytes of files that one message may hold; 0 means no limit."""
    chunks: Callable[[str], Chunks] | None = None
    """Downloads a link to the agent's own address, with our credentials for it. All other links are
    downloaded without credentials."""
    is_own: Callable[[str], bool] | None = None
    """Returns whether a link leads to the agent's own address, to which only we may have access;
    then it becomes a link to our own address, if files are passed by reference."""
    is_brought: Callable[[str], Awaitable[bool]] | None = None
    """Returns whether our caller brought a link itself. It is passed on unchanged: downloaded by
    us, a file that is not for the caller would reach it as a result of the agent."""
    count: Callable[[int], None] | None = None
    """Counts bytes that are about to be kept here. Raises `TooMany` if they are too many."""
    note: Callable[[str], Awaitable[None]] | None = None
    """Called with a file that could not be converted and is passed on unchanged. Without it, that
    is an error."""

    async def parts(self, parts: tuple[AnyPart, ...]) -> tuple[AnyPart, ...]:
        """Returns the parts with files in the form that the other side accepts. Raises a
        `DragomanError` if that is not possible."""
        if not has_files(parts):
            return parts
        left = self.room or None
        found: list[AnyPart] = []
        for part in parts:
            if type(part) is Blob:
                size = len(part.content)
                fits = left is None or size <= left
                if left is not None and fits:
                    left -= size
                found.append(await self._content(part, fits=fits))
            elif type(part) is Link:
                found.append(await self._link(part))
            else:
                found.append(part)
        return tuple(found)

    async def message(self, message: Message) -> Message:
        """Returns the message with converted files."""
        parts = await self.parts(message.parts)
        return message if parts is message.parts else replace(message, parts=parts)

    async def artifact(self, artifact: Artifact) -> Artifact:
        """Returns the artifact with converted files."""
        parts = await self.parts(artifact.parts)
        return artifact if parts is artifact.parts else replace(artifact, parts=parts)

    async def task(self, task: Task) -> Task:
        """Returns the task with converted files in its artifacts and its message. Its history
        belongs to our caller."""
        artifacts = tuple([await self.artifact(each) for each in task.artifacts])
        status, said = task.status, task.status.message
        if said is not None:
            status = replace(status, message=await self.message(said))
        return replace(task, artifacts=artifacts, status=status)

    async def event(self, event: ev.AnyEvent) -> ev.AnyEvent:
        """Returns the event with converted files."""
        match event:
            case ev.ArtifactChunk():
                return replace(event, artifact=await self.artifact(event.artifact))
            case ev.StateChanged(message=Message() as said) | ev.Asked(message=said):
                return replace(event, message=await self.message(said))
            case ev.Snapshot():
                return replace(event, task=await self.task(event.task))
        return event

    async def entry(self, entry: ev.Stamped | Message) -> ev.Stamped | Message:
        """Returns an entry of a stream with such parts."""
        if isinstance(entry, Message):
            return await self.message(entry)
        event = await self.event(entry.event)
        return entry if event is entry.event else replace(entry, event=event)

    async def _content(self, part: Blob, *, fits: bool) -> AnyPart:
        if not self.takes.by_reference:
            if not self.takes.by_value:
                raise Unsupported("This agent takes no files")
            return part
        wanted = self.form == "reference" or (self.form == "auto" and not fits)
        if self.takes.by_value and not (wanted and self.door.offers):
            return part
        if not self.door.offers:
            raise Unsupported("This agent takes files by their address only, and we have none")
        return await self._or_as_it_is(part, self._offered(part))

    async def _link(self, part: Link) -> AnyPart:
        own = self.is_own is not None and self.is_own(part.url)
        fetches = self.takes.by_value and (self.form == "value" or not self.takes.by_reference)
        if not fetches and not (own and self.form == "reference" and self.door.offers):
            return part
        if self.is_brought is not None and await self.is_brought(part.url):
            if self.note is not None:
                await self.note("A file is passed on as it is: the caller itself brought the link")
            return part
        download = self.door.fetch if fetches else self.door.mirror
        chunks = self._counted(self.chunks if own and self.chunks else self.door.downloader.chunks)
        return await self._or_as_it_is(part, download(part, task_id=self.task_id, chunks=chunks))

    async def _offered(self, part: Blob) -> AnyPart:
        if self.count is not None:
            self.count(len(part.content))
        return await self.door.offer(part, task_id=self.task_id)

    def _counted(self, chunks: Callable[[str], Chunks]) -> Callable[[str], Chunks]:
        count = self.count
        if count is None:
            return chunks

        async def download(url: str) -> Chunks:
            async with aclosing(chunks(url)) as file:
                async for chunk in file:
                    count(len(chunk))
                    yield chunk

        return download

    async def _or_as_it_is(self, part: AnyPart, converted: Awaitable[AnyPart]) -> AnyPart:
        try:
            return await converted
        except (DragomanError, OSError) as exc:
            why = exc.message if isinstance(exc, DragomanError) else "it cannot be kept"
            if self.note is None:
                raise BadParams(f"A file cannot be passed on: {why}") from exc
            await self.note(f"A file is passed on as it is: {why}")
            return part


class RelayedFiles(Struct):
    """The files of a relayed task: those for the agent, and those that it creates."""

    down: FileTransfer
    up: FileTransfer | None
    """Converts the files that the agent creates; None passes them on unchanged."""

    async def sent(self, op: T) -> T:
        """Returns a request with files in the form that the agent accepts."""
        if isinstance(op, Resolve):
            return replace(op, parts=await self.down.parts(op.parts))
        if not isinstance(op, SendMessage):
            return op
        message = await self.down.message(op.message)
        return op if message is op.message else replace(op, message=message)

    async def received(self, batch: Batch) -> Batch:
        """Returns events of the agent with files in the form that our caller accepts."""
        assert self.up is not None  # noqa: S101  only then it is asked
        return replace(batch, entries=[await self.up.entry(each) for each in batch.entries])

    async def result(self, value: T) -> T:
        """Returns the answer to a call with files in the form that our caller accepts."""
        if self.up is None or not isinstance(value, Task):
            return value
        return await self.up.task(value)  # type: ignore[return-value]
