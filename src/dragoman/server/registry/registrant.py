"""Registers the agents of a server with a gateway, and keeps them registered while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from dragoman.client.registry import TOKEN, RegistryClient
from dragoman.core.errors import ConfigError, DragomanError
from dragoman.core.log import Logger
from dragoman.net.service import Service

log = Logger("registrant")

LEASE = 30.0
"""Seconds for which an agent is registered; the lease is renewed three times in that period."""
LONGEST_PAUSE = 30.0
LINGER = 2.0
"""The maximum time in seconds to tell the gateway that we leave."""


class Registrant(Service):
    """Registers agents by their names and addresses. The token comes from the environment."""

    name = "registrant"

    def __init__(
        self, gateway: str, agents: Callable[[], Mapping[str, str]], environ: Mapping[str, str]
    ) -> None:
        token = environ.get(TOKEN, "")
        if not token:
            raise ConfigError(f"To register with {gateway}, set {TOKEN} to the token for it.")
        self._agents = agents
        self._client = RegistryClient(gateway, token)
        self._registered: dict[str, str] = {}
        self._refused: set[tuple[str, str]] = set()
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts to register in the background. The server starts even if the gateway cannot be
        reached."""
        self._loop = asyncio.get_running_loop().create_task(self._run())

    async def drain(self) -> None:
        """Leaves the gateway, so that it routes no more calls here."""
        if self._loop is None:
            return
        loop, self._loop = self._loop, None
        loop.cancel()
        with suppress(asyncio.CancelledError):
            await loop
        with suppress(DragomanError, TimeoutError):
            async with asyncio.timeout(LINGER):
                for name in tuple(self._registered):
                    await self._client.remove(name)

    async def stop(self) -> None:
        """Closes the connections to the gateway."""
        await self._client.close()

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                await self._keep()
                failures = 0
            except DragomanError as exc:
                tell = log.info if failures else log.warning
                tell("The gateway does not register us", gateway=self._client.url, why=exc)
                failures += 1
            pause = LEASE / 3 if not failures else min(0.5 * 2**failures, LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def _keep(self) -> None:
        """Registers new agents, and renews the leases of the others."""
        agents = self._agents()
        for name in [name for name in self._registered if name not in agents]:
            await self._client.remove(name)
            del self._registered[name]
        for name, url in agents.items():
            if self._registered.get(name) == url and await self._client.renew(name, LEASE):
                continue
            await self._register(name, url)

    async def _register(self, name: str, url: str) -> None:
        try:
            await self._client.register(name, url, lease=LEASE)
        except DragomanError as exc:
            if exc.retry or (name, url) in self._refused:
                raise
            self._refused.add((name, url))
            log.error("The gateway refuses an agent", agent=name, at=url, why=exc)
            raise
        self._registered[name] = url
        log.info("Registered with the gateway", agent=name, gateway=self._client.url)
