"""Rooms on this machine, for trying it out: `lite+loopback://HUB/ROOM`."""

from __future__ import annotations

import asyncio
import getpass
import re
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import TypeVar

from dragoman.core.errors import ConfigError, Conflict, PeerUnreachable, TooLarge
from dragoman.core.log import Logger
from dragoman.net.reconnect_policy import ReconnectPolicy
from dragoman.settings.chat import LoopbackSettings

from .channel import ChannelLimits, ChatFile, ChatMessage, Cursor, MemoryCursor, mentions
from .hub import (
    FILE_SIZE,
    TEXT,
    AnyHubCall,
    Enter,
    Fetch,
    Hub,
    HubEntry,
    HubLink,
    Join,
    PostedFile,
    Read,
    Reading,
    Said,
    Say,
)
from .shared_hub import HubServer, find_hub

log = Logger("chat")

LIMITS = ChannelLimits(text=TEXT, unit="bytes", file_size=FILE_SIZE, messages_per_second=1_000.0)
POLL = 20.0
"""The seconds for which one read waits for news."""
_HUBS: dict[str, Hub] = {}
"""The hubs of this process that are not shared with others."""

T = TypeVar("T")


class LoopbackChannel:
    """A member of a hub."""

    kind = "loopback"

    def __init__(self, settings: LoopbackSettings, cursor: Cursor | None = None) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", settings.hub):
            raise ConfigError(f"A hub has a short, plain name, not {settings.hub!r}.")
        self._settings, self._cursor = settings, cursor or MemoryCursor()
        self.me = settings.user or _login_name()
        self.names: tuple[str, ...] = (self.me,)
        self.limits = LIMITS.at_rate(settings.messages_per_second)
        self._link: HubLink | None = None
        self._server: HubServer | None = None
        self._turn = asyncio.Lock()
        self._rooms: dict[str, None] = {}
        self._epoch, self._position = "", 0
        self._closing = False

    async def connect(self) -> None:
        """Enters the hub."""
        try:
            await self._enter()
        except Conflict as exc:
            if self._settings.user:
                raise ConfigError(f"{exc.message}; choose another user.") from None
            self.me = f"{self.me}-{secrets.token_hex(3)}"
            self.names = (self.me,)
            await self._enter()

    async def join(self, room: str) -> str:
        """Enters a room, which is created if there is none."""
        call = Join(self.me, room.lstrip("#") or "room")
        found = await self._ask(lambda: call, str)
        self._rooms[found] = None
        return found

    async def hear(self) -> AsyncGenerator[ChatMessage, None]:
        """Yields what the others say."""
        while not self._closing:
            try:
                reading = await self._ask(self._read, Reading)
            except PeerUnreachable:
                if self._closing:
                    return
                raise
            epoch = self._epoch
            for said in reading.said:
                yield self._message(said)
                if self._epoch == epoch:  # otherwise this is no position in the log of now
                    await self._heard(said.seq)
            if self._epoch == epoch:
                self._position = max(self._position, reading.seq)

    async def say(self, room: str, text: str, *, reply_to: str = "", key: str = "") -> str:
        """Says something to everybody in the room."""
        self.limits.check_text(text)
        call = Say(self.me, room, text, reply_to, key or _new_key())
        return await self._ask(lambda: call, str)

    async def send_file(
        self, room: str, name: str, media_type: str, body: bytes, *, key: str = ""
    ) -> str:
        """Posts a file, which the hub keeps for a while."""
        self.limits.check_file(body)
        file = PostedFile(secrets.token_hex(12), name, media_type, len(body))
        call = Say(self.me, room, key=key or _new_key(), file=file, body=body)
        return await self._ask(lambda: call, str)

    async def fetch_file(self, file: ChatFile, limit: int) -> bytes:
        """Returns the content of a file that the hub still has."""
        if (file.size or 0) > limit:
            raise TooLarge(f"The file {file.name} is larger than {limit} bytes")
        call = Fetch(self.me, str(file.source))
        return await self._ask(lambda: call, bytes)

    async def close(self) -> None:
        """Leaves the hub. If this member holds it, another one takes its place."""
        self._closing = True
        if self._link is not None:
            self._link.leave(self.me)
        if self._server is not None:
            await self._server.close()
            self._server = None

    def _read(self) -> Read:
        return Read(self.me, self._position, POLL)

    async def _ask(self, call: Callable[[], AnyHubCall], answer: type[T]) -> T:
        """Asks the hub, and the one that takes its place if it is gone. What is said has a key, so
        a hub that is still there does not hear it twice."""
        policy = ReconnectPolicy(first=0.1, tries=12)
        while True:
            link = self._link
            if link is None or self._closing:
                raise PeerUnreachable("The channel is not connected")
            try:
                return await link.ask(call(), answer)
            except PeerUnreachable:
                pause = policy.next_pause(0.0)
                if pause is None or self._closing:
                    raise
            async with self._turn:
                if self._link is link:
                    with suppress(PeerUnreachable, Conflict):  # a name is free again soon
                        await self._enter()
                if self._link is not link:
                    continue
            await asyncio.sleep(pause)

    async def _enter(self) -> None:
        settings = self._settings
        link: HubLink = _HUBS.setdefault(settings.hub, Hub())
        if settings.shared:
            if self._link is not None:
                self._link.leave(self.me)
            if self._server is not None:
                await self._server.close()
            link, self._server = await find_hub(settings.hub)
        try:
            entry = await link.ask(Enter(self.me, settings.person), HubEntry)
            for room in self._rooms:
                await link.ask(Join(self.me, room), str)
        except BaseException:
            if settings.shared:
                link.leave(self.me)
            raise
        known, _, seq = (await self._cursor.load()).partition(":")
        # Whatever is in the log of another hub was said while we were away.
        self._position = int(seq) if known == entry.epoch else (0 if known else entry.seq)
        self._epoch = entry.epoch
        if self._link is not None:
            log.info("Back in the hub", hub=settings.hub, user=self.me)
        self._link = link
        await self._heard(self._position)

    async def _heard(self, seq: int) -> None:
        self._position = max(self._position, seq)
        await self._cursor.save(f"{self._epoch}:{self._position}")

    def _message(self, said: Said) -> ChatMessage:
        files: tuple[ChatFile, ...] = ()
        if said.file is not None:
            name, media_type, size = said.file.name, said.file.media_type, said.file.size
            files = (ChatFile(name=name, media_type=media_type, size=size, source=said.file.id),)
        return ChatMessage(
            id=said.id,
            room=said.room,
            direct=len(said.members) == 2,
            sender=said.sender,
            sender_name=said.sender,
            text=said.text,
            files=files,
            mentioned=said.reply_sender == self.me or mentions(self.me, said.text),
            from_bot=not said.person,
            reply_to=said.reply_to,
            at=said.at,
        )


def _login_name() -> str:
    """Returns the name of the user of this machine, who is the same member next time."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        return "someone"
    return re.sub(r"\W+", "-", name) or "someone"


def _new_key() -> str:
    return secrets.token_hex(8)
