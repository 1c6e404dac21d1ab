"""MCP with several workers: a session is in the memory of one, and reached through all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, ElicitResult, TextContent

from server.workers.test_workers import serving

pytestmark = pytest.mark.slow
AGENT = """
import os
from dragoman import Agent, Turn

agent = Agent("Workers", description="Says which process it is", version="1")

@agent.skill("which", description="Which process", default=True)
async def which(turn: Turn) -> str:
    return str(os.getpid())

@agent.skill("ask", description="Asks")
async def ask(turn: Turn) -> str:
    return f"heard {await turn.ask('What?')}"
"""


def _text(result: CallToolResult) -> str:
    return "\n".join(each.text for each in result.content if isinstance(each, TextContent))


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_session_is_reached_through_every_worker(tmp_path: Path, mode: str) -> None:
    async def user(context: Any, params: Any) -> ElicitResult:
        (name,) = params.requested_schema["properties"]
        return ElicitResult(action="accept", content={name: "this"})

    # Each request has a connection of its own, so both workers get some of them.
    alone = httpx2.Limits(max_keepalive_connections=0)
    async with (
        serving(tmp_path, "--workers", "2", "--mcp", agent=AGENT) as served,
        httpx2.AsyncClient(timeout=120, limits=alone) as web,
        Client(
            streamable_http_client(f"{served.url}/mcp", http_client=web),
            mode=mode,
            elicitation_callback=user,
        ) as mcp,
    ):
        told = {_text(await mcp.call_tool("which", {"message": "x"})) for _ in range(20)}
        assert len(told) == (1 if mode == "legacy" else 2)
        for _ in range(3):
            assert "heard this" in _text(await mcp.call_tool("ask", {"message": "x"}))
