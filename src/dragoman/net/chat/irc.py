"""Rooms on an IRC network.

IRC has lines of 512 bytes and no files, keeps nothing for those who are away, and does not confirm
a message. So each line of a text is a message of its own, and a `PING` behind it, which the server
answers after it has dealt with the line, shows that it was taken or why it was not.

The identity of a sender is its account, if the server tells it (`account-tag`); then somebody
without an account is `~nick`, which cannot be an account. Otherwise it is the nick, which on most
networks anybody can take who comes first. Notices are never heard: they are how programs speak that
want no answer (RFC 2812 §3.3.2).
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncGenerator

import irc.client
from msgspec.structs import replace

from dragoman.core.errors import (
    ConfigError,
    DragomanError,
    PeerRefused,
    PeerUnreachable,
    TooLarge,
    Unsupported,
)
from dragoman.core.log import Logger
from dragoman.net.reconnect_policy import ReconnectPolicy
from dragoman.settings.chat import IrcSettings

from .channel import ChannelLimits, ChatFile, ChatMessage, Cursor
from .credentials import secret_of
from .inbox import ChatInbox
from .irc_session import IrcSession, folded
from .outbox import Pace

log = Logger("chat")

LINE = 400
"""The bytes of one line of text, at most: a line has 512, of which some are the server's."""
BURST, PER_SECOND = 5, 0.5
"""How much servers take without penalty (RFC 2813 §5.8): a message costs two seconds, and one may
be ten seconds ahead."""
LIMITS = ChannelLimits(
    text=LINE, unit="bytes", multiline=False, files=False, messages_per_second=PER_SECOND
)
BACK = 60.0
"""The seconds for which a message waits for the connection."""
UNREAD = 10_000
_FORBIDDEN = str.maketrans(dict.fromkeys("\0\x01\x10\r"))
"""Characters that end a line or make a command of it (CTCP)."""
_ROOM = re.compile(r"[^\s,:\0][^\s,\0]*")


class IrcChannel:
    """A user of an IRC network."""

    kind = "irc"

    def __init__(self, settings: IrcSettings, _: Cursor | None = None) -> None:
        self._settings = settings
        self._password = secret_of(settings.password, "DRAGOMAN_IRC_PASSWORD", "password")
        self.limits = LIMITS.at_rate(settings.messages_per_second)
        self._pace = Pace.within(self.limits, BURST)
        self._rooms: dict[str, str] = {}
        """The keys of the rooms that we are in, by their names."""
        self._session: IrcSession | None = None
        self._ready = asyncio.Event()
        self._inbox = ChatInbox()
        self._unread: asyncio.Queue[ChatMessage] = asyncio.Queue(UNREAD)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def me(self) -> str:
        """Our account or nick."""
        return self._session.identity if self._session else self._settings.nick

    @property
    def names(self) -> tuple[str, ...]:
        """The nick that we have now."""
        return (self._session.nick if self._session else self._settings.nick,)

    async def connect(self) -> None:
        """Logs in."""
        await self._log_in()
        self._tasks = [asyncio.create_task(self._stay()), asyncio.create_task(self._pass_on())]

    async def join(self, room: str) -> str:
        """Joins `#room`, also without the `#`, or with a key behind it; `@nick` is one person."""
        name, _, key = room.strip().partition(" ")
        if name.startswith("@"):
            return name[1:]
        name = folded(name if irc.client.is_channel(name) else f"#{name}")
        session = await self._current()
        if name not in session.members:
            await session.join(name, key.strip())
            self._measure(session)
        self._rooms[name] = key.strip()
        return name

    def hear(self) -> AsyncGenerator[ChatMessage, None]:
        """Yields what others say in the rooms, and to us alone."""
        return self._inbox.hear()

    async def say(self, room: str, text: str, *, reply_to: str = "", key: str = "") -> str:
        """Sends each line of the text as a message. The lines of two texts are never mixed."""
        lines = [line.translate(_FORBIDDEN) for line in text.split("\n")]
        lines = [line for line in lines if line] or [" "]
        if any(self.limits.size(line) > self.limits.text for line in lines):
            raise TooLarge(f"A line has at most {self.limits.text} bytes here")
        if not _ROOM.fullmatch(room):
            raise PeerRefused(f"{room!r} is no room")
        async with self._pace:
            session = await self._current()
            for number, line in enumerate(lines):
                if number:
                    await self._pace.wait()
                session.say(room, line)
            await session.confirm(room)
        return secrets.token_hex(8)

    async def send_file(
        self, room: str, name: str, media_type: str, body: bytes, *, key: str = ""
    ) -> str:
        """Raises `Unsupported`: IRC has no files."""
        raise Unsupported("IRC has no files")

    async def fetch_file(self, file: ChatFile, limit: int) -> bytes:
        """Raises `Unsupported`: IRC has no files."""
        raise Unsupported("IRC has no files")

    async def close(self) -> None:
        """Quits."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            self._session.hang_up()
        self._inbox.stop()

    async def _current(self) -> IrcSession:
        """Returns the session, as soon as there is one."""
        try:
            async with asyncio.timeout(BACK):
                await self._ready.wait()
        except TimeoutError:
            raise PeerUnreachable("The IRC server does not answer") from None
        if self._session is None:
            raise PeerUnreachable("The channel is not connected")
        return self._session

    async def _stay(self) -> None:
        """Opens the connection again whenever it is lost."""
        policy = ReconnectPolicy(first=1.0, tries=None)
        began = time.monotonic()
        while True:
            if self._session is not None:
                await self._session.watch()
                self._ready.clear()
                self._session.hang_up()
            pause = policy.next_pause(time.monotonic() - began) or 0.0
            host = self._settings.host
            log.info("The connection to IRC is down", host=host, again=f"{pause:.1f}")
            await asyncio.sleep(pause)
            began = time.monotonic()
            try:
                await self._log_in()
            except ConfigError as exc:
                self._inbox.end(exc)
                return
            except DragomanError as exc:
                began = time.monotonic()
                log.info("The IRC server does not answer", host=host, why=exc.message)

    async def _log_in(self) -> None:
        session = IrcSession(self._settings, self._password, self._take)
        await session.log_in()
        for room, key in [*self._rooms.items()]:
            try:
                await session.join(room, key)
            except ConfigError as exc:
                log.error("A room is lost", room=room, why=exc.message)
                del self._rooms[room]
        self._session = session
        self._measure(session)
        self._ready.set()

    def _measure(self, session: IrcSession) -> None:
        """A line must still fit when the server puts our full name before it."""
        self.limits = replace(self.limits, text=min(LINE, 512 - (session.overhead or 112)))

    def _take(self, message: ChatMessage) -> None:
        try:
            self._unread.put_nowait(message)
        except asyncio.QueueFull:  # the connection must go on, or the server ends it
            log.warning("Too much is said at once; a message is left out", room=message.room)

    async def _pass_on(self) -> None:
        while True:
            await self._inbox.put(await self._unread.get())
