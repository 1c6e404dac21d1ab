"""Agents that were registered: what the gateway does with what they said of themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman import Task, connect
from dragoman.core.errors import DragomanError
from dragoman.core.model import Message, Role, Text
from dragoman.core.operations import GetTask, SendMessage
from dragoman.core.peer import Context
from dragoman.dialects.a2a.cards.documents import pure_1_0
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


async def test_the_card_that_came_with_a_registration_is_that_of_an_agent_without_one(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(120), served(worker(), settings(tmp_path)) as url:
        async with connect(url) as direct:
            card = pure_1_0(replace(direct.card, name="Given"))
        agent = made(settings(tmp_path), Source.TOKEN, f"{url}/nowhere", card.decode())
        assert agent.card().name == "Given"
        assert "echo" in {skill.id for skill in agent.card().skills}
        async with agent.pool.peer() as peer:
            assert peer.card.name == "Given"
            message = Message(message_id="m", role=Role.USER, parts=(Text("hi"),))
            task = await peer.call(SendMessage(message=message), Context())
        await agent.pool.close()
        assert isinstance(task, Task)
        assert task.text == "HI"
