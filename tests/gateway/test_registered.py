"""Agents that were registered: what the gateway does with what they said of themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.core.errors import DragomanError
from dragoman.core.operations import GetTask
from dragoman.core.peer import Context
from dragoman.gateway import UpstreamAgent
from dragoman.gateway.configuration import registered
from dragoman.settings import Settings
from dragoman.store.registry import RegistryEntry, Source
from dragoman.testing.served import served
from gateway.behind import settings, worker


def made(own: Settings, source: Source, url: str, card: str = "") -> UpstreamAgent:
    entry = RegistryEntry(name="far", source=source, owner="ann", addresses=(url,), card=card)
    agent = registered(own)(entry)
    assert isinstance(agent, UpstreamAgent)
    return agent


@pytest.mark.parametrize("form", ["{}", "iat+{}/iat", "a2a+grpc://127.0.0.1:1"])
async def test_each_connection_to_a_registered_agent_keeps_to_public_addresses(
    tmp_path: Path, form: str
) -> None:
    """A name that led to a public address when it was registered may lead here by now."""
    own = settings(tmp_path)
    own = replace(own, server=replace(own.server, allow_private=False))
    async with asyncio.timeout(120), served(worker(), settings(tmp_path)) as url:
        agent = made(own, Source.TOKEN, form.format(url))
        with pytest.raises(DragomanError, match=r"only public addresses|is not public|loopback"):
            async with agent.pool.peer() as peer:
                await peer.call(GetTask(task_id="t"), Context())
        await agent.pool.close()


async def test_an_operator_may_register_an_agent_of_this_machine(tmp_path: Path) -> None:
    own = settings(tmp_path)
    own = replace(own, server=replace(own.server, allow_private=False))
    async with asyncio.timeout(120), served(worker(), settings(tmp_path)) as url:
        agent = made(own, Source.CLI, url)
        async with agent.pool.peer() as peer:
            assert peer.card.name == "Worker"
        await agent.pool.close()
