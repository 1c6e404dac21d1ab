"""The keys with which agents prove who they are when they dial in, such as those of XiaoYi links.

A store never holds a secret, only its sealed form (`seal.Seal`), which the key of the server opens.
A revoked key stays, marked as such, so that operators see what there was.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class LinkKey(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pair of keys. Times are milliseconds since the epoch."""

    access_key: str
    """The public half, which names the pair."""
    agent_ids: tuple[str, ...]
    """The agents that may dial in with it."""
    sealed: str
    """The secret half, sealed for the access key."""
    added_at: int = 0
    revoked_at: int = 0
    """When it was revoked; 0: it is valid."""


class LinkKeyStore(Protocol):
    """The part of a store that keeps the keys of links."""

    async def add(self, key: LinkKey) -> LinkKey:
        """Stores a new pair and returns it as it is kept. Raises `Conflict` if its access key is
        known."""

    async def find(self, access_key: str) -> LinkKey | None:
        """Returns the pair, revoked or not."""

    async def all(self) -> list[LinkKey]:
        """Returns every pair, oldest first, including revoked ones."""

    async def revoke(self, access_key: str) -> bool:
        """Revokes a pair; False if there is no valid one of this access key."""
