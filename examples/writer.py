"""A streaming skill: every `yield` is one event, all of them together one artifact.

Serve it with `dragoman serve examples/writer.py`.
"""

import asyncio
from collections.abc import AsyncGenerator

from dragoman import Agent, Turn

agent = Agent("Writer", description="Writes a limerick, word by word.")

LIMERICK = """A dragoman, fluent and quick,
Knew each of the dialects' trick;
He carried, unmarred,
What each party declared,
And was thanked in the tongue of their pick."""


@agent.skill("limerick", description="Writes a limerick.", examples=["about translators"])
async def limerick(turn: Turn) -> AsyncGenerator[str, None]:
    await turn.say("Sharpening the pencil.")
    lines = LIMERICK.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        for word in line.split(" "):
            await asyncio.sleep(0.01)
            yield word if word.endswith("\n") else word + " "
        await turn.progress(number / len(lines))
