"""How many tasks of a tenant or a skill run at a time in all processes, and how long a queue may
be."""

from __future__ import annotations

import asyncio
from collections import Counter
from copy import copy

import pytest

from dragoman import Agent, State, Turn
from dragoman.core.errors import ConfigError, TooMany
from dragoman.core.peer import Context
from dragoman.engine import Engine, EngineSettings
from dragoman.engine.maintenance import Maintenance
from dragoman.settings import Limits, Settings
from dragoman.settings.checks import check
from dragoman.store.clock import wall_clock
from dragoman.testing import Client
from engine.harness import EngineHarness, ended, in_state
from waiting import stays, until

ACME = Context(tenant="acme", principal="ann")
BELL = Context(tenant="bell", principal="bob")


class Desk:
    """An agent with two skills, which says how many of its runs there are."""

    def __init__(self, max_runs: int = 0) -> None:
        self.agent = Agent("Desk")
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.go = asyncio.Event()

        @self.agent.skill("plan", default=True)
        async def plan(turn: Turn) -> str:
            return await self._run("plan", turn)

        @self.agent.skill("draw", max_runs=max_runs)
        async def draw(turn: Turn) -> str:
            return await self._run("draw", turn)

    async def _run(self, skill: str, turn: Turn) -> str:
        names = (skill, turn.caller.tenant, "all")
        self.now.update(names)
        self.most |= self.now
        try:
            if turn.text == "ask":
                await turn.ask("Well?")
            await self.go.wait()
            return turn.text
        finally:
            self.now.subtract(names)


async def _queued(client: Client) -> int:
    return (await client.engine.counts())["runnable"]


async def test_a_tenant_runs_as_many_tasks_as_it_may_in_all_processes(
    shared: EngineHarness,
) -> None:
    desk = Desk()
    limits = {"runs_per_tenant": 2}
    async with (
        shared.client(desk.agent, context=ACME, **limits) as one,
        shared.client(desk.agent, context=ACME, **limits) as two,
    ):
        tasks = [await client.send("x", wait=False) for client in (one, two) * 4]
        await until(lambda: desk.now["acme"] == 2)
        await stays(lambda: desk.now["acme"] == 2)
        assert await _queued(one) == 6
        # The queue of one tenant does not delay another.
        bell = copy(one)
        bell.context = BELL
        other = await bell.send("y", wait=False)
        await until(lambda: desk.now["bell"] == 1)
        desk.go.set()
        for task in tasks:
            assert (await ended(one, task.id)).state is State.COMPLETED
        assert (await ended(bell, other.id)).state is State.COMPLETED
        assert desk.most["acme"] == 2


async def test_a_skill_runs_as_many_tasks_as_its_code_allows(harness: EngineHarness) -> None:
    desk = Desk(max_runs=1)
    async with harness.client(desk.agent, context=ACME) as client:
        drawn = [await client.send("x", skill="draw", wait=False) for _ in range(3)]
        planned = [await client.send("x", skill="plan", wait=False) for _ in range(3)]
        # A skill without a limit starts at once.
        assert {task.state for task in planned} == {State.WORKING}
        await until(lambda: desk.now["draw"] == 1)
        await stays(lambda: desk.now["draw"] == 1)
        desk.go.set()
        for task in drawn:
            assert (await ended(client, task.id)).state is State.COMPLETED
        assert desk.most["draw"] == 1
        assert desk.most["plan"] == 3


async def test_a_limit_for_every_skill(memory: EngineHarness) -> None:
    desk = Desk(max_runs=3)
    async with memory.client(desk.agent, runs_per_skill=1) as client:
        for skill in ("plan", "draw") * 3:
            await client.send("x", skill=skill, wait=False)
        await until(lambda: desk.now["all"] == 4)
        await stays(lambda: (desk.now["plan"], desk.now["draw"]) == (1, 3))
        desk.go.set()


async def test_a_task_that_waits_for_its_caller_leaves_its_place(harness: EngineHarness) -> None:
    desk = Desk()
    async with harness.client(desk.agent, runs_per_tenant=1) as client:
        asking = await client.send("ask", wait=False)
        await in_state(client, asking.id, State.INPUT_REQUIRED)
        second = await client.send("x", wait=False)
        await until(lambda: desk.now["all"] == 2)
        desk.go.set()
        assert (await ended(client, second.id)).text == "x"
        assert (await client.send("so", task=asking)).state is State.COMPLETED


async def test_a_full_queue_says_when_to_try_again(memory: EngineHarness) -> None:
    desk = Desk()
    async with memory.client(desk.agent, max_runs=1, max_queue=2) as client:
        for _ in range(3):
            await client.send("x", wait=False)
        with pytest.raises(TooMany) as refused:
            await client.send("x", wait=False)
        assert int(refused.value.public["retry_after"]) >= 1
        desk.go.set()


async def test_the_queue_of_all_processes_counts(shared: EngineHarness) -> None:
    desk = Desk()
    limits = {"max_runs": 1, "max_queue": 4}
    async with (
        shared.client(desk.agent, **limits) as one,
        shared.client(desk.agent, **limits) as two,
    ):
        for client in (one, two):
            await client.send("x", wait=False)
        for _ in range(4):
            await one.send("x", wait=False)
        # The other process counts the queue when it looks for work the next time.
        await until(lambda: two.engine.runner.queue.length == 4)
        with pytest.raises(TooMany):
            await two.send("x", wait=False)
        desk.go.set()


async def test_the_queues_of_all_agents_of_a_server_count(memory: EngineHarness) -> None:
    desk = Desk()
    store = memory.store()
    settings = EngineSettings(max_runs=1, max_queue=3, max_queue_total=4)
    maintenance = Maintenance(store, settings, wall_clock)
    clients = []
    for name in ("one", "two"):
        client = Client(desk.agent, store=store, settings=settings)
        client.engine = Engine(
            desk.agent, store, settings, name=name, opens_store=False, maintenance=maintenance
        )
        clients.append(client)
    one, two = clients
    async with one, two:
        for client in (one, two):
            for _ in range(3):
                await client.send("x", wait=False)
        for client in (one, two):
            with pytest.raises(TooMany):
                await client.send("x", wait=False)
        desk.go.set()
        await until(lambda: desk.now["all"] == 0)


def test_limits_of_runs_may_be_zero_but_not_less() -> None:
    check(Settings(limits=Limits(runs_per_tenant=0)))
    with pytest.raises(ConfigError, match="runs_per_tenant must not be less than 0"):
        check(Settings(limits=Limits(runs_per_tenant=-1)))
    with pytest.raises(ConfigError, match="max_queue_total must be more than 0"):
        check(Settings(limits=Limits(max_queue_total=0)))
    with pytest.raises(ConfigError, match="max_runs"):
        Agent("Desk").skill("plan", max_runs=-1)
