"""A process to be killed: `python -m engine.victim URL FOLDER`.

It runs an agent on a store and writes down, beside the store, what it really did.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from dragoman import Agent, Turn
from dragoman.testing import Client
from waiting import forever

STEPS = 6


def agent_in(folder: Path, pause: float) -> Agent:
    """The same agent for the victim and for whoever takes over."""
    agent = Agent("Victim")

    def did(what: str) -> str:
        with (folder / "did").open("a") as file:
            file.write(what + "\n")
        return what

    @agent.skill("work")
    async def work(turn: Turn) -> AsyncGenerator[str, None]:
        for number in range(STEPS):
            await turn.say(f"say {number}")
            yield await turn.step(f"step {number}", did, f"{turn.text}{number} ")
            await asyncio.sleep(pause)  # its work
        yield "end"

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        await turn.say("hello")
        found = await turn.step("look", did, "looked")
        return f"{found} {await turn.ask('Well?')}"

    return agent


async def main(url: str, folder: Path) -> None:
    """Acknowledges three tasks, then works on them until it is killed."""
    async with Client(agent_in(folder, 0.02), store=url) as client:
        waiting = await client.send("go", skill="ask")
        tasks = [await client.send(name, skill="work", wait=False) for name in "ab"]
        (folder / "acked").write_text(" ".join([waiting.id, *(task.id for task in tasks)]))
        (folder / "pid").write_text(str(os.getpid()))
        await forever()  # until it is killed


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
