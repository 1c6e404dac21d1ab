"""The agent that the gateway asks in IAT; the README beside it says how to start it."""

import asyncio
from collections.abc import AsyncGenerator

from dragoman import Agent, Turn

agent = Agent("Beta", description="Counts, slowly.")


@agent.skill("count", description="Counts, number by number.", examples=["five"])
async def count(turn: Turn) -> AsyncGenerator[str, None]:
    for number in ("one", "two", "three", "four", "five"):
        await asyncio.sleep(0.1)
        yield f"{number} "
        if number == turn.text:
            return
