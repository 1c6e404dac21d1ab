"""Hops are counted over XiaoYi links too, so a loop of agents ends."""

from __future__ import annotations

import asyncio
import json

from dragoman import Agent, State, Turn
from dragoman.client import connect
from dragoman.xiaoyi.outbound_link import SigningKeys
from xiaoyi.links import AGENT, gateway
from xiaoyi.strangers import repeat
from xiaoyi.test_agent_links import linked
from xiaoyi.test_both_sides import _Server
from xiaoyi.test_strangers import dialled


async def test_a_loop_over_a_link_ends_after_16_hops() -> None:
    agent, calls = Agent("Loop", description="Asks itself."), []

    async with asyncio.timeout(240), gateway() as door:

        @agent.skill("loop", default=True)
        async def loop(turn: Turn) -> str:
            calls.append(turn.caller.hops)
            async with connect(f"{door.url}/agents/{AGENT}") as itself:
                task = await itself.bearing(hops=turn.caller.hops + 1).send("again")
            if task.state is State.FAILED and task.status.message is not None:
                raise turn.fail(task.status.message.text)
            return task.text

        keys = SigningKeys(AGENT, door.ak, door.sk)
        async with linked(_Server(door.link_url), keys=keys, agent=agent):  # type: ignore[arg-type]
            await door.appears()
            async with connect(f"{door.url}/agents/{AGENT}") as caller:
                task = await caller.send("go")
        assert task.state is State.FAILED
        assert task.status.message is not None
        assert "in a row" in task.status.message.text
        assert calls == sorted(calls)
        assert len(calls) <= 16


async def test_agents_of_others_are_told_no_hops() -> None:
    async with asyncio.timeout(240), gateway() as door, dialled(door, repeat) as agent:
        async with connect(f"{door.url}/agents/{AGENT}") as caller:
            await caller.send("go")
        assert "hops" not in json.dumps(agent.requests)
