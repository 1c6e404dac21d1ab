"""A process to be killed: `python -m team.boss STORE FOLDER ADDRESS SKILL`.

It opens one task, whose skill asks the agent at ADDRESS, and works until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dragoman import Agent, Task, Turn
from dragoman.testing import Client
from waiting import forever, until


def boss_in(folder: Path, address: str) -> Agent:
    """The same agent for the victim and for whoever takes over."""
    agent = Agent("Boss")

    @agent.skill("one")
    async def one(turn: Turn) -> str:
        task = await turn.agent(address).send("work", skill="work")
        (folder / "returned").touch()
        if not (folder / "gate").exists():
            await forever()  # until it is killed
        return f"got {task.text}"

    @agent.skill("asks")
    async def asks(turn: Turn) -> str:
        return (await turn.agent(address).send("x", skill="ask", pass_up=True)).text

    @agent.skill("many")
    async def many(turn: Turn) -> str:
        other = turn.agent(address)
        first = await other.send("first", skill="work")
        told = await asyncio.gather(
            *(other.send(f"{first.text} {n}", skill="work", key=f"part {n}") for n in range(3))
        )
        return ", ".join(each.text for each in told)

    @agent.skill("answers")
    async def answers(turn: Turn) -> str:
        other = turn.agent(address)
        task = await other.send("x", skill="ask")
        assert isinstance(task, Task)
        return (await other.answer(task, "Rome")).text

    return agent


async def noted(client: Client, task_id: str) -> bool:
    """Whether it is in the store which task of the other agent belongs to ours."""
    run = client.engine.runner.runs.get(task_id)
    return run is None or bool(await client.store.records(run.writer.claim))


async def main(store: str, folder: Path, address: str, skill: str) -> None:
    """One task, acknowledged."""
    async with Client(boss_in(folder, address), store=store) as client:
        task = await client.send("go", skill=skill, wait=skill == "asks")
        (folder / "acked").write_text(task.id)
        await until(lambda: noted(client, task.id))
        (folder / "noted").touch()
        await forever()  # until it is killed


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]))
