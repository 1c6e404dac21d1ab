"""What a chat channel is: it joins rooms, says and hears messages, and carries files.

    channel = channel_from(MatrixSettings(homeserver="https://...", user="@bot:..."))
    await channel.connect()
    room = await channel.join("#team:example.org")
    async for message in channel.hear():
        await channel.say(message.room, "Hello", reply_to=message.id)

A channel moves texts and files, and knows no protocol. All kinds keep these promises, which
`tests/net/chat/contract.py` checks for each of them:

- `hear` yields what others say in the rooms that were joined, and in direct conversations, in the
  order of the server. It never yields what this channel said itself, nor edits, nor what was said
  before the first start.
- A message counts as heard when the next one is asked for. Only then is the cursor moved past it,
  so a process that dies while it handles a message hears that message again after its restart, if
  the server still has it. What was said meanwhile is heard then as well.
- `say` sends one message that is within `limits`, and respects the rate limits of the server, so it
  may take a while. It returns after the server has taken the message, as far as it tells. If the
  connection is down, it waits for the next one for a limited time.
- The connection is opened again by itself, with growing pauses. `hear` ends when the channel is
  closed, and raises a `DragomanError` if the server will never take us back, for example because
  the token was revoked.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.errors import TooLarge


class ChatFile(Struct, frozen=True, kw_only=True):
    """A file that somebody posted."""

    name: str
    media_type: str = ""
    size: int | None = None
    """Its size in bytes, if the channel says so."""
    source: object = None
    """What the channel needs to fetch it."""


class ChatMessage(Struct, frozen=True, kw_only=True):
    """Something that somebody said in a room."""

    id: str
    """The id of the message; the same if it is heard again after a restart, where the channel has
    ids of its own."""
    room: str
    """The room's own id, as `join` returns it."""
    sender: str
    """The identity of the sender, as the channel authenticates it."""
    text: str
    sender_name: str = ""
    """The name that people see."""
    files: tuple[ChatFile, ...] = ()
    direct: bool = False
    """Whether the room has only two members: the sender and us."""
    mentioned: bool = False
    """Whether the channel itself says that we are addressed: by a mention, or because this is a
    reply to a message of ours."""
    from_bot: bool = False
    """Whether the channel itself says that the sender is a program."""
    reply_to: str = ""
    """The id of the message that this one replies to, if the channel says so."""
    at: int = 0
    """When it was said, in milliseconds since 1970 by the server's clock; 0 if it is unknown."""


class ChannelLimits(Struct, frozen=True, kw_only=True):
    """What fits into a channel."""

    text: int
    """The longest text of one message, as `size` measures it."""
    unit: Literal["bytes", "characters", "utf-16"] = "characters"
    multiline: bool = True
    """Whether a text of several lines is one message of the channel. Otherwise each line is sent,
    paced and heard as one of its own, without the empty ones."""
    files: bool = True
    file_size: int = 0
    """The largest file that can be sent, in bytes."""
    messages_per_second: float = 1.0
    """How many messages per second we send in the long run; some more may go at once."""

    def size(self, text: str) -> int:
        """Returns how long a text is in this channel's unit."""
        match self.unit:
            case "bytes":
                return len(text.encode("utf-8", "surrogatepass"))
            case "utf-16":
                return len(text.encode("utf-16-le", "surrogatepass")) // 2
            case _:
                return len(text)

    def check_text(self, text: str) -> None:
        """Raises `TooLarge` if a text does not fit into one message."""
        if self.size(text) > self.text:
            unit = "bytes" if self.unit == "bytes" else "characters"
            raise TooLarge(f"A message has at most {self.text} {unit} here")

    def check_file(self, body: bytes) -> None:
        """Raises `TooLarge` if a file cannot be sent."""
        if len(body) > self.file_size:
            raise TooLarge(f"A file has at most {self.file_size} bytes here")

    def at_rate(self, per_second: float | None) -> ChannelLimits:
        """Returns these limits with another rate of messages, if one is given."""
        return replace(self, messages_per_second=per_second) if per_second else self


class Channel(Protocol):
    """A connection to a chat service under one identity."""

    @property
    def kind(self) -> str:
        """The name in `[channels.NAME] kind = ...`."""
        ...

    @property
    def limits(self) -> ChannelLimits:
        """What fits into the channel now; the server may tell more after `connect` or `join`."""
        ...

    @property
    def me(self) -> str:
        """Our own identity in the channel, known after `connect`."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which people address us in a text, known after `connect`."""
        ...

    async def connect(self) -> None:
        """Opens the connection and proves who we are. Raises `ConfigError` if the settings or the
        credentials are wrong, and `PeerUnreachable` if there is no answer."""
        ...

    async def join(self, room: str) -> str:
        """Joins a room by its name or id, so that it is heard, and returns its id. Raises
        `ConfigError` if we may not, or cannot take part in it."""
        ...

    def hear(self) -> AsyncGenerator[ChatMessage, None]:
        """Yields what others say. Only one caller may hear at a time."""
        ...

    async def say(self, room: str, text: str, *, reply_to: str = "", key: str = "") -> str:
        """Sends one message and returns its id. Where the service supports it, two calls with the
        same `key` send one message, so a restart does not repeat it.

        Raises `TooLarge` if it exceeds the limits, `PeerRefused` if the server does not take it,
        and `PeerUnreachable` if the connection did not come back in time."""
        ...

    async def send_file(
        self, room: str, name: str, media_type: str, body: bytes, *, key: str = ""
    ) -> str:
        """Posts a file and returns the id of its message. Raises as `say` does, and `Unsupported`
        if the channel has no files."""
        ...

    async def fetch_file(self, file: ChatFile, limit: int) -> bytes:
        """Returns the content of a file that was posted. Raises `TooLarge` above the limit in
        bytes, and `PeerUnreachable` if it cannot be had."""
        ...

    async def close(self) -> None:
        """Leaves no connection and no task behind. The account stays a member of its rooms."""
        ...


def mentions(name: str, text: str) -> bool:
    """Returns whether a text has `@name` as a word, for channels that have no mentions of their
    own."""
    return re.search(rf"(?<![\w@])@{re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


class Cursor(Protocol):
    """Where a channel notes how far it has heard. The text is the channel's own affair."""

    async def load(self) -> str:
        """Returns what was saved last, or an empty text."""
        ...

    async def save(self, mark: str) -> None:
        """Replaces the note."""
        ...


class MemoryCursor:
    """A cursor that lives as long as the process."""

    def __init__(self, mark: str = "") -> None:
        self.mark = mark

    async def load(self) -> str:
        """Returns what was saved last."""
        return self.mark

    async def save(self, mark: str) -> None:
        """Replaces the note."""
        self.mark = mark


class FileCursor:
    """A cursor in a file. It is replaced as a whole, so a crash leaves the old or the new one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load(self) -> str:
        """Returns the content of the file; empty if there is none."""
        return await asyncio.to_thread(self._read)

    async def save(self, mark: str) -> None:
        """Replaces the file."""
        await asyncio.to_thread(self._write, mark)

    def _read(self) -> str:
        try:
            return self._path.read_text("utf-8")
        except FileNotFoundError:
            return ""

    def _write(self, mark: str) -> None:
        fresh = self._path.with_name(f"{self._path.name}.new")
        fresh.write_text(mark, "utf-8")
        os.replace(fresh, self._path)
