"""The agents that were met in the rooms of a channel, and what they say about our tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from dragoman.core.errors import DragomanError
from dragoman.core.log import Logger
from dragoman.dialects.lite.card import LiteCard, body_in, card_in
from dragoman.engine.background_work import BackgroundWork

from .heard_message import HeardMessage, is_called
from .known_agents import KnownAgents, MetAgent
from .room_agent import RoomAgent
from .shelf import FileShelf

if TYPE_CHECKING:
    from .rooms import ChatRooms

log = Logger("lite")

MOST_AGENTS = 1_000
"""The maximum number of agents that are met in one channel."""


class MetAgents:
    """The agents of one channel."""

    def __init__(self, rooms: ChatRooms, shelf: FileShelf, work: BackgroundWork) -> None:
        self._rooms, self._shelf, self._work = rooms, shelf, work
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
        if len(self.agents) >= MOST_AGENTS and (chat.sender, card.agent.id) not in self.agents:
            log.warning("Too many agents were met", room=chat.room)
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
        self._met(chat.room, chat.sender, card, known, direct=chat.direct)

    def _met(
        self,
        room: str,
        sender: str,
        card: LiteCard,
        known: MetAgent | None,
        *,
        direct: bool = False,
    ) -> None:
        key = (sender, card.agent.id)
        agent = self.agents.get(key)
        settings, limit = self._rooms.settings, card.max_file_size
        if agent is None or agent.room != room:
            agent = self.agents[key] = RoomAgent(
                card.agent.id or sender,
                room,
                sender,
                card_in(card),
                speaker=self._rooms.speaker,
                shelf=self._shelf,
                work=self._work,
                patience=settings.patience,
                file_size=settings.file_size,
            )
            log.info("An agent was met", room=room, sender=sender, agent=agent.agent_id)
        agent.card = card_in(card)
        agent.most_file_size = limit
        several = sum(each == sender for each, _ in self.agents) > 1
        account = mention_of(self._rooms.channel.kind, sender)
        # An account that stands for several agents is told which of them is meant.
        agent.mention = f"@{agent.agent_id}" if several else "" if direct else account
        self.on_met(agent, known.name if known is not None else "")
        self._changed.set()
        self._changed = asyncio.Event()

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

    async def hear_plain(self, said: HeardMessage) -> bool:
        """Takes what an agent without markers says. Returns whether it was about a task of ours."""
        for agent in self._of(said):
            if await agent.hear_plain(said):
                return True
        return False

    def _of(self, said: HeardMessage) -> list[RoomAgent]:
        return [
            each
            for each in self.agents.values()
            if (each.room, each.sender) == (said.chat.room, said.chat.sender)
        ]


def mention_of(kind: str, sender: str) -> str:
    """Returns how an account is named at the beginning of a text."""
    return f"<@{sender}>" if kind == "discord" else f"@{sender.lstrip('@')}"
