"""A2A 0.3 §9.3: a long answer, heard piece by piece as it is written."""

import asyncio
import sys
from collections.abc import AsyncIterator

from dragoman import Agent, Turn, connect
from dragoman.core.events import ArtifactChunk, Stamped

agent = Agent("Writer", description="Writes as it thinks.")


@agent.skill("write", description="Writes about anything.", examples=["bridges"])
async def write(turn: Turn) -> AsyncIterator[str]:
    for word in ("On", turn.text, "much", "can", "be", "said."):
        await asyncio.sleep(0.02)
        yield f"{word} "


async def talk(address: str = "http://127.0.0.1:8420", dialect: str = "") -> tuple[list[str], str]:
    """The pieces as they came, and what they are together."""
    async with connect(address, dialect=dialect) as writer:
        steps = writer.stream("bridges")
        pieces = [
            step.event.artifact.text
            async for step in steps
            if isinstance(step, Stamped) and isinstance(step.event, ArtifactChunk)
        ]
        return pieces, steps.task.text if steps.task else ""


if __name__ == "__main__":
    print(asyncio.run(talk(*sys.argv[1:])))
