"""The keys of links in memory."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from dragoman.core.errors import Conflict

from ..clock import Clock
from ..link_keys import LinkKey


class MemoryLinkKeys:
    """Implements `LinkKeyStore`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._keys: dict[str, LinkKey] = {}

    async def add(self, key: LinkKey) -> LinkKey:
        if key.access_key in self._keys:
            raise Conflict("This access key is known already.")
        kept = self._keys[key.access_key] = replace(key, added_at=self._clock(), revoked_at=0)
        return kept

    async def restore(self, keys: Sequence[LinkKey]) -> None:
        """Takes these in place of all that there are."""
        self._keys = {each.access_key: each for each in keys}

    async def find(self, access_key: str) -> LinkKey | None:
        return self._keys.get(access_key)

    async def all(self) -> list[LinkKey]:
        return sorted(self._keys.values(), key=lambda each: (each.added_at, each.access_key))

    async def revoke(self, access_key: str) -> bool:
        return self._revoked(access_key) is not None

    def _revoked(self, access_key: str) -> LinkKey | None:
        known = self._keys.get(access_key)
        if known is None or known.revoked_at:
            return None
        kept = self._keys[access_key] = replace(known, revoked_at=self._clock())
        return kept
