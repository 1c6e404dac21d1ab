"""The peers of agents while they run, over the store that they share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from dragoman.store import Store

from .services import GRACE, ServedPeer


class RunningPeers:
    """Starts and stops peers together."""

    def __init__(self, peers: Iterable[ServedPeer], store: Store | None) -> None:
        """`store` is what they share: it is opened before the first of them starts, and closed
        after the last has stopped."""
        self._peers, self._store = list(peers), store
        self._store_is_open = False
        self._running: list[ServedPeer] = []
        """Those that have started."""

    async def start(self) -> None:
        """Starts all of them, or none."""
        if self._store is not None:
            await self._store.open()
            self._store_is_open = True
        for peer in self._peers:
            try:
                await peer.start()
            except BaseException:
                await self.stop()
                raise
            self._running.append(peer)

    async def stop(self) -> None:
        """Stops those that have started, all at once, since each has the same grace; then closes
        what they share."""
        running, self._running = self._running, []
        close = self._store.close if self._store is not None and self._store_is_open else None
        self._store_is_open = False
        await stop_together((peer.stop(GRACE) for peer in running), close)


async def stop_together(
    stops: Iterable[Awaitable[None]], close: Callable[[], Awaitable[None]] | None
) -> None:
    """Stops peers all at once, since each has the same grace; then closes what they share, also if
    one of them failed."""
    ended = await asyncio.gather(*stops, return_exceptions=True)
    if close is not None:
        await close()
    for failure in ended:
        if failure is not None:
            raise failure
