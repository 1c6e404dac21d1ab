"""The agent of the interop tests with something on its extended card; served behind a token."""

from __future__ import annotations

from agent import agent
from dragoman import Turn

__all__ = ["agent"]


@agent.skill("hidden", description="Not for everyone", extended=True)
async def hidden(turn: Turn) -> str:
    return "found"
