"""The agents that were met in rooms, as the store remembers them.

They stand in the registry of the store, where an operator sees them together with all others. The
name belongs to the sender that showed the card: another sender cannot take it over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec
from msgspec import Struct

from dragoman.core.errors import Conflict
from dragoman.dialects.lite.card import LiteCard
from dragoman.store.registry import AgentHealth, RegistryEntry, RegistryStore, Source

_ROOM = "room:"


class MetAgent(Struct, frozen=True, kw_only=True):
    """An agent that was met in a room."""

    name: str
    """Its name in the registry."""
    channel: str
    """The name of the channel in the settings."""
    room: str
    sender: str
    card: LiteCard
    seen_at: int = 0
    """When it showed its card last, in milliseconds."""


class KnownAgents:
    """The agents that one channel has met."""

    def __init__(self, store: RegistryStore, channel: str, slug: Callable[[str], str]) -> None:
        """`slug` derives a name from the id of an agent."""
        self._store, self._channel, self._slug = store, channel, slug

    async def remember(self, room: str, sender: str, card: LiteCard) -> MetAgent:
        """Notes an agent, or what is new about it."""
        owner = owner_of(self._channel, sender)
        base = self._slug(card.agent.id or sender) or "agent"
        mark = hashlib.sha256(owner.encode()).hexdigest()[:6]
        for name in (base, f"{base[:40]}-{self._slug(self._channel)}"[:63], f"{base[:56]}-{mark}"):
            entry = RegistryEntry(
                name=name,
                source=Source.ROOM,
                owner=owner,
                card=msgspec.json.encode(card).decode(),
                tags=(f"{_ROOM}{room}",),
                health=AgentHealth.UP if card.supported else AgentHealth.DOWN,
            )
            try:
                kept = await self._store.put(entry)
            except Conflict:
                continue
            return _known(kept, self._channel, sender, card)
        raise Conflict(f"The name {base} belongs to another agent.", agent=base)

    async def all(self) -> list[MetAgent]:
        """Returns the agents of this channel."""
        return [each for each in await known_agents(self._store) if each.channel == self._channel]


async def known_agents(store: RegistryStore) -> list[MetAgent]:
    """Returns the agents of all channels, in the order of their names."""
    found = []
    for entry in await store.all():
        if entry.source is not Source.ROOM or entry.removed_at:
            continue
        try:
            card = msgspec.json.decode(entry.card, type=LiteCard)
        except msgspec.MsgspecError:
            continue  # of another version
        _, channel, sender = (*entry.owner.split(":", 2), "", "")[:3]
        found.append(_known(entry, channel, sender, card))
    return found


def owner_of(channel: str, sender: str) -> str:
    """Returns the owner of the entries of a sender, which also is its principal."""
    return f"lite:{channel}:{sender}"


def _known(entry: RegistryEntry, channel: str, sender: str, card: LiteCard) -> MetAgent:
    rooms = (tag.removeprefix(_ROOM) for tag in entry.tags if tag.startswith(_ROOM))
    return MetAgent(
        name=entry.name,
        channel=channel,
        room=next(rooms, ""),
        sender=sender,
        card=card,
        seen_at=entry.seen_at,
    )
