"""The agent under attack."""

from __future__ import annotations

import asyncio

from dragoman import Agent, Turn

agent = Agent("Besieged", description="Works on while others attack.")


@agent.skill("echo", default=True)
async def echo(turn: Turn) -> str:
    return turn.text


@agent.skill("patient", on_crash="fail")
async def patient(turn: Turn) -> str:
    """Works for so many seconds; says which attempt this is."""
    await asyncio.sleep(float(turn.text))  # its work
    return f"attempt {turn.attempt}"
