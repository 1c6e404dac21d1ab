"""Opens a store whose database may start later than we do."""

from __future__ import annotations

import asyncio

from dragoman.core.errors import ConfigError
from dragoman.core.log import Logger

from .interface import Store

log = Logger("store")

OPEN_RETRY_SECONDS = 1.0
UNREACHABLE = "is not reachable"
"""What is said of a database that is away."""


class StoreUnreachable(ConfigError):
    """The database of the store cannot be reached. It may be about to start."""


async def open_when_reachable(store: Store) -> None:
    """Opens a store, and waits for its database as long as that takes. Whatever else keeps the
    store from being used is raised: it does not pass by itself."""
    waited = False
    while True:
        try:
            await store.open()
        except StoreUnreachable as error:
            store.outage.begin(UNREACHABLE, error.__cause__ or error)
            if not waited:
                log.warning("We wait for the store, and are not ready until then")
            waited = True
            await asyncio.sleep(OPEN_RETRY_SECONDS)
        else:
            store.outage.end()
            return
