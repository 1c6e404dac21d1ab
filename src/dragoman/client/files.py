"""Attaches files to messages, downloads linked files, and saves results.

A linked file is downloaded through the guarded HTTP client, up to a size, and with credentials only
if the user allows its origin. A file name from an agent is treated as a name, never as a path.
"""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dragoman.agent.parts import json_of, parts_of
from dragoman.core.errors import AgentMisbehaved, BadParams, TooLarge
from dragoman.core.model import AnyPart, Artifact, Blob, Data, File, Link, Message, Task, Text
from dragoman.core.peer import BearerToken
from dragoman.files.download import Progress, limited_chunks
from dragoman.files.names import safe_name

from .credentials import Wallet, acting
from .transports.http import Http, HttpRequest

Source = Task | Message | Artifact | AnyPart


async def parts_to_send(what: Iterable[object], max_size: int) -> tuple[AnyPart, ...]:
    """Converts values to parts: str, bytes, Path, dict, numbers, Structs, Parts."""
    given = list(what)
    for value in given:
        if isinstance(value, Path):
            size = (await asyncio.to_thread(value.stat)).st_size
            if size > max_size:
                raise TooLarge(f"{value.name} has {size} bytes, more than {max_size}")
    try:
        if any(isinstance(value, Path) for value in given):
            return await asyncio.to_thread(parts_of, given)
        return parts_of(given)
    except AgentMisbehaved:
        wrong = ", ".join(sorted({type(value).__name__ for value in given}))
        raise BadParams(
            f"Of {wrong} something cannot be sent; give str, bytes, Path, dict, a number, "
            "a Struct, a Part or a list of these"
        ) from None


def files_in(source: Source) -> list[tuple[File, str]]:
    """Returns the files of a task, message, artifact or part, each with the name of its
    container."""
    match source:
        case Task():
            said = (source.answer,) if source.answer is not None else ()
            return [found for each in (*source.artifacts, *said) for found in files_in(each)]
        case Artifact():
            return [(p, source.name) for p in source.parts if isinstance(p, Blob | Link)]
        case Message():
            return [(p, "") for p in source.parts if isinstance(p, Blob | Link)]
        case Blob() | Link():
            return [(source, "")]
    return []


class Files:
    """Downloads and saves files for one connection."""

    def __init__(self, http: Http, wallet: Wallet) -> None:
        self._http = http
        self._wallet = wallet

    async def fetch(
        self, part: AnyPart, *, max_size: int | None = None, progress: Progress | None = None
    ) -> bytes:
        """Returns the content of a part; a link is downloaded."""
        if isinstance(part, Link):
            got = bytearray()
            async with aclosing(self.chunks(part.url, max_size, progress)) as chunks:
                async for chunk in chunks:
                    got += chunk
            return bytes(got)
        if isinstance(part, Blob):
            return part.content
        return part.text.encode() if isinstance(part, Text) else json_of(part.value)

    async def save(
        self,
        source: Source,
        folder: Path | str = ".",
        *,
        max_size: int | None = None,
        progress: Progress | None = None,
    ) -> list[Path]:
        """Saves the files of a task, message, artifact or part, and never overwrites a file.

        An artifact of text or data that is passed by itself is saved as a file too.
        """
        folder = Path(folder)
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        saved: list[Path] = []
        for part, name in files_in(source) or _written(source):
            path = _free(folder, _named(part, name))
            content = await self.fetch(part, max_size=max_size, progress=progress)
            await asyncio.to_thread(_write, path, content)
            saved.append(path)
        return saved

    async def chunks(
        self,
        url: str,
        max_size: int | None = None,
        progress: Progress | None = None,
        bearer: BearerToken | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yields a linked file as it comes, up to a size. `bearer` takes the place of our own
        credentials, at the origins that get any."""
        limits = self._http.limits
        most = limits.file_size if max_size is None else max_size
        address = self._http.address(url)
        who = self._wallet.kept(address.origin) or await self._wallet.ask(address.origin)
        if bearer is not None and self._wallet.allows(address.origin):
            who = acting(who, bearer)
        request = HttpRequest("GET", address, address.path, {"accept": "*/*"}, b"", who)
        async with (
            self._http.stream(request, idle=limits.answer) as stream,
            aclosing(limited_chunks(stream, url, most, progress)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk


def _written(source: Source) -> list[tuple[AnyPart, str]]:
    """Returns an artifact without files, or a part that is not a file, as a file."""
    if isinstance(source, Artifact):
        text = source.text
        parts: list[AnyPart] = [p for p in source.parts if isinstance(p, Data)]
        if text:
            parts.insert(0, Text(text))
        return [(part, source.name or source.artifact_id) for part in parts]
    return [(source, "")] if isinstance(source, Text | Data) else []


def _named(part: AnyPart, name: str) -> str:
    """Returns a file name: that of the part, of its address, or of its container."""
    given = part.filename
    if not given and isinstance(part, Link):
        given = unquote(urlsplit(part.url).path).rpartition("/")[2]
    given = safe_name(given or name)
    if "." in given:
        return given
    kinds = {Text: ".txt", Data: ".json"}
    return given + (mimetypes.guess_extension(part.media_type or "") or kinds.get(type(part), ""))


def _free(folder: Path, name: str) -> Path:
    path, number = folder / name, 1
    while path.exists():
        stem, dot, ending = name.rpartition(".")
        number += 1
        path = folder / (f"{stem}-{number}.{ending}" if dot else f"{name}-{number}")
    return path


def _write(path: Path, content: bytes) -> None:
    with path.open("xb") as file:  # neither overwrites a new file nor follows a link
        file.write(content)
