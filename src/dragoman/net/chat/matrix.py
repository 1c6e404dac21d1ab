"""Rooms of a Matrix homeserver.

The cursor holds the sync token of the last batch that was heard as a whole, and the ids of those
messages of the next one that were heard already. Rooms with encryption are refused: a server that
reads along for an agent would have to be trusted with the keys of everybody in the room. A room
that is upgraded is followed to the one that takes its place, and keeps its id here, so that the
conversations in it go on.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from functools import partial
from io import BytesIO
from typing import Any

import msgspec
import nio
from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.errors import ConfigError, DragomanError, PeerRefused, PeerUnreachable, TooLarge
from dragoman.core.log import Logger
from dragoman.net.reconnect_policy import ReconnectPolicy
from dragoman.settings.chat import MatrixSettings

from .channel import ChannelLimits, ChatFile, ChatMessage, Cursor, MemoryCursor
from .downloads import ChatDownloads
from .inbox import ChatInbox
from .matrix_events import (
    file_out,
    is_encryption,
    is_join_of,
    media_path,
    message_in,
    message_out,
    replacement_in,
)
from .matrix_requests import LARGE_TIMEOUT_SECONDS, MatrixRequests
from .outbox import Pace, deliver

log = Logger("chat")

LIMITS = ChannelLimits(
    text=30_000,  # an event has 65,536 bytes in JSON, in which a quote or a line end is two
    unit="bytes",
    file_size=50 * 1024 * 1024,  # unless the server says less
    messages_per_second=2.0,
)
BURST = 10
LONG_POLL = 30.0
"""The seconds for which a sync waits for news."""
GAP = 2_000
"""The most events of a room that are read back after a long absence."""
REMEMBERED = 1_000
"""The messages of which the authors are known, for replies."""
_FILTER: dict[str, Any] = {
    "presence": {"types": []},
    "account_data": {"types": []},
    "room": {
        "account_data": {"types": []},
        "ephemeral": {"types": []},
        "state": {"lazy_load_members": True},
        "timeline": {
            "limit": 100,
            "types": [
                "m.room.message",
                "m.room.member",
                "m.room.encryption",
                "m.room.tombstone",
            ],
        },
    },
}
_FIRST_FILTER = {**_FILTER, "room": {**_FILTER["room"], "timeline": {"limit": 0}}}
"""Leaves out what happened, which is still to be heard."""


class _Mark(Struct, omit_defaults=True):
    since: str = ""
    seen: tuple[str, ...] = ()
    device: str = ""


class MatrixChannel:
    """A user of a homeserver."""

    kind = "matrix"

    def __init__(self, settings: MatrixSettings, cursor: Cursor | None = None) -> None:
        self._settings, self._cursor = settings, cursor or MemoryCursor()
        self._requests = MatrixRequests(settings)
        self._ask = self._requests.ask
        self.limits = LIMITS.at_rate(settings.messages_per_second)
        self.me = settings.user
        self.names: tuple[str, ...] = (settings.user,)
        self._pace = Pace.within(self.limits, BURST)
        self._inbox = ChatInbox(self._cursor)
        self._downloads = ChatDownloads(settings.homeserver)
        self._client: Any = None
        self._rooms: set[str] = set()
        self._encrypted: set[str] = set()
        self._moved: dict[str, str] = {}
        """The rooms that took the place of others, by the ids under which those were joined."""
        self._direct: dict[str, str] = {}
        """The rooms that were created for one user."""
        self._authors: OrderedDict[str, str] = OrderedDict()
        self._mark = _Mark()
        self._task: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Logs in, and notes where the conversation stands."""
        noted = await self._cursor.load()
        self._mark = msgspec.json.decode(noted, type=_Mark) if noted else _Mark()
        try:
            await self._log_in()
            found = await self._ask(self._client.content_repository_config)
            size = min(LIMITS.file_size, found.upload_size or LIMITS.file_size)
            self.limits = replace(self.limits, file_size=size)
            await self._catch_up()
        except BaseException:
            await self._requests.close()
            raise

    async def join(self, room: str) -> str:
        """Joins a room by its alias or id; `@user:server` is a conversation with one user."""
        if room.startswith("@"):
            room = await self._direct_room(room)
        try:
            found = await self._ask(self._client.join, room)
        except PeerRefused as exc:
            raise ConfigError(f"{room} cannot be joined: {exc.message}") from exc
        if await self._is_encrypted(found.room_id):
            await self._leave(found.room_id)
            raise ConfigError(
                f"{room} is encrypted, and Dragoman does not read encrypted rooms; use a room "
                "without encryption."
            )
        self._rooms.add(found.room_id)
        if replacement := await self._replacement(found.room_id):
            await self._follow(found.room_id, replacement)
        return self._known_as(str(found.room_id))

    def hear(self) -> AsyncGenerator[ChatMessage, None]:
        """Yields what others say in the rooms that were joined."""
        # Not before: what was said meanwhile in a room is for those who have joined it again.
        if self._task is None:
            self._task = asyncio.create_task(self._sync())
        return self._inbox.hear()

    async def say(self, room: str, text: str, *, reply_to: str = "", key: str = "") -> str:
        """Sends a message. The key becomes its transaction id, which the server sends once."""
        self.limits.check_text(text)
        msgtype = "m.notice" if self._settings.notices else "m.text"
        author = self._authors.get(reply_to, "")
        return await self._send(
            room, message_out(text, msgtype=msgtype, reply_to=reply_to, author=author), key
        )

    async def send_file(
        self, room: str, name: str, media_type: str, body: bytes, *, key: str = ""
    ) -> str:
        """Uploads a file and sends the message that names it."""
        self.limits.check_file(body)

        async def upload() -> Any:
            found, _ = await self._client.upload(
                BytesIO(body),
                content_type=media_type or "application/octet-stream",
                filename=name,
                filesize=len(body),
            )
            return found

        uploaded = await self._ask(upload, seconds=LARGE_TIMEOUT_SECONDS)
        content = file_out(name, media_type, len(body), uploaded.content_uri)
        return await self._send(room, content, key)

    async def fetch_file(self, file: ChatFile, limit: int) -> bytes:
        """Downloads a file from the homeserver, which has it from the server of its sender."""
        path = media_path(file.source)
        if not path:
            raise PeerUnreachable(f"The file {file.name} is not on Matrix")
        if (file.size or 0) > limit:
            raise TooLarge(f"The file {file.name} is larger than {limit} bytes")
        return await self._downloads.get(
            self._requests.homeserver + path,
            limit,
            name=file.name,
            headers={"Authorization": f"Bearer {self._client.access_token}"},
        )

    async def close(self) -> None:
        """Ends the connection. The device stays, so that nothing is sent twice after a restart."""
        self._inbox.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._requests.close()
        await self._downloads.close()

    # Requests.

    async def _log_in(self) -> None:
        self._mark.device = await self._requests.log_in(self._mark.device)
        self._client = self._requests.client
        self.me = self._client.user_id
        known = (self._requests.display_name, self.me[1:].partition(":")[0], self.me)
        self.names = tuple(dict.fromkeys(each for each in known if each))

    async def _send(self, room: str, content: dict[str, Any], key: str) -> str:
        room = self._moved.get(room, room)
        if room in self._encrypted:
            raise PeerRefused(f"{room} is encrypted")
        # The same for every attempt, so that one whose answer was lost is not said twice.
        digest = hashlib.sha256(key.encode()).hexdigest()[:32] if key else secrets.token_hex(16)
        send = partial(self._client.room_send, room, "m.room.message", content, tx_id=digest)
        sent = await deliver(self._pace, lambda: self._ask(send), repeatable=True)
        self._remember(sent.event_id, self.me)
        return str(sent.event_id)

    async def _direct_room(self, user: str) -> str:
        """Returns a room that has no other members than this user and us."""
        for room in self._client.rooms.values():
            others = {*room.users, *((room.summary and room.summary.heroes) or ())} - {self.me}
            if others == {user} and room.member_count == 2 and not room.encrypted:
                return str(room.room_id)
        if user not in self._direct:
            made = await self._ask(
                self._client.room_create,
                is_direct=True,
                invite=[user],
                preset=nio.RoomPreset.trusted_private_chat,
            )
            self._direct[user] = str(made.room_id)
        return self._direct[user]

    # What the server says.

    async def _catch_up(self) -> None:
        """Learns the state of the rooms. At the first start, what was said before is passed by."""
        # Servers give the same answer to the same question for minutes (Synapse: two), and after a
        # quick restart that would be an old one. The time limit makes it another question.
        timeout = 1 + secrets.randbelow(10_000)
        sync = partial(self._client.sync, timeout, _FIRST_FILTER, full_state=True)
        since = self._mark.since
        try:
            first = await self._ask(sync, since=since, seconds=LARGE_TIMEOUT_SECONDS)
        except PeerRefused as exc:
            if not since:
                raise
            log.warning("What was said meanwhile is lost", why=exc.message)
            self._mark.since = since = ""
            first = await self._ask(sync, seconds=LARGE_TIMEOUT_SECONDS)
        self._mark.since = since or first.next_batch
        await self._cursor.save(_encoded(self._mark))
        for room, info in first.rooms.join.items():
            for event in info.state:
                if is_encryption(event.source):
                    self._encrypted.add(room)
                elif (replacement := replacement_in(event.source)) in first.rooms.join:
                    self._moved[self._known_as(room)] = replacement
        await self._answer_invites(first)

    async def _sync(self) -> None:
        policy = ReconnectPolicy(first=1.0, tries=None)
        while True:
            began = time.monotonic()
            try:
                await self._take(await self._ask(self._poll))
                continue
            except ConfigError as exc:
                if not self._requests.has_password:
                    self._inbox.end(exc)
                    return
                why: DragomanError = exc
                try:
                    await self._log_in()  # the session was ended, which a password can mend
                    continue
                except ConfigError as refused:
                    self._inbox.end(refused)
                    return
                except DragomanError as failed:
                    why = failed
            except DragomanError as exc:
                why = exc
            pause = policy.next_pause(time.monotonic() - began) or 1.0
            log.info("Matrix does not answer", why=why.message, again=f"{pause:.1f}")
            await asyncio.sleep(pause)

    async def _poll(self) -> Any:
        return await self._client.sync(
            timeout=int(LONG_POLL * 1000), sync_filter=_FILTER, since=self._mark.since
        )

    async def _take(self, answer: Any) -> None:
        await self._answer_invites(answer)
        messages = []
        for room, info in answer.rooms.join.items():
            if room in self._rooms or self._settings.accept_invites:
                for source in await self._events(room, info):
                    await self._note_change(room, source)
                    if room in self._encrypted:
                        break
                    found = self._message(room, source)
                    if found is not None and found.id not in self._mark.seen:
                        messages.append(found)
        before, seen = self._mark, list(self._mark.seen)
        self._mark = _Mark(since=answer.next_batch, device=before.device)
        for number, message in enumerate(messages, 1):
            seen.append(message.id)
            self._remember(message.id, message.sender)
            last = number == len(messages)
            mark = self._mark if last else replace(before, seen=tuple(seen))
            await self._inbox.put(message, _encoded(mark))
        if not messages:
            await self._inbox.note(_encoded(self._mark))

    async def _events(self, room: str, info: Any) -> list[dict[str, Any]]:
        """Returns what happened in a room, the oldest first, and nothing from before we joined."""
        events = [event.source for event in info.timeline.events]
        token = info.timeline.prev_batch
        if info.timeline.limited and not any(is_join_of(each, self.me) for each in events):
            older: list[dict[str, Any]] = []
            while token and len(older) < GAP:
                page = await self._ask(
                    self._client.room_messages, room, start=token, end=self._mark.since, limit=100
                )
                older += [event.source for event in page.chunk]
                joined = any(is_join_of(event.source, self.me) for event in page.chunk)
                token = "" if joined or not page.chunk else page.end
            events = [*reversed(older), *events]
        for index in reversed(range(len(events))):
            if is_join_of(events[index], self.me):
                return events[index + 1 :]
        return events

    async def _note_change(self, room: str, source: dict[str, Any]) -> None:
        """Leaves a room that becomes encrypted, and follows one that is upgraded."""
        if is_encryption(source) and room not in self._encrypted:
            log.error("A room has become encrypted, and is left", room=room)
            await self._leave(room)
        elif replacement := replacement_in(source):
            await self._follow(room, replacement)

    async def _state(self, room: str, type: str) -> dict[str, Any] | None:
        """Returns the state of a room, or None if it has none of this type."""
        try:
            found = await self._ask(self._client.room_get_state_event, room, type)
        except PeerRefused:
            return None
        return {"type": type, "state_key": "", "content": found.content}

    async def _is_encrypted(self, room: str) -> bool:
        return await self._state(room, "m.room.encryption") is not None

    async def _replacement(self, room: str) -> str:
        return replacement_in(await self._state(room, "m.room.tombstone") or {})

    async def _leave(self, room: str) -> None:
        """Leaves an encrypted room, and neither hears nor says anything there from now on."""
        self._encrypted.add(room)
        self._rooms.discard(room)
        try:
            await self._ask(self._client.room_leave, room)
        except DragomanError as exc:
            log.warning("A room could not be left", room=room, why=exc.message)

    async def _follow(self, room: str, replacement: str) -> None:
        """Joins the room that takes the place of another one. Here it keeps the id of that one."""
        known_as = self._known_as(room)
        if self._moved.get(known_as) == replacement or replacement == known_as:
            return
        try:
            found = await self._ask(self._client.join, replacement)
            if await self._is_encrypted(found.room_id):
                log.error("An upgraded room is encrypted, and is left", room=found.room_id)
                await self._leave(found.room_id)
                return
        except DragomanError as exc:
            log.error("An upgraded room cannot be joined", room=replacement, why=exc.message)
            return
        log.info("A room was upgraded", room=room, now=found.room_id)
        self._moved[known_as] = str(found.room_id)
        self._rooms.add(str(found.room_id))

    def _known_as(self, room: str) -> str:
        """Returns the id under which a room is known here: that of the room it has replaced."""
        return next((old for old, new in self._moved.items() if new == room), room)

    def _message(self, room: str, source: dict[str, Any]) -> ChatMessage | None:
        found = message_in(
            source,
            room=self._known_as(room),
            me=self.me,
            name=self._requests.display_name,
            authors=self._authors,
        )
        if found is None:
            return None
        about = self._client.rooms.get(room)
        name = about.user_name(found.sender) if about else ""
        direct = bool(about) and about.joined_count == 2
        return replace(found, sender_name=name or found.sender, direct=direct)

    async def _answer_invites(self, answer: Any) -> None:
        if not self._settings.accept_invites:
            return
        for room, info in answer.rooms.invite.items():
            try:
                if any(is_encryption(event.source) for event in info.invite_state if event):
                    log.warning("An invitation to an encrypted room is declined", room=room)
                    await self._ask(self._client.room_leave, room)
                    continue
                await self._ask(self._client.join, room)
                # An invitation need not tell; the room does.
                if await self._is_encrypted(room):
                    log.warning("A room is encrypted, and is left", room=room)
                    await self._leave(room)
            except DragomanError as exc:
                log.warning("An invitation could not be answered", room=room, why=exc.message)

    def _remember(self, id: str, author: str) -> None:
        self._authors[id] = author
        if len(self._authors) > REMEMBERED:
            self._authors.popitem(last=False)


def _encoded(mark: _Mark) -> str:
    return msgspec.json.encode(mark).decode()
