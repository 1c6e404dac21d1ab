"""`connect("lite+matrix://USER@HOMESERVER/ROOM?agent=NAME")`: joins a room, and calls an agent that
is there."""

from __future__ import annotations

import asyncio

from dragoman.client.cards import FoundCard
from dragoman.client.transports.connected import ConnectedTransport
from dragoman.client.transports.transport import Destination
from dragoman.core.errors import ConfigError, PeerUnreachable
from dragoman.net.chat import channel_from, parse_chat_address
from dragoman.store.clock import wall_clock
from dragoman.store.memory.sessions import MemorySessions
from dragoman.store.sessions import SentMarks

from .room_agent import RoomAgent
from .rooms import ChatRooms

AGENT = "agent"
"""The field in the query of an address that names the agent."""
AGAIN = 5.0
"""The seconds after which a room is asked again which agents are there."""


class RoomVisit:
    """A room that was joined to call one agent."""

    def __init__(self, address: str) -> None:
        found = parse_chat_address(address)
        unknown = [each for each in found.query if each != AGENT]
        if unknown:
            raise ConfigError(f"An address of a room has no {unknown[0]}: {address!r}")
        if not found.settings.rooms:
            raise ConfigError(
                f"{address!r} names no room; write it at the end, such as "
                "lite+loopback://USER@HUB/ROOM."
            )
        self._agent = found.query.get(AGENT, "")
        marks = SentMarks(MemorySessions(wall_clock), wall_clock, "lite")
        channel = channel_from(found.settings)
        self.rooms = ChatRooms(channel.kind, found.settings, channel, marks)

    async def agent(self, seconds: float) -> RoomAgent:
        """Returns the agent, and asks for it until it introduces itself. Raises `PeerUnreachable`
        if it does not."""
        rooms = self.rooms
        try:
            async with asyncio.timeout(seconds):
                while True:
                    met = asyncio.ensure_future(rooms.met.wait_for(self._agent))
                    try:
                        if not met.done():
                            await self._ask()
                        await asyncio.wait({met}, timeout=AGAIN)
                        if met.done():
                            return met.result()
                    finally:
                        met.cancel()
        except TimeoutError:
            who, where = self._agent or "No agent", ", ".join(rooms.rooms) or "the room"
            did = "did not introduce itself" if self._agent else "introduced itself"
            raise PeerUnreachable(f"{who} {did} in {where} within {seconds:g} s") from None

    async def _ask(self) -> None:
        for room in self.rooms.rooms.values():
            # The others need not answer, if one is named.
            await self.rooms.discover(room, f"@{self._agent}" if self._agent else "")


async def enter(address: str, to: Destination) -> tuple[FoundCard, ConnectedTransport]:
    """Joins the room at an address, and returns the agent as soon as it has introduced itself."""
    visit = RoomVisit(address)
    try:
        await visit.rooms.start()
        agent = await visit.agent(to.http.limits.answer)
    except BaseException:
        await visit.rooms.stop()
        raise

    async def met() -> RoomAgent:
        return agent

    return FoundCard(agent.card, address), ConnectedTransport(to, met, visit.rooms.stop)
