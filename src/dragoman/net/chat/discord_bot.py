"""Channels of a Discord server, as a bot hears them.

The cursor holds, for each channel, the id of the last message that was heard. Ids grow, and Discord
keeps messages, so what was said while the bot was away is read from the history of the channel.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from io import BytesIO
from typing import TypeVar

import aiohttp
import discord
import msgspec
import yarl

from dragoman.core.errors import ConfigError, DragomanError, PeerRefused, PeerUnreachable, TooLarge
from dragoman.core.log import Logger, quiet
from dragoman.settings.chat import DiscordSettings

from .channel import ChannelLimits, ChatFile, ChatMessage, Cursor, MemoryCursor
from .credentials import needed_secret
from .downloads import ChatDownloads
from .inbox import ChatInbox
from .outbox import LONGEST_PAUSE_SECONDS, Pace, deliver

log = Logger("chat")
quiet("discord")

LIMITS = ChannelLimits(
    text=2000, unit="utf-16", file_size=10 * 1024 * 1024, messages_per_second=1.0
)
BURST = 5
"""Discord takes five messages in five seconds in a channel."""
MISSED = 1_000
"""The most messages of a channel that are read back after an absence."""
UNREAD = 10_000
ANSWER = 60.0
"""The seconds in which Discord must answer."""
_HEARD = (discord.MessageType.default, discord.MessageType.reply)
_NOT_OURS = {
    4004: "Discord does not take the token.",
    4013: "Discord does not know the intents of the bot.",
    4014: "The bot may not read messages: switch on its message content intent.",
}
"""The codes with which the gateway refuses a bot for good."""

T = TypeVar("T")


class _Client(discord.Client):
    """Passes on what happens. None of it waits, so that the order is kept."""

    def __init__(
        self, on_said: Callable[[discord.Message], None], on_gap: Callable[[], None]
    ) -> None:
        intents = discord.Intents.none()
        intents.guilds = intents.messages = intents.message_content = True
        super().__init__(
            intents=intents,
            max_messages=None,
            guild_ready_timeout=0.0,  # nothing is kept of the servers
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            max_ratelimit_timeout=LONGEST_PAUSE_SECONDS,
            allowed_mentions=discord.AllowedMentions(everyone=False, roles=False),
        )
        self._on_said, self._on_gap = on_said, on_gap

    async def on_message(self, message: discord.Message) -> None:
        """Somebody said something."""
        self._on_said(message)

    async def on_ready(self) -> None:
        """A new session began, and what was said before it must be read back."""
        self._on_gap()


class DiscordChannel:
    """A bot."""

    kind = "discord"

    def __init__(self, settings: DiscordSettings, cursor: Cursor | None = None) -> None:
        self._settings, self._cursor = settings, cursor or MemoryCursor()
        self._token = needed_secret(settings.token, "DRAGOMAN_DISCORD_TOKEN", "token")
        self.limits = LIMITS.at_rate(settings.messages_per_second)
        self.me = ""
        self.names: tuple[str, ...] = ()
        self._pace = Pace.within(self.limits, BURST)
        self._inbox = ChatInbox(self._cursor)
        self._downloads = ChatDownloads(settings.api)
        self._client: _Client | None = None
        self._rooms: set[int] = set()
        self._last: dict[str, int] = {}
        """The last message of each channel that is in the inbox."""
        self._unread: asyncio.Queue[discord.Message | None] = asyncio.Queue(UNREAD)
        self._missed = True
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self) -> None:
        """Proves who we are."""
        _point_at(self._settings)
        noted = await self._cursor.load()
        self._last = msgspec.json.decode(noted, type=dict[str, int]) if noted else {}
        self._client = client = _Client(self._take, self._note_gap)
        try:
            await self._ask(lambda: client.login(self._token))
        except BaseException:
            await client.close()
            raise
        user = client.user
        if user is None:
            raise PeerUnreachable("Discord does not tell who we are")
        self.me = str(user.id)
        self.names = (user.name, f"<@{user.id}>", f"<@!{user.id}>")
        log.info("On Discord", bot=user.name)

    async def join(self, room: str) -> str:
        """Hears a channel from now on, by its id. A bot cannot join by itself: it is invited to a
        server, and may then read some of its channels."""
        if not room.isdigit():
            raise ConfigError(f"A channel of Discord is known by its id, not {room!r}.")
        try:
            found = await self._ask(lambda: self._bot().fetch_channel(int(room)))
        except PeerRefused as exc:
            raise ConfigError(
                f"The channel {room} cannot be joined: {exc.message}; let the bot read it."
            ) from exc
        self._rooms.add(found.id)
        if room not in self._last:
            self._last[room] = getattr(found, "last_message_id", None) or found.id
            await self._cursor.save(self._mark())
        return room

    def hear(self) -> AsyncGenerator[ChatMessage, None]:
        """Yields what others say in the channels that were joined, and to us alone."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._stay()), asyncio.create_task(self._pass_on())]
        return self._inbox.hear()

    async def say(self, room: str, text: str, *, reply_to: str = "", key: str = "") -> str:
        """Sends a message. The key becomes its nonce, by which Discord recognises it for some
        minutes."""
        self.limits.check_text(text)
        channel = self._place(room)
        nonce = hashlib.sha256(key.encode()).hexdigest()[:24] if key else secrets.token_hex(12)
        reference = None
        if reply_to.isdigit():
            reference = discord.MessageReference(
                message_id=int(reply_to), channel_id=channel.id, fail_if_not_exists=False
            )

        async def send() -> discord.Message:
            if reference is None:
                return await channel.send(text, suppress_embeds=True, nonce=nonce)
            return await channel.send(text, suppress_embeds=True, nonce=nonce, reference=reference)

        sent = await deliver(self._pace, lambda: self._ask(send), repeatable=True)
        return str(sent.id)

    async def send_file(
        self, room: str, name: str, media_type: str, body: bytes, *, key: str = ""
    ) -> str:
        """Sends a file as an attachment."""
        self.limits.check_file(body)
        channel = self._place(room)

        async def send() -> discord.Message:
            return await channel.send(file=discord.File(BytesIO(body), filename=name))

        return str((await deliver(self._pace, lambda: self._ask(send))).id)

    async def fetch_file(self, file: ChatFile, limit: int) -> bytes:
        """Downloads an attachment."""
        if (file.size or 0) > limit:
            raise TooLarge(f"The file {file.name} is larger than {limit} bytes")
        return await self._downloads.get(str(file.source), limit, name=file.name)

    async def close(self) -> None:
        """Ends the connection."""
        self._inbox.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()
            await asyncio.sleep(0)  # the package has just begun to tell about it
        await self._downloads.close()

    def _bot(self) -> _Client:
        if self._client is None:
            raise PeerUnreachable("The channel is not connected")
        return self._client

    def _place(self, room: str) -> discord.PartialMessageable:
        if not room.isdigit():
            raise PeerRefused(f"{room} is no channel of Discord")
        return self._bot().get_partial_messageable(int(room))

    async def _ask(self, request: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(ANSWER):
                return await request()
        except (discord.DiscordException, aiohttp.ClientError, TimeoutError, OSError) as exc:
            raise _meaning(exc) from exc

    async def _stay(self) -> None:
        """Keeps the connection to the gateway; the package opens it again by itself."""
        try:
            await self._bot().connect()
        except discord.PrivilegedIntentsRequired:
            self._inbox.end(ConfigError(_NOT_OURS[4014]))
        except discord.ConnectionClosed as exc:
            why = _NOT_OURS.get(exc.code or 0, f"Discord has ended the session ({exc.code}).")
            self._inbox.end(ConfigError(why))
        except (discord.DiscordException, aiohttp.ClientError, OSError) as exc:
            self._inbox.end(_meaning(exc))

    def _note_gap(self) -> None:
        self._missed = True
        self._offer(None)

    def _take(self, message: discord.Message) -> None:
        self._offer(message)

    def _offer(self, message: discord.Message | None) -> None:
        try:
            self._unread.put_nowait(message)
        except asyncio.QueueFull:  # it is read back from the history
            self._missed = True

    async def _pass_on(self) -> None:
        while True:
            message = await self._unread.get()
            if self._missed:
                self._missed = False
                await self._read_back()
            if message is not None:
                await self._put(message)

    async def _read_back(self) -> None:
        for room, last in [*self._last.items()]:
            try:
                channel = await self._ask(lambda room=room: self._bot().fetch_channel(int(room)))  # type: ignore[misc]
                history = getattr(channel, "history", None)
                if history is not None:
                    after = discord.Object(last)
                    async for message in history(limit=MISSED, after=after, oldest_first=True):
                        await self._put(message)
            except (DragomanError, discord.DiscordException, aiohttp.ClientError, OSError) as exc:
                log.warning("What was said meanwhile is lost", room=room, why=exc)

    async def _put(self, message: discord.Message) -> None:
        room = str(message.channel.id)
        direct = isinstance(message.channel, discord.DMChannel)
        if not direct and message.channel.id not in self._rooms:
            return
        if message.id <= self._last.get(room, 0):
            return
        self._last[room] = message.id
        if str(message.author.id) == self.me or message.type not in _HEARD:
            await self._inbox.note(self._mark())
            return
        await self._inbox.put(self._message(message, room, direct), self._mark())

    def _mark(self) -> str:
        return msgspec.json.encode(self._last).decode()

    def _message(self, said: discord.Message, room: str, direct: bool) -> ChatMessage:
        reference = said.reference
        return ChatMessage(
            id=str(said.id),
            room=room,
            sender=str(said.author.id),
            sender_name=said.author.display_name,
            text=said.content,
            files=tuple(
                ChatFile(
                    name=each.title or each.filename,
                    media_type=(each.content_type or "").partition(";")[0],
                    size=each.size,
                    source=each.url,
                )
                for each in said.attachments
            ),
            direct=direct,
            mentioned=any(str(user.id) == self.me for user in said.mentions),
            from_bot=said.author.bot or said.webhook_id is not None,
            reply_to=str(reference.message_id or "") if reference else "",
            at=round(said.created_at.timestamp() * 1000),
        )


def _point_at(settings: DiscordSettings) -> None:
    """Makes the package call another server. It has no option for that, only these attributes,
    which all clients of a process share."""
    gateway = discord.gateway.DiscordWebSocket
    discord.http.Route.BASE = settings.api.rstrip("/")
    if settings.gateway:
        gateway.DEFAULT_GATEWAY = yarl.URL(settings.gateway)


def _meaning(exc: Exception) -> DragomanError:
    what = str(exc) or type(exc).__name__
    match exc:
        case discord.LoginFailure():
            return ConfigError("Discord does not take the token.")
        case discord.HTTPException(status=413):
            return TooLarge(what)
        case discord.RateLimited() | discord.HTTPException(status=429):
            return PeerUnreachable(what)
        case discord.DiscordServerError():
            return PeerUnreachable(what, sent=True)
        case discord.HTTPException():
            return PeerRefused(exc.text or what)
        case aiohttp.ClientConnectorError():
            return PeerUnreachable(what)
        case _:
            return PeerUnreachable(what, sent=True)
