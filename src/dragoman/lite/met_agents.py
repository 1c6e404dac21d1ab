"""The agents that were met in the rooms of a channel, and what they say about our tasks."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from dragoman.core.errors import DragomanError
from dragoman.core.log import Logger
from dragoman.dialects.lite.card import LiteCard, body_in, card_in
from dragoman.dialects.lite.wire import is_called
from dragoman.engine.background_work import BackgroundWork

from .heard_message import HeardMessage
from .known_agents import KnownAgents, MetAgent
from .loop_guard import SenderPace
from .room_agent import PLAIN_QUIET_SECONDS, RoomAgent
from .shelf import FileShelf
from .speaker import Addressee

if TYPE_CHECKING:
    from .rooms import ChatRooms

log = Logger("lite")

MAX_AGENTS, MAX_AGENTS_PER_SENDER = 1_000, 16
"""The agents that are met in one channel, and those that one account may stand for."""
MAX_ROOMS = 10_000
MAX_PROSE = 10_000
"""The characters of what an agent without markers says about itself that are kept."""


class MetAgents:
    """The agents of one channel."""

    def __init__(
        self, rooms: ChatRooms, shelf: FileShelf, work: BackgroundWork, *, now: Callable[[], float]
    ) -> None:
        self._rooms, self._shelf, self._work = rooms, shelf, work
        self._now, self._card_pace = now, SenderPace()
        self._direct: OrderedDict[str, bool] = OrderedDict()
        """Whether each room has only one other member, when something was last said there."""
        self.meets_plain = False
        """Whether somebody who answers without markers, in a room of two, is an agent."""
        self._plain_since: dict[tuple[str, str], tuple[float, str]] = {}
        self.agents: dict[tuple[str, str], RoomAgent] = {}
        """The agents by their senders and ids: one account may stand for several."""
        self.known: KnownAgents | None = None
        """Where they are remembered."""
        self.on_met: Callable[[RoomAgent, str], None] = lambda agent, name: None
        """Called with an agent that was met and, if it is remembered, its name."""
        self._changed = asyncio.Event()

    async def restore(self) -> None:
        """Takes over the agents that were met before."""
        for each in await self.known.all() if self.known is not None else ():
            if each.card.supported and (each.sender, each.card.agent.id) not in self.agents:
                self._met(each.room, each.sender, each.card, each)

    async def hear_card(self, said: HeardMessage) -> None:
        """Notes an agent that introduces itself."""
        chat = said.chat
        reading = body_in(said.marked.body, chat.sender_name or chat.sender)
        card = reading.card
        if (chat.sender, card.agent.id) not in self.agents:
            own = sum(sender == chat.sender for sender, _ in self.agents)
            if own >= MAX_AGENTS_PER_SENDER or len(self.agents) >= MAX_AGENTS:
                log.warning("Too many agents were met", room=chat.room, sender=chat.sender)
                return
        if self._card_pace.admit(chat.sender, self._now()) != 0:
            return
        known = None
        if self.known is not None:
            try:
                known = await self.known.remember(chat.room, chat.sender, card)
            except DragomanError as exc:
                log.warning("An agent cannot be remembered", sender=chat.sender, why=exc)
        if not card.supported:
            log.warning("An agent speaks another version", sender=chat.sender, is_=card.protocol)
            return
        self._met(chat.room, chat.sender, card, known)

    def note_room(self, room: str, *, direct: bool) -> None:
        """Records whether somebody who speaks in a room is alone there with us."""
        self._direct[room] = direct
        self._direct.move_to_end(room)
        if len(self._direct) > MAX_ROOMS:
            self._direct.popitem(last=False)

    def _met(
        self, room: str, sender: str, card: LiteCard, known: MetAgent | None, *, plain: bool = False
    ) -> None:
        key = (sender, card.agent.id)
        agent = self.agents.get(key)
        settings = self._rooms.settings
        if agent is None or agent.room != room:
            agent_id = card.agent.id or sender
            agent = self.agents[key] = RoomAgent(
                agent_id,
                room,
                sender,
                card_in(card),
                speaker=self._rooms.speaker,
                shelf=self._shelf,
                work=self._work,
                addressee=partial(self._addressee, agent_id, room, sender),
                plain=plain,
                patience=settings.patience,
                file_size=settings.file_size,
            )
            log.info("An agent was met", room=room, sender=sender, agent=agent.agent_id)
        agent.card = card_in(card)
        agent.most_file_size = card.max_file_size
        self.on_met(agent, known.name if known is not None else "")
        self._changed.set()
        self._changed = asyncio.Event()

    def _addressee(self, agent_id: str, room: str, sender: str) -> Addressee:
        """Returns how an agent is addressed now: its account is named as well, unless nobody else
        is in the room."""
        alone = self._direct.get(room, False)
        mention = "" if alone else mention_of(self._rooms.channel.kind, sender)
        return Addressee(agent_id, mention)

    async def wait_for(self, name: str) -> RoomAgent:
        """Returns the agent of this name, id or sender, as soon as it was met; without a name, the
        first one."""
        while True:
            changed = self._changed
            for agent in self.agents.values():
                if not name or is_called(name, (agent.agent_id, agent.card.name, agent.sender)):
                    return agent
            await changed.wait()

    async def hear(self, said: HeardMessage) -> None:
        """Takes what an agent says about a task of ours; nobody else can say it."""
        for agent in self._of(said):
            if await agent.hear(said):
                return

    def works_on(self, said: HeardMessage) -> bool:
        """Returns whether a message is about a task that its sender does for us."""
        return any(each.works_on(said.marked.task) for each in self._of(said))

    async def hear_plain(self, said: HeardMessage) -> bool:
        """Takes what an agent without markers says. Returns whether it was about a task of ours."""
        agents = self._of(said)
        for agent in agents:
            if await agent.hear_plain(said):
                return True
        if self.meets_plain and said.chat.direct and said.text and not agents:
            self._work.spawn(self._meet_plain(said))
            return True
        return False

    async def _meet_plain(self, said: HeardMessage) -> None:
        """Meets an agent that answers without markers, when it has said all that it has to say:
        what it says afterwards is the answer to a task."""
        whose, chat = said.whose, said.chat
        before = self._plain_since.get(whose, (0.0, ""))[1]
        text = f"{before}\n{said.text}".strip()[:MAX_PROSE]
        at = self._now()
        self._plain_since[whose] = at, text
        await asyncio.sleep(PLAIN_QUIET_SECONDS)
        if self._plain_since.get(whose, (0.0, ""))[0] == at and not self._of(said):
            name = chat.sender_name or chat.sender
            self._met(chat.room, chat.sender, body_in(text, name).card, None, plain=True)

    def _of(self, said: HeardMessage) -> list[RoomAgent]:
        return [
            each
            for each in self.agents.values()
            if (each.room, each.sender) == (said.chat.room, said.chat.sender)
        ]


def mention_of(kind: str, sender: str) -> str:
    """Returns how an account is named at the beginning of a text."""
    return f"<@{sender}>" if kind == "discord" else f"@{sender.lstrip('@')}"
