"""XiaoYi links of gateways: agents that dial in, and stand-ins for the phones that agents dial.

Both sides have their keys from the environment, the access key `ACCESS_KEY` and the secret that the
tests share.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from dragoman import Agent, connect
from dragoman.client.agent import RemoteAgent
from dragoman.security.server_secret import secret_for
from dragoman.store import open_store
from dragoman.testing.served import served
from dragoman.xiaoyi.keys import KeyRing
from gateway.behind import SECRET, Gateway, hosted, settings
from ports import own_port
from waiting import until

ACCESS_KEY = "ak-of-these-tests"


def link(agent_id: str, url: str) -> dict[str, Any]:
    """The part of `[agents.NAME]` with which an agent dials this server."""
    return {"xiaoyi": {"agent_id": agent_id, "servers": [url]}}


class Phones:
    """The servers of the phones: one for each agent that dials."""

    def __init__(self, stack: AsyncExitStack, agent_ids: Iterable[str]) -> None:
        self._ports = {each: own_port() for each in agent_ids}
        # They listen before anybody dials, so that no agent has to try again.
        self._calls = {
            agent_id: asyncio.ensure_future(
                stack.enter_async_context(connect(f"xiaoyi+ws://127.0.0.1:{port}/{agent_id}"))
            )
            for agent_id, port in self._ports.items()
        }
        for call in self._calls.values():
            stack.callback(call.cancel)  # nothing, if the agent has dialled

    def link(self, agent_id: str) -> dict[str, Any]:
        """The part of `[agents.NAME]` with which an agent dials its server; empty if it has
        none."""
        port = self._ports.get(agent_id)
        return link(agent_id, f"ws://127.0.0.1:{port}") if port else {}

    async def connected(self) -> None:
        """Waits until all agents have dialled."""
        await asyncio.gather(*self._calls.values())

    @asynccontextmanager
    async def call(self, agent_id: str) -> AsyncIterator[RemoteAgent]:
        """The phone that calls this agent."""
        yield await self._calls[agent_id]


async def store_with_keys(folder: Path, *agent_ids: str) -> str:
    """A store for a gateway where these agents may dial in."""
    url = f"sqlite:///{folder}/links.db"
    store = open_store(url)
    await store.open()
    try:
        ring = KeyRing(store.link_keys, secret_for(url, os.environ))
        await ring.keep(ACCESS_KEY, SECRET, agent_ids)
    finally:
        await store.close()
    return url


@asynccontextmanager
async def dialled_in(
    folder: Path, door: Gateway, agent: Agent, agent_id: str
) -> AsyncIterator[None]:
    """An agent that has dialled in to the gateway."""
    url = door.url.replace("http:", "ws:")
    own = settings(folder, agents=hosted({"worker": link(agent_id, url)}))
    async with served(agent, own), httpx2.AsyncClient(timeout=60) as client:

        async def served_there() -> bool:
            card = await client.get(f"{door.at(agent_id)}/.well-known/agent-card.json")
            return card.status_code == 200

        await until(served_there, 60)
        yield
