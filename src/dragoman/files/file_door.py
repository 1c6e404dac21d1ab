"""`FileDoor`: files of ours that others may download, whichever dialect names their addresses.

Theory. A file is stored in the folder of its task, under a name that is derived from its content or
from the address that it came from, and the time at which its own address expires is rounded.
Therefore a run that starts again gives the same file the same address, and an agent that compares
messages with the same idempotency key sees the same message. A file is deleted when its last
address has expired, and never outlives its task.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from dragoman.core.errors import ConfigError
from dragoman.core.model import Blob, Link
from dragoman.security.server_secret import folder_of, secret_for
from dragoman.settings import Settings

from .names import safe_name
from .signed_urls import UrlSigner
from .stored_files import FileHeader, StoredFile, StoredFiles, folder_name

if TYPE_CHECKING:
    from .download import Downloader

Chunks = AsyncGenerator[bytes, None]
_PIECE = 1024 * 1024
"""The number of bytes that are written at once."""


class FileDoor:
    """Stores files on disk, and gives them signed addresses that expire."""

    def __init__(self, settings: Settings, base: str = "") -> None:
        """`base` is the public address of the server; empty if it is not known."""
        files = settings.files
        self.base = base.rstrip("/")
        kept = (each.keep_tasks for each in settings.retention.values())
        self.expires = int(max(1.0, min(files.expires, settings.limits.keep_tasks, *kept)))
        """The seconds for which an address is valid. No file outlives the task that it belongs
        to."""
        self.downloads = files.downloads
        self._settings = settings
        self._stored: StoredFiles | None = None
        self._temporary: Path | None = None
        self._downloader: Downloader | None = None

    @cached_property
    def signer(self) -> UrlSigner:
        """Signs and verifies addresses, with the secret of the server."""
        return UrlSigner(secret_for(self._settings.server.store, os.environ))

    @property
    def offers(self) -> bool:
        """Returns whether files can be given addresses, because our own address is known."""
        return bool(self.base)

    @property
    def stored(self) -> StoredFiles:
        """The files on disk. Those of a store in memory are deleted when the server stops."""
        if self._stored is None:
            files = self._settings.files
            folder = files_folder(self._settings)
            if folder is None:
                self._temporary = Path(tempfile.mkdtemp(prefix="dragoman-files-"))
                folder = self._temporary
            self._stored = StoredFiles(folder, max_size=files.max_size, max_total=files.max_total)
        return self._stored

    @property
    def downloader(self) -> Downloader:
        """Downloads files from addresses that callers named, without credentials."""
        if self._downloader is None:
            from .download import Downloader  # loaded when there is something to download

            files = self._settings.files
            self._downloader = Downloader(
                allow_private=self._settings.server.allow_private,
                max_size=files.max_size,
                seconds=files.fetch_time,
                types=files.types,
            )
        return self._downloader

    async def offer(self, file: Blob, *, task_id: str) -> Link:
        """Stores a file for a task, and returns it as a link. The same file has the same address
        for a while, even after a restart.

        Raises `TooLarge` or `TooMany` if the file cannot be stored, and `ConfigError` if the
        address of the server is not known.
        """
        digest = hashlib.sha256(file.content).hexdigest()[:32]
        header = FileHeader(safe_name(file.filename), file.media_type)
        expires = self._expires()
        file_id = f"{folder_name(task_id)}-{digest}"
        await asyncio.to_thread(self._keep, file_id, header, file.content, expires)
        return self._link(file, file_id, header.name, expires)

    async def mirror(
        self,
        link: Link,
        *,
        task_id: str,
        chunks: Callable[[str], Chunks] | None = None,
    ) -> Link:
        """Downloads a file to disk, and returns it as a link to our own address. `chunks` downloads
        it; by default it is downloaded without credentials. The file is never in memory as a
        whole."""
        expires = self._expires()
        found = await self._fetched(link, task_id, expires, chunks)
        return self._link(link, _id_of(link, task_id), found.header.name, expires)

    async def fetch(
        self,
        link: Link,
        *,
        task_id: str,
        chunks: Callable[[str], Chunks] | None = None,
    ) -> Blob:
        """Downloads a file to disk, and returns it with its content. A run that starts again gets
        the same content, whatever is at the address then.

        Raises `BadParams` for an address that may not be called, `TooLarge`, `TooMany` or
        `PeerRefused`.
        """
        found = await self._fetched(link, task_id, self._expires(), chunks)
        content = await asyncio.to_thread(found.content)
        return Blob(
            content,
            filename=link.filename or found.header.name,
            media_type=link.media_type,
            metadata=link.metadata,
        )

    async def save(self, chunks: Chunks, *, task_id: str, key: str, ending: str) -> Path:
        """Writes a file that the agent itself opens: without a header, and without an address.
        `key` identifies it among the files of its task; a file that exists is not written again.
        `ending` is the ending of its name, such as `.png`."""
        file_id = f"{folder_name(task_id)}-{_digest(key)}"
        expires = self._expires()
        if not await asyncio.to_thread(self.stored.keep_until, file_id, expires, ending):
            await self._write(file_id, None, chunks, expires, ending)
        return self.stored.path(file_id, ending)

    async def find(self, file_id: str) -> StoredFile | None:
        """Returns a stored file."""
        return await asyncio.to_thread(self.stored.find, file_id)

    async def sweep(self) -> int:
        """Deletes the files that have expired, and returns their number."""
        folder = files_folder(self._settings)
        if self._stored is None and (folder is None or not folder.is_dir()):
            return 0  # nothing was ever stored here
        return await asyncio.to_thread(self.stored.sweep, time.time())

    async def close(self) -> None:
        """Ends all downloads, and deletes the files of a store in memory."""
        if self._downloader is not None:
            await self._downloader.close()
        if self._temporary is not None:
            await asyncio.to_thread(shutil.rmtree, self._temporary, ignore_errors=True)
            self._temporary = self._stored = None

    def _expires(self) -> int:
        """Returns when an address that is created now expires. It is valid for at least half of the
        time, and is the same during all of that half."""
        half = max(1, self.expires // 2)
        return (int(time.time()) // half + 2) * half

    def _keep(self, file_id: str, header: FileHeader, content: bytes, expires: int) -> None:
        if self.stored.keep_until(file_id, expires):
            return
        draft = self.stored.draft(file_id, header)
        try:
            view = memoryview(content)
            for at in range(0, len(content), _PIECE):
                draft.write(view[at : at + _PIECE])
            draft.commit(expires)
        finally:
            draft.discard()

    async def _fetched(
        self, link: Link, task_id: str, expires: int, chunks: Callable[[str], Chunks] | None
    ) -> StoredFile:
        file_id = _id_of(link, task_id)
        kept = await asyncio.to_thread(self.stored.keep_until, file_id, expires)
        if not kept:
            name = link.filename or unquote(urlsplit(link.url).path).rpartition("/")[2]
            header = FileHeader(safe_name(name), link.media_type)
            download = (chunks or self.downloader.chunks)(link.url)
            await self._write(file_id, header, download, expires)
        found = await self.find(file_id)
        if found is None:  # it was deleted in the meantime
            raise FileNotFoundError(file_id)
        return found

    async def _write(
        self,
        file_id: str,
        header: FileHeader | None,
        chunks: Chunks,
        expires: int,
        ending: str = "",
    ) -> None:
        draft = await asyncio.to_thread(self.stored.draft, file_id, header, ending)
        try:
            async with aclosing(chunks):
                pending = bytearray()
                async for chunk in chunks:
                    pending += chunk
                    if len(pending) >= _PIECE:
                        await asyncio.to_thread(draft.write, bytes(pending))
                        pending.clear()
                await asyncio.to_thread(draft.write, bytes(pending))
            await asyncio.to_thread(draft.commit, expires)
        finally:
            draft.discard()

    def _link(self, file: Blob | Link, file_id: str, name: str, expires: int) -> Link:
        if not self.base:
            raise ConfigError("Files have no address here: set server.public_url")
        return Link(
            f"{self.base}{self.signer.sign(file_id, name, expires)}",
            filename=file.filename,
            media_type=file.media_type,
            metadata=file.metadata,
        )


def files_folder(settings: Settings) -> Path | None:
    """Returns the folder of the files: that of the settings, or one beside the store. None for a
    store that is not on this machine."""
    if settings.files.folder:
        return Path(settings.files.folder)
    store = settings.server.store
    folder = folder_of(store)
    if folder is None:
        return None
    if store.startswith("sqlite:"):
        return folder / f"{Path(store).name}.files"
    return folder / "files"


def delete_files(settings: Settings, task_ids: Iterable[str]) -> None:
    """Deletes the files of tasks that are erased."""
    folder = files_folder(settings)
    if folder is None or not folder.is_dir():
        return
    stored = StoredFiles(folder, max_size=0, max_total=0)
    for task_id in task_ids:
        stored.delete_task(task_id)


def _id_of(link: Link, task_id: str) -> str:
    """Returns the id of a file that came from another address."""
    return f"{folder_name(task_id)}-{_digest(link.url)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
