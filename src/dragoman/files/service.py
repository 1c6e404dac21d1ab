"""The endpoint of the file door: `/files/...` at the root of the server.

A caller that has the address of a file may download it until the address expires. The signature is
the credential, and no other is required. A browser never shows a file as a page of ours.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from dragoman.core.errors import DragomanError
from dragoman.core.log import Logger
from dragoman.net.http.asgi import Handler, Header, Receive, Scope, Send, answer, headers_in
from dragoman.net.server_context import ServerContext
from dragoman.net.service import Service
from dragoman.observability.metrics import Family
from dragoman.security.route_policy import Policy, policy

from .file_door import FileDoor
from .signed_urls import FILES
from .stored_files import StoredFile

log = Logger("files")
PATTERN = f"{FILES}/*"
PIECE = 256 * 1024
"""The number of bytes that are read and sent at once."""
SLOWEST = 64 * 1024
"""The minimum rate in bytes per second of a download that takes longer than
`limits.answer_time`."""
SWEEP = 600.0
"""The longest time in seconds between two clean-ups."""
OCTETS = "application/octet-stream"
_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}")
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_SAFE: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; sandbox; frame-ancestors 'none'"),
    (b"cache-control", b"private, no-store"),
    (b"referrer-policy", b"no-referrer"),
)


class ByteRange(NamedTuple):
    """The requested part of a file."""

    first: int
    size: int


class FilesService(Service):
    """Serves the files of the door, and deletes those that have expired."""

    name = "files"

    def __init__(self, door: FileDoor, server: ServerContext) -> None:
        self.door, self._server = door, server
        self._open = 0
        """The running downloads."""
        self._served = self._refused = 0
        self._sweeper: asyncio.Task[None] | None = None

    def routes(self) -> Mapping[str, Mapping[str, Handler]]:
        """Returns the route of all files."""
        return {PATTERN: {"GET": self.download, "HEAD": self.download}}

    def patterns(self) -> Mapping[str, Callable[[str], bool]]:
        """Returns the pattern of the paths of this route."""
        return {PATTERN: lambda path: path.startswith(f"{FILES}/")}

    async def start(self) -> None:
        """Starts to delete files that have expired."""
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    async def stop(self) -> None:
        """Stops the clean-up, and deletes the files of a store in memory."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait({self._sweeper})
        await self.door.close()

    def metrics(self) -> tuple[Family, ...]:
        """Returns the number of downloads."""
        return (
            Family("files_served_total", "counter", "Downloads of files.", (f" {self._served}",)),
            Family(
                "files_refused_total",
                "counter",
                "Requests for files with an address that is wrong, has expired, or came when there "
                "were too many.",
                (f" {self._refused}",),
            ),
        )

    async def _sweep(self) -> None:
        while True:
            try:
                await self.door.sweep()
            except OSError as exc:  # the next clean-up may work
                log.warning("Old files could not be deleted", why=exc)
            await asyncio.sleep(min(SWEEP, max(1.0, self.door.expires / 4)))

    @policy(Policy.OPEN)
    async def download(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends a file, or the range of it that the request names."""
        head = scope["method"] == "HEAD"
        try:
            signed = self.door.signer.verify(scope["path"], scope["query_string"])
        except DragomanError:  # without a key, no address was ever signed
            signed = None
        # The disk is not touched for an address that we have not signed.
        if signed is None:
            await self._refuse(send, 404, "not_found", head=head)
            return
        if signed.expires <= time.time():
            await self._refuse(send, 410, "expired", head=head)
            return
        if self._open >= self.door.downloads:
            await self._refuse(send, 503, "too_many_downloads", head=head)
            return
        self._open += 1
        try:
            found = await self.door.find(signed.file_id)
            if found is None:
                await self._refuse(send, 404, "not_found", head=head)
                return
            self._served += 1
            await self._send(found, headers_in(scope["headers"]), send, head=head)
        finally:
            self._open -= 1

    async def _refuse(self, send: Send, status: int, error: str, *, head: bool) -> None:
        self._refused += 1
        extra = ((b"retry-after", b"5"), *_SAFE) if status == 503 else _SAFE
        await answer(send, status, msgspec.json.encode({"error": error}), extra=extra, head=head)

    async def _send(
        self, found: StoredFile, headers: Mapping[str, str], send: Send, *, head: bool
    ) -> None:
        whole = ByteRange(0, found.size)
        wanted = whole if "if-range" in headers else range_in(headers.get("range", ""), found.size)
        about = (*_SAFE, (b"accept-ranges", b"bytes"), _disposition(found.header.name))
        if wanted is None:
            unknown = (b"content-range", b"bytes */%d" % found.size)
            await answer(send, 416, b"", _type(OCTETS), (*about, unknown), head=head)
            return
        if wanted != whole:
            last = wanted.first + wanted.size - 1
            said = b"bytes %d-%d/%d" % (wanted.first, last, found.size)
            about = (*about, (b"content-range", said))
        length = (b"content-length", b"%d" % wanted.size)
        fields = [_type(found.header.media_type), length, *about]
        status = 200 if wanted == whole else 206
        await send({"type": "http.response.start", "status": status, "headers": fields})
        if head or not wanted.size:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await self._send_content(found, wanted, send)

    async def _send_content(self, found: StoredFile, wanted: ByteRange, send: Send) -> None:
        """Sends the content in pieces, as they are read. A client that stops reading is cut off."""
        limits = self._server.limits
        handle = await asyncio.to_thread(os.open, found.path, os.O_RDONLY)
        try:
            async with asyncio.timeout(limits.answer_time + wanted.size / SLOWEST):
                at, left = found.start + wanted.first, wanted.size
                while left:
                    piece = await asyncio.to_thread(os.pread, handle, min(PIECE, left), at)
                    if not piece:
                        log.warning("A stored file is shorter than before", file=found.path.name)
                        return
                    at, left = at + len(piece), left - len(piece)
                    body = {"type": "http.response.body", "body": piece, "more_body": left > 0}
                    async with asyncio.timeout(limits.stall):
                        await send(body)
        except TimeoutError:
            # The server drops the unfinished response.
            self._server.metrics.streams_stalled += 1
            self._server.log.warning("A reader of an answer has stalled", size=wanted.size)
        finally:
            os.close(handle)


def range_in(text: str, size: int) -> ByteRange | None:
    """Returns the range in a header, or None if it cannot be satisfied. Anything but a single range
    of bytes is ignored, as RFC 9110 §14.2 allows."""
    found = _RANGE.fullmatch(text.replace(" ", ""))
    if found is None or not (found[1] or found[2]):
        return ByteRange(0, size)
    if not found[1]:
        last = min(int(found[2]), size)
        return ByteRange(size - last, last) if last else None
    first = int(found[1])
    end = min(int(found[2]), size - 1) if found[2] else size - 1
    if found[2] and int(found[2]) < first:
        return ByteRange(0, size)
    return ByteRange(first, end - first + 1) if first < size else None


def _type(declared: str) -> Header:
    known = declared if _TYPE.fullmatch(declared.partition(";")[0].strip()) else OCTETS
    plain = known.partition(";")[0].strip()
    return (b"content-type", plain.encode())


def _disposition(name: str) -> Header:
    plain = name.encode("ascii", "replace").replace(b'"', b"_").replace(b"\\", b"_")
    exact = quote(name.encode("utf-8", "replace"), safe="").encode()
    return (
        b"content-disposition",
        b"attachment; filename=\"%s\"; filename*=UTF-8''%s" % (plain, exact),
    )
