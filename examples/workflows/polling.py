"""A2A 0.3 §9.2: send without waiting, then look again until the task is done."""

import asyncio
import sys

from dragoman import Agent, State, Turn, connect

agent = Agent("Archive", description="Takes its time.")


@agent.skill("search", description="Looks something up.", examples=["dragomans"])
async def search(turn: Turn) -> str:
    await turn.say("Going down to the cellar")
    await asyncio.sleep(0.2)
    return f"Three boxes about {turn.text}"


async def talk(address: str = "http://127.0.0.1:8420", dialect: str = "") -> tuple[str, str]:
    """In which state the task was first, and what came of it."""
    async with connect(address, dialect=dialect) as archive:
        task = await archive.send("dragomans", wait=False)
        first = task
        while task.state in (State.SUBMITTED, State.WORKING):
            await asyncio.sleep(0.05)
            task = await archive.get(task)
        return first.state.value, task.text


if __name__ == "__main__":
    print(asyncio.run(talk(*sys.argv[1:])))
