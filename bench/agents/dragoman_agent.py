"""The bench agent on Dragoman, served by `dragoman serve`."""

import asyncio
import time
from collections.abc import AsyncIterator

from dragoman import Agent, Turn

GAP_SECONDS = 0.005
STAMPED_GAP_SECONDS = 0.02

agent = Agent("Bench", description="Echoes and streams for the bench.", version="1.0.0")


@agent.skill("echo", description="Says it back.", tags=["bench"], default=True)
async def echo(turn: Turn) -> str:
    return turn.text


@agent.skill(
    "write", description="Streams chunks: chunks N, spaced N, stamped N or hang.", tags=["bench"]
)
async def write(turn: Turn) -> AsyncIterator[str]:
    command, _, count = turn.text.partition(" ")
    if command == "hang":
        yield "w0 "
        await asyncio.Event().wait()
    for number in range(int(count)):
        if command == "spaced" and number:
            await asyncio.sleep(GAP_SECONDS)
        if command == "stamped":
            # For readers on the same machine, who thereby know how long a chunk was on its way.
            await asyncio.sleep(STAMPED_GAP_SECONDS)
            yield f"{time.monotonic()} "
            continue
        yield f"w{number} "
