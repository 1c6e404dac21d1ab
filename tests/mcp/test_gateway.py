"""MCP in front of a gateway: agents of three dialects behind it are tools of one server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import CallToolResult, ElicitResult, TextContent

from dragoman import Agent, Turn
from dragoman.testing import served
from gateway.behind import gateway, section, settings
from waiting import forever, until

pytestmark = pytest.mark.slow
DIALECTS = {"alpha": "a2a-1.0", "beta": "a2a-0.3", "gamma": "iat"}


def text(result: CallToolResult) -> str:
    return "\n".join(each.text for each in result.content if isinstance(each, TextContent))


def worker(canceled: list[str]) -> Agent:
    agent = Agent("worker", description="For tests.")

    @agent.skill("say", default=True)
    async def say(turn: Turn) -> str:
        return f"{turn.caller.dialect} {turn.text}"

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        return f"heard {await turn.ask('What?')}"

    @agent.skill("slow")
    async def slow(turn: Turn) -> None:
        await turn.say("began")
        try:
            await forever()
        finally:
            canceled.append(turn.caller.dialect)

    return agent


async def test_agents_of_three_dialects_behind_a_gateway_are_tools(
    tmp_path: Path, client: Callable[..., Client], user: Callable[..., Any]
) -> None:
    canceled: list[str] = []
    person = user(*(ElicitResult(action="accept", content={"answer": name}) for name in DIALECTS))
    own = settings(tmp_path, name="worker")
    async with served(worker(canceled), own) as behind:
        sections = {name: section(tmp_path, behind, each) for name, each in DIALECTS.items()}
        async with (
            gateway(sections, settings(tmp_path)) as front,
            client(f"{front.url}/mcp", person) as mcp,
        ):
            names = [each.name for each in (await mcp.list_tools()).tools]
            for name, dialect in DIALECTS.items():
                assert f"{name}__say" in names
                said = await mcp.call_tool(f"{name}__say", {"message": "hi"})
                assert text(said) == f"{dialect} hi"
                asked = await mcp.call_tool(f"{name}__ask", {"message": "x"})
                assert text(asked) == f"heard {name}"
            assert person.asked == ["What?"] * 3
            for name, dialect in DIALECTS.items():
                began = asyncio.Event()

                async def told(
                    progress: float,
                    total: float | None,
                    message: str | None,
                    began: asyncio.Event = began,
                ) -> None:
                    began.set()

                slow = mcp.call_tool(f"{name}__slow", {"message": "x"}, progress_callback=told)
                call = asyncio.create_task(slow)
                await began.wait()
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                await until(lambda dialect=dialect: dialect in canceled)
