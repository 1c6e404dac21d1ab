"""Our agent on links to two of our own gateways, with proxies between them that cut, delay and
half-open connections and bring requests twice: every task is done and answered once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from counts import count
from dragoman import Agent, State, Task, Turn
from dragoman.client import connect
from dragoman.core.errors import DragomanError
from dragoman.core.events import Stamped, StateChanged
from dragoman.core.lifecycle import FINAL
from dragoman.xiaoyi.outbound_link import SigningKeys
from waiting import before_again, until
from xiaoyi.faulty_proxy import misbehave, proxied
from xiaoyi.links import AGENT, gateway
from xiaoyi.test_agent_links import linked

TASKS = count(6, 20, 200)
SESSIONS, AT_ONCE = 10, 8


async def asked(caller: Any, number: int) -> Task:
    """A caller that waits for the end of its task."""

    async def opened() -> Any:
        with suppress(DragomanError):  # the agent has no link now
            return await caller.send(
                f"word {number}", context_id=f"se-{number % SESSIONS}", wait=False
            )

    task = await until(opened)

    async def ended() -> Task | None:
        found: Task = await caller.get(task)
        return found if found.state in FINAL else None

    found: Task = await until(ended, 240)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
async def test_every_task_of_two_gateways_is_answered_once_whatever_links_do(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = Agent("Phone agent", description="Answers phones.")
    runs: Counter[str] = Counter()

    @agent.skill("talk")
    async def talk(turn: Turn) -> None:
        runs[turn.text] += 1
        await turn.artifact("echo: ", last=False)
        for letter in turn.text:
            await before_again()
            await turn.artifact(letter, append=True, last=False)

    dice = random.Random(seed)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(1200))
        doors = [await stack.enter_async_context(gateway(idle=5.0)) for _ in range(2)]
        ak, sk = doors[0].ak, doors[0].sk  # the platform has one pair for all its servers
        await doors[1].service.ring.keep(ak, sk, [AGENT])
        proxies = [
            await stack.enter_async_context(proxied(int(door.url.rpartition(":")[2]), dice))
            for door in doors
        ]
        dialled: Any = linked(
            *proxies,  # type: ignore[arg-type]  # they have a url
            keys=SigningKeys(AGENT, ak, sk),
            agent=agent,
            heartbeat=0.5,
            pings=(0.5, 2.0),
        )
        await stack.enter_async_context(dialled)
        for door in doors:
            await door.appears()
        callers = [
            await stack.enter_async_context(connect(f"{door.url}/agents/{AGENT}")) for door in doors
        ]
        room = asyncio.Semaphore(AT_ONCE)

        async def work(number: int) -> None:
            caller = callers[number % 2]
            async with room:
                task = await asked(caller, number)
            assert (task.state, task.text) == (State.COMPLETED, f"echo: word {number}"), task
            told = [each.event async for each in caller.watch(task, 0) if isinstance(each, Stamped)]
            ends = [e for e in told if isinstance(e, StateChanged) and e.state in FINAL]
            assert len(ends) == 1

        faults = asyncio.create_task(misbehave(proxies, dice))
        try:
            await asyncio.gather(*map(work, range(TASKS)))
        finally:
            faults.cancel()
    seen = proxies[0].faults + proxies[1].faults
    with capsys.disabled():
        print(f"\n  cut links: {TASKS} tasks, {dict(seen)}")
    assert runs == {f"word {number}": 1 for number in range(TASKS)}
    assert seen.total() >= 2  # how many of each kind is up to the dice and the machine
