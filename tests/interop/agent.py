"""The agent that the official clients talk to; a message names its skill in `metadata.skillId`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from dragoman import Agent, Turn
from dragoman.core.model import Blob, Text

MODES = ("text/plain", "application/json", "application/octet-stream", "application/pdf")

agent = Agent(
    "Interop desk",
    description="Does a little of everything, so that clients can be tried on it",
    version="1.0.0",
    input_modes=MODES,
    output_modes=MODES,
)


@agent.skill("echo", description="Says it back, louder", tags=["text"], default=True)
async def echo(turn: Turn) -> str:
    return turn.text.upper()


@agent.skill("write", description="Gives each word as a chunk", tags=["text", "stream"])
async def write(turn: Turn) -> AsyncIterator[str]:
    for word in turn.text.split():
        yield f"{word} "
        await asyncio.sleep(0.02)  # its work


@agent.skill("trip", description="Asks back before it plans", tags=["travel"])
async def trip(turn: Turn) -> str:
    city = await turn.ask("Which city?")
    return f"A trip to {city}"


@agent.skill("slow", description="Counts as many steps as it is told", tags=["time"])
async def slow(turn: Turn) -> str:
    steps = int(turn.text or 300)  # the default is half a minute
    for step in range(steps):
        await turn.say(f"step {step}")
        await turn.progress((step + 1) / steps)
        await asyncio.sleep(0.1)  # its work
    return f"{steps} steps"


@agent.skill("silent", description="Says nothing for so many seconds", tags=["time"])
async def silent(turn: Turn) -> str:
    await asyncio.sleep(float(turn.text))  # the silence
    return "done"


@agent.skill("files", description="Says what it was given and gives it back", tags=["files"])
async def files(turn: Turn) -> object:
    carried = b"".join(file.content for file in turn.files if isinstance(file, Blob))
    saw = {"files": len(turn.files), "bytes": len(carried), "facts": turn.data}
    return [saw, carried[::-1], *(part for part in turn.parts if not isinstance(part, Text))]
