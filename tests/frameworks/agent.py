"""The agent that the frameworks talk to. They cannot name a skill, so the first word decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from dragoman import Agent, Turn

agent = Agent(
    "Travel desk", description="Plans trips and says things back, louder", version="1.0.0"
)


@agent.skill("talk", description="Writes word by word, plans a trip, or echoes", tags=["text"])
async def talk(turn: Turn) -> AsyncIterator[str]:
    words = turn.text.split()
    if words[:1] == ["write"]:
        for word in words[1:]:
            yield f"{word} "
    elif words[:1] == ["trip"]:
        city = await turn.ask("Which city?")
        yield f"A trip to {city}"
    elif words[:1] == ["half"]:
        yield "one "
        await asyncio.sleep(5)  # its work
        yield "two "
    elif words[:1] == ["fail"]:
        raise turn.fail("No paper left")
    else:
        yield turn.text.upper()
