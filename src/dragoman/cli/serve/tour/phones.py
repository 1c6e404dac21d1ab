"""The phones of the tour: stand-ins for the servers of XiaoYi, which the agents of the gateway
dial. There is one for each agent, since a phone of ours speaks to one agent."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from dragoman.client import RemoteAgent, connect
from dragoman.server.xiaoyi.agent_link import ACCESS_KEY, SECRET_KEY


class Phones:
    """Where each agent is called by a phone."""

    def __init__(self, ports: dict[str, int]) -> None:
        """`ports` are those where the agents of these names dial."""
        self._ports = ports
        self._calls: dict[str, asyncio.Future[RemoteAgent]] = {}
        self.keys = {ACCESS_KEY: secrets.token_hex(16), SECRET_KEY: secrets.token_hex(16)}
        """The keys of all agents and phones, as environment variables."""

    def section(self, name: str) -> str:
        """Returns the settings with which the agent of this name dials its phone."""
        url = f"ws://127.0.0.1:{self._ports[name]}"
        return f'[agents.{name}.xiaoyi]\nagent_id = "{name}"\nservers = ["{url}"]\n'

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Listens until the agents have dialled, and calls them then."""
        os.environ |= self.keys  # where `connect` reads them
        async with AsyncExitStack() as stack:
            for name, port in self._ports.items():
                call = connect(f"xiaoyi+ws://127.0.0.1:{port}/{name}")
                waiting = asyncio.ensure_future(stack.enter_async_context(call))
                stack.push_async_callback(_end, waiting)
                self._calls[name] = waiting
            yield

    async def call(self, name: str) -> RemoteAgent:
        """Returns the agent of this name, as soon as it has dialled."""
        return await self._calls[name]


async def _end(waiting: asyncio.Future[RemoteAgent]) -> None:
    waiting.cancel()  # nothing, if the agent has dialled
    await asyncio.wait([waiting])
