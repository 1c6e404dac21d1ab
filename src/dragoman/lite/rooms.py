"""The rooms of one channel: what is said there is understood, and handed to whom it concerns.

One account stands for all agents of ours that live in its rooms, and for the gateway that calls
agents of others there. A message is heard completely, up to the commit of the task that it opens,
before the next one is asked for: a process that dies meanwhile hears it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial

from msgspec import UNSET
from msgspec.structs import replace

from dragoman.core.errors import DragomanError, PeerUnreachable
from dragoman.core.log import Logger
from dragoman.core.operations import GetExtendedCard, Watch
from dragoman.dialects.lite.callee import LiteCallee
from dragoman.dialects.lite.card import CardDetails, LiteContact, LiteLimits, size_out
from dragoman.dialects.lite.splitting import Joined, Joiner
from dragoman.dialects.lite.wire import (
    ACK,
    CARD,
    DISCOVER,
    RESULT,
    STATUS,
    TASK,
    TO,
    LiteMessage,
    is_called,
    take_address,
    take_mention,
)
from dragoman.engine.background_work import BackgroundWork
from dragoman.files import FileDoor
from dragoman.net.chat import Channel, ChatMessage, mentions
from dragoman.net.reconnect_policy import ReconnectPolicy
from dragoman.net.service import Service
from dragoman.settings import ChannelSettings
from dragoman.store.sessions import SentMarks

from .heard_message import HeardMessage, Resident, resident_for
from .loop_guard import LoopGuard
from .met_agents import MetAgents
from .plain_talk import PlainTalk
from .requests import RoomRequests
from .shelf import FileShelf
from .speaker import Addressee, RoomSpeaker

log = Logger("lite")

START_GRACE_SECONDS = 2.0
"""How long a start waits for a channel, so that wrong credentials are reported at once."""
FIRST_RETRY_SECONDS = 5.0
"""The time before another attempt to reach a service that did not answer; it grows."""
CLOSE_TIMEOUT_SECONDS = 3.0
DISCOVER_AGAIN_SECONDS = (30.0, 300.0, 3600.0)
"""The times after which a room is asked again which agents are there. An agent that comes later
is met when it shows its card to anybody."""
MAX_PROGRAMS = 10_000
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
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`name` is that of the channel in the settings. With `discover`, the rooms are asked which
        agents are there."""
        self.channel_name, self.settings, self.channel = name, settings, channel
        self._residents, self._discover, self._now = residents, discover, now
        self._work = BackgroundWork()
        self._guard = LoopGuard()
        self.speaker = RoomSpeaker(channel, files)
        self._shelf = FileShelf(channel)
        self._joiner = Joiner(lines=not channel.limits.multiline)
        self.requests = RoomRequests(
            name,
            settings,
            self.speaker,
            self._shelf,
            self._guard,
            residents,
            marks,
            self._work,
            is_begun=self._joiner.is_begun,
            now=now,
        )
        self._plain = PlainTalk(self.requests, self._guard)
        self.met = MetAgents(self, self._shelf, self._work, now=now)
        self._handling = asyncio.Lock()
        """Held while a message is handled: they are handled one after the other."""
        self._finishing: asyncio.Task[None] | None = None
        self._programs: dict[str, None] = {}
        """The senders that are known to be programs."""
        self.beside: list[Callable[[], Awaitable[None]]] = []
        """What is closed together with the rooms."""
        self.rooms: dict[str, str] = {}
        """The ids of the rooms that were joined, by the names in the settings."""
        self.entered = asyncio.Event()
        """Set when the rooms have been joined."""
        self.ended: asyncio.Future[DragomanError | None] | None = None
        """Done when the channel has ended; holds the reason."""

    # Life

    async def start(self) -> None:
        """Begins to connect and to listen in the background. Raises `ConfigError` if the service
        refuses us at once; a service that takes its time holds up nothing."""
        loop = asyncio.get_running_loop()
        self.ended, first = loop.create_future(), loop.create_future()
        self._work.spawn(self._stay(first))
        await asyncio.wait({first}, timeout=START_GRACE_SECONDS)
        if first.done():
            first.result()
        else:
            first.cancel()
            log.info("A channel is still being connected", channel=self.channel_name)

    async def drain(self) -> None:
        """Takes no more requests. Answers are still told while their tasks end."""
        self.requests.draining = True

    async def stop(self) -> None:
        """Leaves the channel."""
        self.requests.draining = True
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                await self._work.cancel()
                for close in self.beside:
                    await close()
                await self.channel.close()
        except TimeoutError:
            log.warning("A channel could not be closed in time", channel=self.channel_name)

    async def _stay(self, first: asyncio.Future[None]) -> None:
        """Connects, as often as it takes, and listens. `first` is done after the first attempt."""
        policy = ReconnectPolicy(first=FIRST_RETRY_SECONDS, tries=None)
        while True:
            try:
                await self._enter()
            except PeerUnreachable as exc:
                log.warning("A channel cannot be reached", channel=self.channel_name, why=exc)
            except DragomanError as exc:
                if first.done():
                    self._end(exc)
                else:
                    first.set_exception(exc)
                return
            else:
                break
            if not first.done():
                first.set_result(None)
            await asyncio.sleep(policy.next_pause(0.0) or FIRST_RETRY_SECONDS)
        self.entered.set()
        if not first.done():
            first.set_result(None)
        await self._listen()

    async def _enter(self) -> None:
        await self.channel.connect()
        for room in self.settings.rooms:
            self.rooms[room] = await self.channel.join(room)
        log.info("joined", channel=self.channel_name, me=self.channel.me, rooms=len(self.rooms))

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
        for pause in (*DISCOVER_AGAIN_SECONDS, None):
            for room in self.rooms.values():
                try:
                    await self.discover(room)
                except DragomanError as exc:
                    log.warning("A room cannot be asked", room=room, why=exc)
            if pause is not None:
                await asyncio.sleep(pause)

    async def discover(self, room: str, agent: str = "") -> None:
        """Asks which agents are in a room, or what one of them can do."""
        asked = LiteMessage(DISCOVER, {}, "What can you take on for me?")
        to = Addressee(agent, f"@{agent}") if agent else None
        if self._guard.may_say(room, self.channel.me):
            await self.speaker.say(room, asked, to=to)

    # Hearing

    async def _heard(self, chat: ChatMessage) -> None:
        self.met.note_room(chat.room, direct=chat.direct)
        async with self._handling:
            self._shelf.add(chat)
            for whole in self._joiner.hear(
                chat.room,
                chat.sender,
                chat.text,
                self._milliseconds(),
                mentions=self._names(),
                first=chat,
            ):
                await self._take(whole)
        if self._joiner.due is not None and self._finishing is None:
            self._finishing = self._work.spawn(self._finish_bodies())

    async def _finish_bodies(self) -> None:
        """Takes the messages whose senders do not count their lines, when they have been quiet for
        a while."""
        while (due := self._joiner.due) is not None:
            await asyncio.sleep(max(0.0, (due - self._milliseconds()) / 1000))
            async with self._handling:
                for whole in self._joiner.take_quiet(self._milliseconds()):
                    await self._take(whole)
        self._finishing = None

    def _milliseconds(self) -> int:
        return round(self._now() * 1000)

    async def _take(self, whole: Joined) -> None:
        chat = whole.first
        assert isinstance(chat, ChatMessage)  # noqa: S101  what `_heard` passes
        try:
            await self._handle(self._understood(chat, whole))
        except DragomanError as exc:
            log.warning("A message could not be handled", room=chat.room, why=exc)
        except Exception as exc:  # one message must not end the channel
            log.error("A message could not be handled", exc, room=chat.room)

    def _understood(self, chat: ChatMessage, whole: Joined) -> HeardMessage:
        names, heard = self._names(), whole.said
        lite = heard if isinstance(heard, LiteMessage) else None
        mentioned = chat.mentioned
        if isinstance(heard, LiteMessage):
            # An agent is named by the marker, before it, or at the beginning of the body.
            in_body, text = take_address(heard.body, names)
            mention = heard.params.get(TO, "") or heard.mention or in_body
            lite = replace(heard, body=text)
            if not self.channel.limits.multiline:  # the channel has seen only the first line
                mentioned |= any(mentions(name, heard.body) for name in self.channel.names)
            if heard.type in _OF_PROGRAMS:
                self._programs[chat.sender] = None
                if len(self._programs) > MAX_PROGRAMS:
                    del self._programs[next(iter(self._programs))]
        else:
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
            number=whole.number,
            addressed=ours or ((chat.direct or mentioned) and not self._is_other(mention)),
        )

    def _is_other(self, mention: str) -> bool:
        return bool(mention) and not is_called(mention, self._names())

    def _names(self) -> tuple[str, ...]:
        own = (name for each in self._residents() for name in each.names)
        return (*self.channel.names, *own)

    async def _handle(self, said: HeardMessage) -> None:
        lite, (room, sender) = said.lite, said.whose
        if said.person:
            self._guard.reset(room)
        elif lite is None or lite.type in (DISCOVER, CARD) or not lite.known:
            self._guard.note_program(room, sender)
        if lite is None:
            if not await self.met.hear_plain(said) and self._is_plain_request(said):
                await self._once(said, self._plain.hear)
            return
        if lite.damaged:
            log.warning("A message is damaged", room=room, sender=sender, type=lite.type)
            if lite.type == TASK:
                await self.requests.refuse_damaged(said)
            return
        session = self.requests.session(said)
        call = session.hear(lite, (), said.chat.id)
        if call is None or (isinstance(call.op, Watch) and self.met.works_on(said)):
            await self._hear_report(said)
        elif isinstance(call.op, GetExtendedCard):
            await self._introduce(said)
        elif isinstance(call.op, Watch):
            await self.requests.hear(said, session, call)
        else:
            await self._once(said, partial(self.requests.hear, session=session, call=call))

    async def _hear_report(self, said: HeardMessage) -> None:
        """Handles a message that asks nothing of our agents."""
        lite = said.marked
        if lite.type == CARD:
            await self.met.hear_card(said)
        elif lite.type in (STATUS, RESULT, ACK) and lite.task:
            await self.met.hear(said)
        else:
            await self._misunderstood(said)

    def _is_plain_request(self, said: HeardMessage) -> bool:
        """Returns whether a text without a marker is for an agent of ours. Where every line is a
        message, a line of a program that uses markers is a part of one, however late it comes;
        only a question of ours is answered by it."""
        stray = not self.channel.limits.multiline and said.chat.sender in self._programs
        if stray and not any(answer.waits for _, answer in self.requests.own(said)):
            return False
        return self._plain.concerns_us(said)

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
        if not lite.missing:
            await self.requests.note(said, "The id of the task is too long.")
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
        if not asked or not await self.requests.admits(said):
            return
        if not self._guard.may_say(*said.whose):
            return
        for each in asked:
            session = LiteCallee(self._details(each), files=self.channel.limits.files)
            card = session.introduce(each.card())
            await self.speaker.say(said.chat.room, card, reply_to=said.chat.id)

    def _details(self, resident: Resident) -> CardDetails:
        said, contact = self.settings, self.settings.contact
        return CardDetails(
            id=resident.name,
            framework=said.framework,
            limits=LiteLimits(size_out(said.file_size), said.tasks),
            channels=(f"{self.channel.kind}:{self.channel.me}",),
            contact=LiteContact(contact.human, contact.timezone) if contact else UNSET,
        )
