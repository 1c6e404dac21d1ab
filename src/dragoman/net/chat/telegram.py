"""Chats of a Telegram bot.

A bot hears private chats, and groups as far as its privacy mode lets it: by default only commands,
mentions and replies to itself. It does not hear other bots, unless the server lets it.

Telegram keeps what was said for a day, until the bot confirms it by asking for more. So the next
messages are asked for after the last ones were heard, and the cursor holds the number of the next.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

import aiogram
from aiogram import types
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import (
    AiogramError,
    TelegramBadRequest,
    TelegramEntityTooLarge,
    TelegramForbiddenError,
    TelegramMigrateToChat,
    TelegramNetworkError,
    TelegramNotFound,
    TelegramRetryAfter,
    TelegramUnauthorizedError,
)
from aiogram.utils.token import TokenValidationError

from dragoman.core.errors import ConfigError, DragomanError, PeerRefused, PeerUnreachable, TooLarge
from dragoman.core.log import Logger, quiet
from dragoman.net.reconnect_policy import ReconnectPolicy
from dragoman.settings.chat import TelegramSettings

from .channel import ChannelLimits, ChatFile, ChatMessage, Cursor, MemoryCursor
from .credentials import needed_secret
from .downloads import ChatDownloads
from .inbox import ChatInbox
from .outbox import PATIENCE, Pace, deliver, pause_in

log = Logger("chat")
quiet("aiogram")

BURST = 5
LIMITS = ChannelLimits(
    text=4096, unit="utf-16", file_size=50 * 1024 * 1024, messages_per_second=1.0
)
"""Telegram takes one message per second in a chat, and some more at once."""
LONG_POLL = 30
"""The seconds for which a request waits for news."""
ANSWER = 60

T = TypeVar("T")


class TelegramChannel:
    """A bot."""

    kind = "telegram"

    def __init__(self, settings: TelegramSettings, cursor: Cursor | None = None) -> None:
        self._settings, self._cursor = settings, cursor or MemoryCursor()
        self.limits = LIMITS.at_rate(settings.messages_per_second)
        token = needed_secret(settings.token, "DRAGOMAN_TELEGRAM_TOKEN", "token")
        api = TelegramAPIServer.from_base(settings.api.rstrip("/"))
        try:
            self._bot = aiogram.Bot(token, session=AiohttpSession(api=api, timeout=ANSWER))
        except TokenValidationError:
            raise ConfigError("The token of the Telegram bot is not one.") from None
        self._api = api
        self._downloads = ChatDownloads(settings.api)
        self.me = self._username = ""
        self.names: tuple[str, ...] = ()
        self._pace = Pace.within(self.limits, BURST)
        self._inbox = ChatInbox(self._cursor)
        self._rooms: set[int] = set()
        self._moved: dict[int, int] = {}
        """Groups that became supergroups, with their new ids."""
        self._next = 0
        self._task: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Proves who we are, and notes where the conversation stands."""
        me = await self._ask(self._bot.get_me)
        self.me, self._username = str(me.id), me.username or ""
        self.names = tuple(each for each in (self._username, me.first_name) if each)
        noted = await self._cursor.load()
        if noted:
            self._next = int(noted)
        else:
            last = await self._ask(lambda: self._bot.get_updates(offset=-1, limit=1, timeout=0))
            self._next = last[-1].update_id + 1 if last else 0
            await self._cursor.save(str(self._next))
        log.info("On Telegram", bot=self._username)

    async def join(self, room: str) -> str:
        """Hears a chat from now on, by its id or `@name`. A bot cannot join by itself: somebody
        has to add it."""
        number = int(room) if room.lstrip("-").isdigit() else 0
        try:
            chat = await self._ask(lambda: self._bot.get_chat(number or room))
        except PeerRefused as exc:
            raise ConfigError(
                f"The chat {room} cannot be joined: {exc.message}; add the bot to it."
            ) from exc
        self._rooms.add(chat.id)
        return str(chat.id)

    def hear(self) -> AsyncGenerator[ChatMessage, None]:
        """Yields what others say in the chats that were joined, and in private."""
        if self._task is None:
            self._task = asyncio.create_task(self._poll())
        return self._inbox.hear()

    async def say(self, room: str, text: str, *, reply_to: str = "", key: str = "") -> str:
        """Sends a message as plain text."""
        self.limits.check_text(text)
        reply = None
        if reply_to.isdigit():
            reply = types.ReplyParameters(
                message_id=int(reply_to), allow_sending_without_reply=True
            )
        return await self._send(
            room,
            lambda chat: self._bot.send_message(
                chat,
                text,
                parse_mode=None,
                reply_parameters=reply,
                link_preview_options=types.LinkPreviewOptions(is_disabled=True),
            ),
        )

    async def send_file(
        self, room: str, name: str, media_type: str, body: bytes, *, key: str = ""
    ) -> str:
        """Sends a file as a document."""
        self.limits.check_file(body)
        file = types.BufferedInputFile(body, name)
        return await self._send(
            room,
            lambda chat: self._bot.send_document(chat, file, disable_content_type_detection=True),
        )

    async def fetch_file(self, file: ChatFile, limit: int) -> bytes:
        """Downloads a file from the Bot API server."""
        if (file.size or 0) > limit:
            raise TooLarge(f"The file {file.name} is larger than {limit} bytes")
        found = await self._ask(lambda: self._bot.get_file(str(file.source)))
        if not found.file_path or ".." in found.file_path:
            raise PeerUnreachable(f"The file {file.name} cannot be read")
        url = self._api.file_url(self._bot.token, found.file_path)
        return await self._downloads.get(url, limit, name=file.name)

    async def close(self) -> None:
        """Ends the connection."""
        self._inbox.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._bot.session.close()
        await self._downloads.close()

    async def _send(self, room: str, send: Callable[[int], Awaitable[types.Message]]) -> str:
        if not room.lstrip("-").isdigit():
            raise PeerRefused(f"{room} is no chat")
        chat = int(room)

        async def attempt() -> types.Message:
            try:
                return await self._ask(lambda: send(self._moved.get(chat, chat)))
            except TelegramMigrateToChat as exc:
                self._move(chat, exc.migrate_to_chat_id)
                return await self._ask(lambda: send(self._moved[chat]))

        return str((await deliver(self._pace, attempt)).message_id)

    async def _ask(self, request: Callable[[], Awaitable[T]]) -> T:
        """Makes a request, and makes it again if the server asks for a pause."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return await request()
            except TelegramRetryAfter as exc:
                pause = pause_in(exc.retry_after)
                if time.monotonic() + pause > deadline:
                    raise PeerUnreachable("Telegram takes no more messages for now") from exc
                await asyncio.sleep(pause)
            except TelegramMigrateToChat:
                raise
            except (AiogramError, TimeoutError, OSError) as exc:
                raise _meaning(exc) from exc

    async def _poll(self) -> None:
        policy = ReconnectPolicy(first=1.0, tries=None)
        while True:
            began = time.monotonic()
            try:
                updates = await self._ask(
                    lambda: self._bot.get_updates(
                        offset=self._next,
                        timeout=LONG_POLL,
                        allowed_updates=["message"],
                        request_timeout=ANSWER,
                    )
                )
            except ConfigError as exc:
                self._inbox.end(exc)
                return
            except DragomanError as exc:
                pause = policy.next_pause(time.monotonic() - began) or 1.0
                log.info("Telegram does not answer", why=exc.message, again=f"{pause:.1f}")
                await asyncio.sleep(pause)
                continue
            for update in updates:
                self._next = max(self._next, update.update_id + 1)
                message = self._message(update.message) if update.message else None
                if message is not None:
                    await self._inbox.put(message, str(self._next))
                else:
                    await self._inbox.note(str(self._next))
            await self._inbox.wait_until_heard()

    def _move(self, old: int, new: int) -> None:
        log.info("A group has become a supergroup", room=old, now=new)
        self._moved[old] = new
        self._rooms.add(new)

    def _message(self, said: types.Message) -> ChatMessage | None:
        chat, sender = said.chat, said.from_user
        if said.migrate_to_chat_id:
            self._move(chat.id, said.migrate_to_chat_id)
        private = chat.type == "private"
        if sender is None or str(sender.id) == self.me or not (private or chat.id in self._rooms):
            return None
        text, files = said.text or said.caption or "", _files(said)
        if not text and not files:
            return None  # somebody came, a title changed, ...
        replied = said.reply_to_message
        author = replied.from_user if replied else None
        room = next((old for old, new in self._moved.items() if new == chat.id), chat.id)
        return ChatMessage(
            id=str(said.message_id),
            room=str(room),
            sender=str(sender.id),
            sender_name=sender.username or sender.full_name,
            text=text,
            files=files,
            direct=private,
            mentioned=self._is_named(said, text) or (author and str(author.id)) == self.me,
            from_bot=sender.is_bot,
            reply_to=str(replied.message_id) if replied else "",
            at=round(said.date.timestamp() * 1000),
        )

    def _is_named(self, said: types.Message, text: str) -> bool:
        for entity in said.entities or said.caption_entities or ():
            if entity.type == "text_mention" and entity.user and str(entity.user.id) == self.me:
                return True
            if entity.type in ("mention", "bot_command"):
                name = entity.extract_from(text).rpartition("@")[2]
                if name.lower() == self._username.lower():
                    return True
        return False


def _files(said: types.Message) -> tuple[ChatFile, ...]:
    found: list[ChatFile] = []
    if said.photo:  # in several sizes, the largest one last
        best = said.photo[-1]
        found.append(
            ChatFile(
                name=f"photo-{said.message_id}.jpg",
                media_type="image/jpeg",
                size=best.file_size,
                source=best.file_id,
            )
        )
    for kind in ("document", "audio", "video", "voice", "video_note"):
        file = getattr(said, kind)
        if file is not None:
            found.append(
                ChatFile(
                    name=getattr(file, "file_name", None) or f"{kind}-{said.message_id}",
                    media_type=getattr(file, "mime_type", None) or "",
                    size=file.file_size,
                    source=file.file_id,
                )
            )
    return tuple(found)


def _meaning(exc: Exception) -> DragomanError:
    what = getattr(exc, "message", "") or str(exc) or type(exc).__name__
    match exc:
        case TelegramUnauthorizedError():
            return ConfigError(f"Telegram does not take the token: {what}")
        case TelegramEntityTooLarge():
            return TooLarge(what)
        case TelegramBadRequest() | TelegramForbiddenError() | TelegramNotFound():
            return PeerRefused(what)
        case TelegramNetworkError():
            # Without a connection nothing was sent; afterwards nobody knows.
            return PeerUnreachable(what, sent="Cannot connect" not in what)
        case _:
            return PeerUnreachable(what, sent=True)
