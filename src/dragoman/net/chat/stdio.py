"""A room for scripts: one JSON object per line on standard input, and one on standard output.

    {"room": "team", "from": "bob", "text": "Hello", "files": []}

A line that comes in may also have `id`, `reply_to`, `name` (of the sender), `bot`, `mentioned`, and
`direct`, which is true unless it says otherwise. A line that goes out has `id` too, and `reply_to`
if it is a reply. A file is `{"name", "media_type", "content"}` with its content in Base64. A line
that cannot be read is logged and left out. The end of the input is the end of the channel.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from typing import BinaryIO

import msgspec
from msgspec import Struct

from dragoman.core.errors import PeerRefused, PeerUnreachable, TooLarge
from dragoman.core.log import Logger
from dragoman.settings.chat import StdioSettings

from .channel import ChannelLimits, ChatFile, ChatMessage, Cursor, mentions
from .inbox import ChatInbox

log = Logger("chat")

FILE_SIZE = 16 * 1024 * 1024
LIMITS = ChannelLimits(
    text=256 * 1024, unit="bytes", file_size=FILE_SIZE, messages_per_second=1_000.0
)
LINE = 2 * FILE_SIZE
"""The longest line: a file in Base64, and what stands beside it."""
MOST_IDS = 1_000
"""The messages of ours that a reply may name."""


class _File(Struct):
    name: str
    media_type: str = ""
    content: bytes = b""


class _Line(Struct, kw_only=True, rename={"sender": "from"}):
    room: str
    sender: str
    text: str = ""
    files: list[_File] = []
    id: str = ""
    reply_to: str = ""
    name: str = ""
    direct: bool = True
    mentioned: bool = False
    bot: bool = False


_lines = msgspec.json.Decoder(_Line)


class StdioChannel:
    """The standard input and output of this process."""

    kind = "stdio"

    def __init__(
        self,
        settings: StdioSettings,
        _: Cursor | None = None,
        stdin: BinaryIO | None = None,
        stdout: BinaryIO | None = None,
    ) -> None:
        self._stdin, self._stdout = stdin or sys.stdin.buffer, stdout or sys.stdout.buffer
        self.me = settings.user
        self.names: tuple[str, ...] = (self.me,)
        self.limits = LIMITS.at_rate(settings.messages_per_second)
        self._inbox = ChatInbox()
        self._rooms: set[str] = set()
        self._said: OrderedDict[str, None] = OrderedDict()
        self._turn = asyncio.Lock()

    async def connect(self) -> None:
        """Begins to read."""
        loop = asyncio.get_running_loop()
        # A read of standard input cannot be cancelled, so no worker of the pool may wait in it: the
        # process could not end before the next line.
        threading.Thread(target=self._read, args=(loop,), name="stdin", daemon=True).start()

    async def join(self, room: str) -> str:
        """Notes that there is such a room."""
        self._rooms.add(room)
        return room

    def hear(self) -> AsyncGenerator[ChatMessage, None]:
        """Yields the lines that come in."""
        return self._inbox.hear()

    async def say(self, room: str, text: str, *, reply_to: str = "", key: str = "") -> str:
        """Writes a line."""
        self.limits.check_text(text)
        return await self._send(room, text, reply_to, [])

    async def send_file(
        self, room: str, name: str, media_type: str, body: bytes, *, key: str = ""
    ) -> str:
        """Writes a line with a file."""
        self.limits.check_file(body)
        return await self._send(room, "", "", [_File(name, media_type, body)])

    async def fetch_file(self, file: ChatFile, limit: int) -> bytes:
        """Returns the content that came with the line."""
        body = file.source if isinstance(file.source, bytes) else b""
        if len(body) > limit:
            raise TooLarge(f"The file {file.name} is larger than {limit} bytes")
        return body

    async def close(self) -> None:
        """Hears no more. Standard input and output stay open, for they are not ours."""
        self._inbox.stop()

    async def _send(self, room: str, text: str, reply_to: str, files: list[_File]) -> str:
        if room not in self._rooms:
            raise PeerRefused(f"Nobody has said anything in the room {room}")
        id = secrets.token_hex(8)
        line = {"room": room, "from": self.me, "text": text, "files": files, "id": id}
        if reply_to:
            line["reply_to"] = reply_to
        self._said[id] = None
        if len(self._said) > MOST_IDS:
            self._said.popitem(last=False)
        async with self._turn:
            try:
                await asyncio.to_thread(self._write, msgspec.json.encode(line) + b"\n")
            except OSError as exc:
                raise PeerUnreachable(f"Standard output is closed: {exc}") from None
        return id

    def _write(self, line: bytes) -> None:
        self._stdout.write(line)
        self._stdout.flush()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """Runs in a thread of its own, and waits there while the inbox is full."""
        try:
            while line := self._stdin.readline(LINE):
                if message := self._message(line):
                    asyncio.run_coroutine_threadsafe(self._inbox.put(message), loop).result()
        except (OSError, ValueError):
            pass  # standard input was closed
        except RuntimeError:
            return  # the loop has ended
        try:
            loop.call_soon_threadsafe(self._inbox.end)
        except RuntimeError:
            return

    def _message(self, line: bytes) -> ChatMessage | None:
        try:
            found = _lines.decode(line)
            self.limits.check_text(found.text)
        except (msgspec.MsgspecError, TooLarge) as exc:
            if line.strip():
                log.warning("A line of standard input is left out", why=exc)
            return None
        self._rooms.add(found.room)
        return ChatMessage(
            id=found.id or secrets.token_hex(8),
            room=found.room,
            sender=found.sender,
            sender_name=found.name or found.sender,
            text=found.text,
            files=tuple(
                ChatFile(
                    name=each.name,
                    media_type=each.media_type,
                    size=len(each.content),
                    source=each.content,
                )
                for each in found.files
            ),
            direct=found.direct,
            mentioned=found.mentioned
            or found.reply_to in self._said
            or mentions(self.me, found.text),
            from_bot=found.bot,
            reply_to=found.reply_to,
            at=time.time_ns() // 1_000_000,
        )
