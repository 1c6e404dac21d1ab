"""What AG2's A2A client does with a served agent: `ag2_client.py FOLDER URL`."""

from __future__ import annotations

import asyncio
import sys

from ag2 import Agent
from ag2.a2a import A2AConfig

folder, url = sys.argv[1:]
sys.path.insert(0, folder)
from verdicts import judge  # noqa: E402


async def asked(text: str, *, streaming: bool) -> tuple[str, list[str]]:
    """What the agent says in the end, and what it asked its human for."""
    questions: list[str] = []

    def human(event: object) -> str:
        questions.append(event.content)  # type: ignore[attr-defined]
        return "Kyoto"

    agent = Agent("desk", config=A2AConfig(card_url=url, streaming=streaming))
    reply = await agent.ask(text, hitl_hook=human)
    return reply.response.message.content, questions


async def send(_: None) -> None:
    assert await asked("hello", streaming=False) == ("HELLO", [])


async def stream(_: None) -> None:
    assert await asked("write one two", streaming=True) == ("one two ", [])


async def answer(_: None) -> None:
    assert await asked("trip", streaming=False) == ("A trip to Kyoto", ["Which city?"])


async def answer_streamed(_: None) -> None:
    assert await asked("trip", streaming=True) == ("A trip to Kyoto", ["Which city?"])


async def nothing() -> None:
    """Every question connects by itself."""


asyncio.run(judge([send, stream, answer, answer_streamed], nothing))
