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
ASK_AGAIN_SECONDS = 5.0
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
        self.rooms.met.meets_plain = True

    async def agent(self, seconds: float) -> RoomAgent:
        """Returns the agent, and asks for it until it introduces itself. Raises `PeerUnreachable`
        if it does not."""
        rooms = self.rooms
        try:
            async with asyncio.timeout(seconds):
                await self._entered()
                while True:
                    met = asyncio.ensure_future(rooms.met.wait_for(self._agent))
                    try:
                        if not met.done():
                            await self._ask()
                        await asyncio.wait({met}, timeout=ASK_AGAIN_SECONDS)
                        if met.done():
                            return met.result()
                    finally:
                        met.cancel()
        except TimeoutError:
            if not rooms.entered.is_set():
                where = ", ".join(rooms.settings.rooms)
                raise PeerUnreachable(f"{where} could not be joined within {seconds:g} s") from None
            who, where = self._agent or "No agent", ", ".join(rooms.rooms) or "the room"
            did = "did not introduce itself" if self._agent else "introduced itself"
            raise PeerUnreachable(f"{who} {did} in {where} within {seconds:g} s") from None

    async def _entered(self) -> None:
        """Waits until the rooms are joined. Raises the error with which the channel ended."""
        ended = self.rooms.ended
        assert ended is not None  # noqa: S101  it has started
        entered = asyncio.ensure_future(self.rooms.entered.wait())
        ended.add_done_callback(lambda _: entered.cancel())
        await asyncio.wait({entered})
        if not self.rooms.entered.is_set() and ended.done() and (error := ended.result()):
            raise error

    async def _ask(self) -> None:
        for room in self.rooms.rooms.values():
            # The others need not answer, if one is named.
            await self.rooms.discover(room, self._agent)


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
