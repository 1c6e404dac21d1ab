"""Rooms on this machine, for trying it out: `lite+loopback://HUB/ROOM`."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator
from typing import Protocol

from dragoman.core.errors import ConfigError, Conflict, TooLarge
from dragoman.settings.chat import LoopbackSettings

from .channel import ChannelLimits, ChatFile, ChatMessage, Cursor, MemoryCursor
from .hub import FILE_SIZE, TEXT, Hub, PostedFile, Reading, Said

POLL = 20.0
"""The seconds for which one read waits for news."""
_HUBS: dict[str, Hub] = {}
"""The hubs of this process that are not shared with others."""


class HubLink(Protocol):
    """A hub in this process or in another one."""

    async def enter(self, name: str, *, person: bool) -> tuple[str, int]: ...

    async def join(self, name: str, room: str) -> str: ...

    async def say(
        self,
        name: str,
        room: str,
        text: str,
        *,
        reply_to: str = "",
        key: str = "",
        file: PostedFile | None = None,
        body: bytes = b"",
    ) -> str: ...

    async def read(self, name: str, after: int, seconds: float) -> Reading: ...

    async def fetch(self, file_id: str) -> bytes: ...

    def leave(self, name: str) -> None: ...


class LoopbackChannel:
    """A member of a hub."""

    kind = "loopback"

    def __init__(self, settings: LoopbackSettings, cursor: Cursor | None = None) -> None:
        self._settings, self._cursor = settings, cursor or MemoryCursor()
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", settings.hub):
            raise ConfigError(f"A hub has a short, plain name, not {settings.hub!r}.")
        self.me = settings.user or f"someone-{secrets.token_hex(3)}"
        self.names: tuple[str, ...] = (self.me,)
        self.limits = ChannelLimits(
            text=TEXT,
            unit="bytes",
            file_size=FILE_SIZE,
            messages_per_second=settings.messages_per_second or 1_000.0,
        )
        self._link: HubLink | None = None
        self._position = 0
        self._epoch = ""
        self._closing = asyncio.Event()

    async def connect(self) -> None:
        """Enters the hub."""
        link = _HUBS.setdefault(self._settings.hub, Hub())
        try:
            epoch, end = await link.enter(self.me, person=self._settings.person)
        except Conflict as exc:
            raise ConfigError(f"{exc.message}; choose another user.") from None
        known, _, seq = (await self._cursor.load()).partition(":")
        # Whatever is in the log of another hub was said while we were away.
        self._position = int(seq) if known == epoch else (0 if known else end)
        self._link, self._epoch = link, epoch
        await self._heard(self._position)

    async def join(self, room: str) -> str:
        """Enters a room, which is created if there is none."""
        return await self._hub().join(self.me, room.lstrip("#") or "room")

    async def hear(self) -> AsyncGenerator[ChatMessage, None]:
        """Yields what the others say."""
        while not self._closing.is_set():
            reading = await self._hub().read(self.me, self._position, POLL)
            for said in reading.said:
                yield self._message(said)
                await self._heard(said.seq)
            self._position = max(self._position, reading.seq)

    async def say(self, room: str, text: str, *, reply_to: str = "", key: str = "") -> str:
        """Says something to everybody in the room."""
        if self.limits.size(text) > self.limits.text:
            raise TooLarge(f"A message here has at most {self.limits.text} bytes")
        return await self._hub().say(self.me, room, text, reply_to=reply_to, key=key)

    async def send_file(
        self, room: str, name: str, media_type: str, body: bytes, *, key: str = ""
    ) -> str:
        """Posts a file, which the hub keeps for a while."""
        if len(body) > FILE_SIZE:
            raise TooLarge(f"A file here has at most {FILE_SIZE} bytes")
        file = PostedFile(secrets.token_hex(12), name, media_type, len(body))
        return await self._hub().say(self.me, room, "", key=key, file=file, body=body)

    async def fetch_file(self, file: ChatFile, limit: int) -> bytes:
        """Returns the content of a file that the hub still has."""
        if (file.size or 0) > limit:
            raise TooLarge(f"The file {file.name} is larger than {limit} bytes")
        return await self._hub().fetch(str(file.source))

    async def close(self) -> None:
        """Leaves the hub."""
        self._closing.set()
        if self._link is not None:
            self._link.leave(self.me)

    def _hub(self) -> HubLink:
        if self._link is None:
            raise ConfigError("The channel is not connected")
        return self._link

    async def _heard(self, seq: int) -> None:
        self._position = max(self._position, seq)
        await self._cursor.save(f"{self._epoch}:{self._position}")

    def _message(self, said: Said) -> ChatMessage:
        file = said.file
        return ChatMessage(
            id=str(said.seq),
            room=said.room,
            sender=said.sender,
            sender_name=said.sender,
            text=said.text,
            files=(
                ChatFile(
                    name=file.name, media_type=file.media_type, size=file.size, source=file.id
                ),
            )
            if file
            else (),
            direct=len(said.members) == 2,
            mentioned=said.reply_sender == self.me
            or re.search(rf"@{re.escape(self.me)}\b", said.text) is not None,
            from_bot=not said.person,
            reply_to=said.reply_to,
            at=said.at,
        )
