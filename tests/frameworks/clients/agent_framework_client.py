"""What agent-framework's A2AAgent does: `agent_framework_client.py FOLDER URL`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from a2a.client import A2ACardResolver
from agent_framework.a2a import A2AAgent

folder, url = sys.argv[1:]
sys.path.insert(0, folder)
from verdicts import judge  # noqa: E402


@asynccontextmanager
async def desk() -> AsyncIterator[A2AAgent]:
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    async with A2AAgent(agent_card=card) as agent:
        yield agent


async def told(agent: A2AAgent, text: str, session: Any) -> tuple[list[str], int]:
    """The pieces of a streamed answer, and how much it asks for."""
    response = agent.run(text, session=session, stream=True)
    pieces = [update.text async for update in response]
    final = await response.get_final_response()
    return [piece for piece in pieces if piece], len(final.user_input_requests)


async def send(_: None) -> None:
    async with desk() as agent:
        assert (await agent.run("hello")).text == "HELLO"


async def stream(_: None) -> None:
    async with desk() as agent:
        assert await told(agent, "write one two", agent.create_session()) == (["one ", "two "], 0)


async def answer(_: None) -> None:
    async with desk() as agent:
        session = agent.create_session()
        question = await agent.run("trip", session=session)
        assert question.text == "Which city?", question
        assert len(question.user_input_requests) == 1, question
        done = await agent.run("Kyoto", session=session)
        assert (done.text, done.user_input_requests) == ("A trip to Kyoto", []), done


async def answer_streamed(_: None) -> None:
    async with desk() as agent:
        session = agent.create_session()
        assert await told(agent, "trip", session) == (["Which city?"], 1)
        assert await told(agent, "Kyoto", session) == (["A trip to Kyoto"], 0)


async def nothing() -> None:
    """Every question connects by itself."""


asyncio.run(judge([send, stream, answer, answer_streamed], nothing))
