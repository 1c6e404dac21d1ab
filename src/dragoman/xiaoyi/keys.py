"""The keys with which agents authenticate when they dial in.

An operator creates a pair for one agent or for several. The secret half is shown once, and stored
sealed with the key of the server.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from dragoman.core.errors import ConfigError
from dragoman.store.link_keys import LinkKey, LinkKeyStore
from dragoman.store.seal import Seal, Unopened

_PURPOSE = "dragoman link keys at rest"
_MOST_ID = 200
"""The longest agent id."""


class KeyRing:
    """The keys of a store, with the secret of the server that seals them."""

    def __init__(self, store: LinkKeyStore, secret: bytes) -> None:
        self._store, self._seal = store, Seal(secret, _PURPOSE)

    async def add(self, agent_ids: Iterable[str]) -> tuple[LinkKey, str]:
        """Creates a pair for these agents. Returns it and its secret, which is shown only here."""
        return await self.keep(secrets.token_hex(16), secrets.token_urlsafe(32), agent_ids)

    async def keep(
        self, access_key: str, secret_key: str, agent_ids: Iterable[str]
    ) -> tuple[LinkKey, str]:
        """Stores a pair that was created elsewhere."""
        agents = tuple(dict.fromkeys(agent_ids))
        for each in agents:
            # It is sent in a header, and repeated in every frame.
            if not each or len(each) > _MOST_ID or not each.isascii() or not each.isprintable():
                raise ConfigError(f"This cannot be an agent id: {each[:_MOST_ID]!r}.")
        if not agents:
            raise ConfigError("Which agent may use the key? Give --agent-id ID.")
        sealed = self._seal.seal(secret_key.encode(), access_key)
        made = LinkKey(access_key=access_key, agent_ids=agents, sealed=sealed)
        return await self._store.add(made), secret_key

    async def find(self, access_key: str) -> tuple[LinkKey, str] | None:
        """Returns a valid pair and its secret, or None if there is none with this access key.
        Raises `ConfigError` if it was sealed with another key."""
        found = await self._store.find(access_key)
        if found is None or found.revoked_at:
            return None
        try:
            return found, self._seal.open(found.sealed, found.access_key).decode()
        except Unopened:
            raise ConfigError("The secret of a link was sealed with another key") from None

    async def in_use(self) -> bool:
        """Returns whether a pair was ever made. An agent whose keys are revoked has to be told that
        they are, and not that nothing is here, or it would dial again and again."""
        return bool(await self._store.all())
