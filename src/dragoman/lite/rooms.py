"""The rooms of one channel: what is said there is understood, and handed to whom it concerns.

One account stands for all agents of ours that live in its rooms, and for the gateway that calls
agents of others there. A message is heard completely, up to the commit of the task that it opens,
before the next one is asked for: a process that dies meanwhile hears it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

from msgspec import UNSET

from dragoman.core.errors import DragomanError, PeerUnreachable
from dragoman.core.log import Logger
from dragoman.dialects.lite.card import (
    CardDetails,
    LiteCard,
    LiteContact,
    LiteLimits,
    body_out,
    card_out,
    size_out,
)
from dragoman.dialects.lite.splitting import Joiner
from dragoman.dialects.lite.wire import (
    ACK,
    CARD,
    DISCOVER,
    RESULT,
    STATUS,
    TASK,
    LiteMessage,
    take_mention,
)
from dragoman.engine.background_work import BackgroundWork
from dragoman.files import FileDoor
from dragoman.net.chat import Channel, ChatMessage
from dragoman.net.service import Service
from dragoman.settings import ChannelSettings
from dragoman.store.clock import wall_clock
from dragoman.store.sessions import SentMarks

from .heard_message import HeardMessage, Resident, is_called, resident_for
from .loop_guard import LoopGuard
from .met_agents import MetAgents
from .plain_talk import PlainTalk
from .requests import RoomRequests
from .shelf import FileShelf
from .speaker import RoomSpeaker

log = Logger("lite")

AGAIN = 5.0
"""The seconds before another attempt to reach a service that did not answer."""
DISCOVER_AGAIN = (30.0, 300.0, 3600.0)
"""The seconds after which a room is asked again which agents are there. An agent that comes later
is met when it shows its card to anybody."""
MOST_PROGRAMS = 10_000
_OF_PROGRAMS = frozenset((CARD, ACK, STATUS, RESULT))
"""The types that people have no reason to write."""


def nobody() -> Sequence[Resident]:
    """No agent of ours lives there."""
    return ()


class ChatRooms(Service):
    """A channel with its rooms. It runs as long as its server."""

    name = "lite"

    def __init__(
        self,
        name: str,
        settings: ChannelSettings,
        channel: Channel,
        marks: SentMarks,
        *,
        residents: Callable[[], Sequence[Resident]] = nobody,
        files: FileDoor | None = None,
        discover: bool = False,
    ) -> None:
        """`name` is that of the channel in the settings. With `discover`, the rooms are asked which
        agents are there."""
        self.channel_name, self.settings, self.channel = name, settings, channel
        self._residents, self._discover = residents, discover
        self._work = BackgroundWork()
        self._guard = LoopGuard()
        self.speaker = RoomSpeaker(channel, files)
        self._shelf = FileShelf(channel)
        self.requests = RoomRequests(
            *(name, settings, self.speaker, self._shelf, self._guard),
            *(residents, marks, self._work),
        )
        self._plain = PlainTalk(self.requests, self._guard)
        self.met = MetAgents(self, self._shelf, self._work)
        self._joiner = Joiner()
        self._programs: dict[str, None] = {}
        """The senders that are known to be programs."""
        self.beside: list[Callable[[], Awaitable[None]]] = []
        """What is closed together with the rooms."""
        self.rooms: dict[str, str] = {}
        """The ids of the rooms that were joined, by the names in the settings."""
        self.ended: asyncio.Future[DragomanError | None] | None = None
        """Done when the channel has ended; holds the reason."""

    # Life

    async def start(self) -> None:
        """Connects and begins to listen. Raises `ConfigError` if the service does not accept us. If
        it does not answer, it is asked again in the background."""
        self.ended = asyncio.get_running_loop().create_future()
        try:
            await self._enter()
        except PeerUnreachable as exc:
            log.warning("A channel cannot be reached", channel=self.channel_name, why=exc)
            self._work.spawn(self._enter_later())
            return
        self._begin()

    async def drain(self) -> None:
        """Takes no more requests. Answers are still told while their tasks end."""
        self.requests.draining = True

    async def stop(self) -> None:
        """Leaves the channel."""
        self.requests.draining = True
        await self._work.cancel()
        for close in self.beside:
            await close()
        await self.channel.close()

    async def _enter(self) -> None:
        await self.channel.connect()
        for room in self.settings.rooms:
            self.rooms[room] = await self.channel.join(room)
        log.info("joined", channel=self.channel_name, me=self.channel.me, rooms=len(self.rooms))

    async def _enter_later(self) -> None:
        while True:
            await asyncio.sleep(AGAIN)
            try:
                await self._enter()
            except PeerUnreachable:
                continue
            except DragomanError as exc:
                self._end(exc)
                return
            self._begin()
            return

    def _begin(self) -> None:
        self._work.spawn(self._listen())

    def _end(self, why: DragomanError | None) -> None:
        if why is not None:
            log.error(f"The channel has ended: {why.message}", channel=self.channel_name)
        if self.ended is not None and not self.ended.done():
            self.ended.set_result(why)

    async def _listen(self) -> None:
        try:
            # What is said next may belong to a task, or come from an agent, of an earlier process.
            await self.requests.resume()
            await self.met.restore()
            if self._discover:
                self._work.spawn(self._ask_around())
            async with aclosing(self.channel.hear()) as messages:
                async for chat in messages:
                    await self._heard(chat)
        except DragomanError as exc:
            self._end(exc)
        else:
            self._end(None)

    async def _ask_around(self) -> None:
        """Asks all rooms which agents are there, and again later, since agents come at any time."""
        for pause in (*DISCOVER_AGAIN, None):
            for room in self.rooms.values():
                try:
                    await self.discover(room)
                except DragomanError as exc:
                    log.warning("A room cannot be asked", room=room, why=exc)
            if pause is not None:
                await asyncio.sleep(pause)

    async def discover(self, room: str, mention: str = "") -> None:
        """Asks which agents are in a room, or what one of them can do."""
        asked = LiteMessage(DISCOVER, {}, "What can you take on for me?")
        if self._guard.may_say(room):
            await self.speaker.say(room, asked, mention=mention)

    # Hearing

    async def _heard(self, chat: ChatMessage) -> None:
        try:
            self._shelf.add(chat)
            for whole in self._joiner.hear(
                chat.room, chat.sender, chat.text, wall_clock(), mentions=self._names()
            ):
                await self._handle(self._understood(chat, whole))
        except DragomanError as exc:
            log.warning("A message could not be handled", room=chat.room, why=exc)
        except Exception as exc:  # one message must not end the channel
            log.error("A message could not be handled", exc, room=chat.room)

    def _understood(self, chat: ChatMessage, heard: LiteMessage | str) -> HeardMessage:
        lite = heard if isinstance(heard, LiteMessage) else None
        if isinstance(heard, LiteMessage):
            mention, text = heard.mention, heard.body
            if heard.type in _OF_PROGRAMS:
                self._programs[chat.sender] = None
                if len(self._programs) > MOST_PROGRAMS:
                    del self._programs[next(iter(self._programs))]
        else:
            names = self._names()
            mention, text = take_mention(heard.strip(), names)
            if mention and is_called(mention, self.channel.names):
                # The account is named first, and then perhaps one of its agents.
                second, rest = take_mention(text, names)
                if second and any(is_called(second, each.names) for each in self._residents()):
                    mention, text = second, rest
        person = not chat.from_bot and chat.sender not in self._programs
        ours = bool(mention) and is_called(mention, self.channel.names)
        return HeardMessage(
            chat=chat,
            lite=lite,
            text=text,
            mention="" if ours else mention,
            person=person,
            addressed=ours or ((chat.direct or chat.mentioned) and not self._is_other(mention)),
        )

    def _is_other(self, mention: str) -> bool:
        return bool(mention) and not is_called(mention, self._names())

    def _names(self) -> tuple[str, ...]:
        own = (name for each in self._residents() for name in each.names)
        return (*self.channel.names, *own)

    async def _handle(self, said: HeardMessage) -> None:
        lite, room = said.lite, said.chat.room
        if said.person:
            self._guard.reset(room)
        elif lite is None or lite.type in (DISCOVER, CARD) or not lite.known:
            self._guard.note_program(room)
        if lite is None:
            if not await self.met.hear_plain(said) and self._plain.concerns_us(said):
                await self._once(said, self._plain.hear)
            return
        if lite.type == STATUS and lite.task and "state" not in lite.params:
            await self.requests.inquire(said)
            return
        if lite.missing or not lite.known:
            await self._misunderstood(said)
            return
        match lite.type:
            case "discover":
                await self._introduce(said)
            case "card":
                await self.met.hear_card(said)
            case "task":
                await self._once(said, self.requests.task)
            case "cancel":
                await self._once(said, self.requests.cancel)
            case _:
                await self.met.hear(said)

    async def _once(
        self, said: HeardMessage, handle: Callable[[HeardMessage], Awaitable[None]]
    ) -> None:
        if await self.requests.is_new(said):
            await handle(said)
            await self.requests.note_handled(said)

    async def _misunderstood(self, said: HeardMessage) -> None:
        """Ignores a marker that this version does not know, and tells a person why."""
        lite = said.marked
        meant = resident_for(said, self._residents(), needs_mention=self.settings.mention)
        if meant is None or not said.person:
            return
        if not lite.known:
            await self.requests.note(said, f"I do not know messages of the type {lite.type}.")
            return
        missing = " and ".join(lite.missing)
        if lite.type == TASK and said.text:
            await self.requests.note(
                said, f"Your marker has no {missing}; I read it as plain text."
            )
            await self._plain.hear(said)
        else:
            await self.requests.note(said, f"A message of the type {lite.type} needs {missing}.")

    async def _introduce(self, said: HeardMessage) -> None:
        """Answers with the cards of those that are asked."""
        if said.mention:
            named = resident_for(said, self._residents(), needs_mention=True)
            asked = [named] if named is not None else []
        else:
            asked = list(self._residents())
        if not asked or not self._guard.may_say(said.chat.room):
            return
        for each in asked:
            card = LiteMessage(CARD, {}, body_out(self._card(each)))
            await self.speaker.say(said.chat.room, card, reply_to=said.chat.id)

    def _card(self, resident: Resident) -> LiteCard:
        said, contact = self.settings, self.settings.contact
        details = CardDetails(
            id=resident.name,
            framework=said.framework,
            limits=LiteLimits(size_out(said.file_size), said.tasks),
            channels=(f"{self.channel.kind}:{self.channel.me}",),
            contact=LiteContact(contact.human, contact.timezone) if contact else UNSET,
        )
        return card_out(resident.card(), details, files=self.channel.limits.files)
