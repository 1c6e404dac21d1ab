"""Serves the agents that were met in chat rooms.

Such an agent is an `UpstreamAgent` like any other, whose pool has one connection: its room.
"""

from __future__ import annotations

from dragoman.lite.known_agents import owner_of
from dragoman.lite.room_agent import RoomAgent
from dragoman.lite.rooms import ChatRooms

from ..upstream_agent import UpstreamAgent
from .dial_ins import DialIns, dialed_in_pool

SCHEME = "lite-room"
"""The prefix of the label that an agent has instead of an address, in the journal and for
operators."""


class RoomAgents:
    """Serves the agents that are met in the rooms of one channel."""

    def __init__(self, rooms: ChatRooms, dial_ins: DialIns) -> None:
        self._rooms = rooms
        self.dial_ins = dial_ins
        dial_ins.serve(owner_of(rooms.channel_name, ""), self._agent)
        self._found: dict[str, RoomAgent] = {}
        rooms.met.on_met = self._met

    def _met(self, agent: RoomAgent, name: str) -> None:
        if not name:
            return  # its name belongs to another
        self._found[name] = agent
        owner = owner_of(self._rooms.channel_name, agent.sender)
        self.dial_ins.arrived(name, owner)

    def _agent(self, name: str, sender: str) -> UpstreamAgent:
        pool = dialed_in_pool(name, name, SCHEME, lambda: self._found.get(name))
        return UpstreamAgent(name, pool, timeout=self._rooms.settings.task_limit)
