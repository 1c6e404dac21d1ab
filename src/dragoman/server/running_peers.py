"""Starts and stops the peers of agents, over the store that they share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from dragoman.store import Store

from .services.factories import GRACE, ServedPeer


class RunningPeers:
    """Starts and stops peers together."""

    def __init__(self, peers: Iterable[ServedPeer], store: Store | None) -> None:
        """`store` is the store that they share. It is opened before the first of them starts, and
        closed after the last one has stopped."""
        self._peers, self._store = list(peers), store
        self._store_is_open = False
        self._running: list[ServedPeer] = []
        """The peers that have started."""

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
        """Stops the peers that have started, all at once because each has the same grace period,
        and then closes what they share."""
        running, self._running = self._running, []
        close = self._store.close if self._store is not None and self._store_is_open else None
        self._store_is_open = False
        await stop_together((peer.stop(GRACE) for peer in running), close)


async def stop_together(
    stops: Iterable[Awaitable[None]], close: Callable[[], Awaitable[None]] | None
) -> None:
    """Stops peers, all at once because each has the same grace period, and then closes what they
    share, even if one of them failed to stop."""
    ended = await asyncio.gather(*stops, return_exceptions=True)
    if close is not None:
        await close()
    for failure in ended:
        if failure is not None:
            raise failure
