"""An agent for the doctor: answers at once, takes its time at `slow`, or asks twice at `ask`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from dragoman import Agent, Turn

agent = Agent("Patient", description="Lets itself be examined.", version="1.0.0")


@agent.skill("talk", description="Says it back, word by word.", examples=["one two three"])
async def talk(turn: Turn) -> AsyncIterator[str]:
    words = turn.text.split() or ["nothing"]
    if words[0] == "ask":
        for question in ("Which city?", "Which day?"):
            yield await turn.ask(question)
        return
    for word in words[:50]:
        yield f"{word} "
        if words[0] == "slow":
            await asyncio.sleep(20)  # its work
