"""What agent-framework's A2AAgent makes of failed sends and of work in the background:
`agent_framework_background.py FOLDER URL`. The address of gRPC is on the card."""

from __future__ import annotations

import asyncio
import sys

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import AgentCard
from agent_framework.a2a import A2AAgent

folder, url = sys.argv[1:]
sys.path.insert(0, folder)
from verdicts import judge  # noqa: E402


async def failed_send(card: AgentCard) -> None:
    """It shows the last message of the history, the caller's own, and not that of the status."""
    async with A2AAgent(agent_card=card) as agent:
        assert (await agent.run("fail")).text == "fail"


async def failed_stream(card: AgentCard) -> None:
    async with A2AAgent(agent_card=card) as agent:
        response = agent.run("fail", stream=True)
        assert [update.text async for update in response] == ["No paper left"]


async def polled(card: AgentCard) -> None:
    async with A2AAgent(agent_card=card) as agent:
        await poll(agent)


async def polled_by_url(_: AgentCard) -> None:
    async with A2AAgent(url=url) as agent:
        await poll(agent)


async def poll(agent: A2AAgent) -> None:
    token = (await agent.run("half", background=True)).continuation_token
    assert token is not None
    while (found := await agent.poll_task(token)).continuation_token is not None:  # noqa: ASYNC110
        await asyncio.sleep(0.05)  # between two looks, as its users do
    assert found.text == "one two ", found


async def resumed(card: AgentCard) -> None:
    """It takes no artifacts from the task that a resumed stream begins with."""
    async with A2AAgent(agent_card=card) as agent:
        started = await agent.run("half", background=True)
        found = await agent.run(continuation_token=started.continuation_token)
        assert found.text.endswith("two "), found


async def resumed_by_url(_: AgentCard) -> None:
    """The card that it makes of an address knows no streaming, so its SDK sends nothing."""
    async with A2AAgent(url=url) as agent:
        started = await agent.run("half", background=True)
        try:
            await agent.run(continuation_token=started.continuation_token)
        except NotImplementedError:
            return
        raise AssertionError("it can resume by URL now: change docs/frameworks.md")


async def grpc_alone(card: AgentCard) -> None:
    """It gives its SDK no channel for gRPC."""
    try:
        A2AAgent(agent_card=card, supported_protocol_bindings=["GRPC"])
    except RuntimeError:
        return
    raise AssertionError("it opens gRPC now: change docs/frameworks.md")


async def resumed_over_grpc(card: AgentCard) -> None:
    channel = grpc.aio.insecure_channel
    config = ClientConfig(grpc_channel_factory=channel, supported_protocol_bindings=["GRPC"])
    async with A2AAgent(client=ClientFactory(config).create(card)) as agent:
        assert (await agent.run("fail")).text == "No paper left"
        token = None
        async for update in agent.run("half", background=True, stream=True):
            token = token or update.continuation_token
            if token is not None:
                break
        found = await agent.run(continuation_token=token)
        assert found.text.endswith("two "), found


async def read_card() -> AgentCard:
    async with httpx.AsyncClient() as http:
        return await A2ACardResolver(http, url).get_agent_card()


asyncio.run(
    judge(
        [
            failed_send,
            failed_stream,
            polled,
            polled_by_url,
            resumed,
            resumed_by_url,
            grpc_alone,
            resumed_over_grpc,
        ],
        read_card,
    )
)
