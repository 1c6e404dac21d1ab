"""The registry of agents, which are registered by an operator, by themselves with a token, or by
dialling in.

A name belongs to its entry. Its owner may replace the entry, and so may a source of higher
precedence; everybody else is refused. Every change gets a `revision` that is higher than all
earlier ones, so that a gateway reads only what is new. A removed entry is kept for a while, marked
as removed, because other processes could not learn of the removal otherwise.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.errors import Conflict, TooMany

MOST_OF_OWNER = 256
"""The maximum number of agents that one owner may register without an operator."""
REMEMBERED = 86_400_000
"""Milliseconds for which the removal of an entry is remembered."""


class Source(StrEnum):
    """Where an entry comes from, in the order of precedence."""

    FILE = "file"
    CLI = "cli"
    TOKEN = "token"  # noqa: S105  not a password
    LINK = "link"
    ROOM = "room"
    """Met in a chat room. Unlike agents that dial in, such agents are remembered after a
    restart."""

    @property
    def rank(self) -> int:
        """The precedence; 0 is the highest."""
        return list(Source).index(self)

    @property
    def distrust(self) -> int:
        """How little its agents are trusted. 0: the operator named them, in the settings or with a
        command."""
        return max(0, self.rank - Source.CLI.rank)


class AgentHealth(StrEnum):
    """The last known health of an agent."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"


class RegistryEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A registered agent. Times are milliseconds since the epoch."""

    name: str
    source: Source
    owner: str = ""
    """The principal, or the name of the token, that owns the entry; empty for the operator."""
    addresses: tuple[str, ...] = ()
    card: str = ""
    """The card as a JSON document; empty if it is not known yet."""
    tags: tuple[str, ...] = ()
    health: AgentHealth = AgentHealth.UNKNOWN
    seen_at: int = 0
    until: int = 0
    """When its lease ends; 0 if it has none."""
    holder: str = ""
    """The worker of the process that has the link of an agent that came by itself."""
    contested: str = ""
    """From where another agent claims the name, until the holder has found out whether the one that
    has it still answers."""
    added_at: int = 0
    removed_at: int = 0
    """When it was removed; 0 if it is still registered."""
    revision: int = 0
    """The number of the latest change, set by the store."""

    def is_expired(self, now: int) -> bool:
        """Returns whether its lease has ended."""
        return 0 < self.until <= now


class RegistryStore(Protocol):
    """The part of a store that keeps the registry."""

    async def put(self, entry: RegistryEntry) -> RegistryEntry:
        """Stores a new entry or changes a known one, and returns it in its stored form. Raises
        `Conflict` if the name belongs to another owner, and `TooMany` if the owner has too many
        entries."""

    async def renew(self, name: str, source: Source, owner: str, until: int) -> bool:
        """Prolongs the lease of an owner's entry. Returns False if it has none of this name."""

    async def note(self, name: str, health: AgentHealth, seen_at: int) -> None:
        """Records the health of an agent, if it is registered."""

    async def remove(self, name: str, source: Source, owner: str) -> bool:
        """Removes an owner's entry. Returns False if it has none of this name from this source."""

    async def find(self, name: str) -> RegistryEntry | None:
        """Returns the entry of this name."""

    async def all(self) -> list[RegistryEntry]:
        """Returns every entry, in the order of the names."""

    async def news(self, after: int) -> list[RegistryEntry]:
        """Returns the entries that changed after this revision, including removed ones, in
        order."""

    async def drop_expired(self, before: int) -> list[str]:
        """Removes the entries whose leases ended before this time, and returns their names."""


def admitted(
    known: RegistryEntry | None, new: RegistryEntry, owned: int, now: int
) -> RegistryEntry:
    """Returns the entry to be kept in place of the known one. `owned` is the number of entries that
    the owner of the new one has."""
    added, holder = now, new.holder
    if known is not None and owns(known, new.source, new.owner):
        added, holder = known.added_at, holder or known.holder
    else:
        taken = known is not None and not known.removed_at
        if known is not None and taken and new.source.rank >= known.source.rank:
            raise Conflict(f"The name {new.name} belongs to another agent.", agent=new.name)
        if new.source.rank >= Source.TOKEN.rank and owned >= MOST_OF_OWNER:
            most = str(MOST_OF_OWNER)
            raise TooMany(f"One owner may register {most} agents.", limit=most)
    seen = new.seen_at or now
    return replace(new, added_at=added, seen_at=seen, removed_at=0, holder=holder)


def owns(known: RegistryEntry | None, source: Source, owner: str) -> bool:
    """Returns whether an entry is there and belongs to this owner."""
    return (
        known is not None
        and not known.removed_at
        and (known.source, known.owner) == (source, owner)
    )
