"""Loopback rooms of gateways: agents that are met there, and callers that come there."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from dragoman import Agent, connect
from dragoman.client.agent import RemoteAgent
from dragoman.net.chat.loopback import LoopbackChannel
from dragoman.settings import ChannelSettings
from dragoman.settings.chat import LoopbackSettings
from dragoman.testing.served import served
from gateway.behind import Gateway, settings
from lite.room import joined
from waiting import until

MEETING = "meeting"
"""The room in which a gateway meets agents."""
_numbers = itertools.count(1)


class Rooms:
    """Rooms that only one test uses: one for each agent that is called in one, and another in
    which a gateway meets agents."""

    def __init__(self) -> None:
        self._hub = f"matrix-{next(_numbers)}"

    def meeting(self) -> dict[str, ChannelSettings]:
        """The `[channels]` of a gateway that meets agents in a room."""
        return {"meeting": self._member("gate", MEETING, agents=(), meet=True)}

    def of(self, names: Iterable[str]) -> dict[str, ChannelSettings]:
        """The `[channels]` of a server of which these agents live in a room each."""
        return {
            name: self._member(name, name, agents=(name,), discover=False, meet=False)
            for name in names
        }

    def _member(self, user: str, room: str, **about: object) -> LoopbackSettings:
        return LoopbackSettings(
            user=user,
            hub=self._hub,
            shared=False,
            rooms=(room,),
            **about,  # type: ignore[arg-type]
        )

    @asynccontextmanager
    async def call(self, agent: str) -> AsyncIterator[RemoteAgent]:
        """A caller that comes to the room of this agent."""
        address = f"lite+loopback://caller@{self._hub}/{agent}?shared=false&agent={agent}"
        async with connect(address) as caller:
            yield caller

    @asynccontextmanager
    async def met(
        self, folder: Path, door: Gateway, agent: Agent, name: str
    ) -> AsyncIterator[None]:
        """An agent that the gateway has met."""
        lives = {"meeting": self._member("resident", MEETING, meet=False)}
        own = settings(folder, channels=lives)
        asker = LoopbackChannel(self._member("asker", MEETING))
        async with (
            served({name: agent}, own),
            joined(asker, MEETING) as other,
            httpx2.AsyncClient(timeout=60) as client,
        ):
            # The gateway asked before the agent was there, and asks again after half a minute.
            await other.say("[A2A:discover]")

            async def served_there() -> bool:
                card = await client.get(f"{door.at(name)}/.well-known/agent-card.json")
                return card.status_code == 200

            await until(served_there, 60)
            yield
