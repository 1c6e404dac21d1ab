"""The metrics of several replicas: counters are added up, and what the store knows is the same at
each of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2

from dragoman import Agent, Turn, connect
from dragoman.settings import Limits, Server, Settings
from dragoman.testing import served
from waiting import until

OF_THE_STORE = "Of the whole store, so take the maximum over replicas, and not the sum."


def desk(go_on: asyncio.Event) -> Agent:
    agent = Agent("Desk", description="Works")

    @agent.skill("work", default=True)
    async def work(turn: Turn) -> str:
        if turn.text == "wait":
            await go_on.wait()
        return turn.text

    return agent


async def figures(url: str) -> tuple[dict[str, float], dict[str, str]]:
    """Returns the values by name and labels, and the help of each name."""
    async with httpx2.AsyncClient(timeout=60) as client:
        lines = (await client.get(f"{url}/metrics")).text.splitlines()
    values = {
        name: float(n) for name, _, n in (line.rpartition(" ") for line in lines if "#" not in line)
    }
    told = (line.split(" ", 3) for line in lines if line.startswith("# HELP"))
    return values, {name: text for _, _, name, text in told}


async def test_what_is_added_up_over_replicas_is_counted_once(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    settings = Settings(
        server=Server(store=f"sqlite:///{tmp_path}/tasks.db"), limits=Limits(max_runs=1)
    )
    async with (
        served(desk(go_on), settings) as one,
        served(desk(go_on), settings) as two,
        connect(one) as a,
        connect(two) as b,
    ):
        for agent, n in ((a, 3), (b, 2)):
            for _ in range(n):
                await agent.stream("hello").result()
        # Both replicas are busy, and two tasks wait for a worker.
        for agent in (a, b, a, b):
            await agent.send("wait", wait=False)

        async def queued() -> bool:
            return (await figures(one))[0]["dragoman_queue"] == 2

        await until(queued)
        (ours, told), (theirs, _) = await figures(one), await figures(two)
        both = {name: ours.get(name, 0) + theirs.get(name, 0) for name in {*ours, *theirs}}
        asked = 'dragoman_requests_total{method="SendMessage+stream",dialect="a2a-1.0"}'
        assert (ours[asked], theirs[asked], both[asked]) == (3, 2, 5)
        assert both["dragoman_streams_opened_total"] == 5
        # A sum of these would be twice what there is, and their help says so.
        assert {name for name, text in told.items() if text.endswith(OF_THE_STORE)} == {
            "dragoman_tasks",
            "dragoman_queue",
            "dragoman_webhook_age_seconds",
        }
        assert ours["dragoman_queue"] == theirs["dragoman_queue"] == 2
        done = 'dragoman_tasks{state="completed"}'
        assert ours[done] == theirs[done] == 5
        go_on.set()
