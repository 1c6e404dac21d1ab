"""Runs that wait stay in memory, so many of them; the rest run again when they are answered."""

from __future__ import annotations

import asyncio
import threading

from dragoman import Agent, State, SyncTurn, Turn
from dragoman.testing import Client
from engine.harness import (
    ANN,
    BOB,
    EngineHarness,
    Slow,
    background,
    checked,
    ended,
    gathered,
    in_state,
    row_of,
    story,
    until,
)
from waiting import stays


class Desk:
    """Asks each caller something, and tells what was started, done and stopped."""

    def __init__(self) -> None:
        self.agent = Agent("Desk")
        self.started: list[str] = []
        self.stepped: list[str] = []
        self.go = asyncio.Event()

        @self.agent.skill("ask")
        async def ask(turn: Turn) -> str:
            self.started.append(turn.text)
            await turn.say(f"hello {turn.text}")
            await turn.think("hm")
            await turn.artifact("half", name="draft")
            await turn.step("look up", self.stepped.append, turn.text)
            await turn.say("looked up")
            answer = await turn.ask("Well?")
            if answer == "wait":
                await self.go.wait()
            return f"{answer} in attempt {turn.attempt}"


async def test_the_oldest_is_dropped_and_answered_later(harness: EngineHarness) -> None:
    desk = Desk()
    async with harness.client(desk.agent, max_parked=2) as client:
        tasks = [await client.send(name) for name in "abc"]
        await until(lambda: _holder_is(client, tasks[0].id, ""))
        worker = client.engine.runner.worker
        assert [(await row_of(client, task.id)).worker for task in tasks] == ["", worker, worker]
        assert [(await client.get(task.id)).state for task in tasks] == [State.INPUT_REQUIRED] * 3
        for task in tasks:
            done = await client.send("yes", task=task)
            assert done.text == "half\nyes in attempt 1"
            assert story(await checked(client, task.id)) == [
                "opened",
                "working",
                f"working say:hello {task.history[0].text}",
                "noted",
                "=draft:half!",
                "working say:looked up",
                "?input:Well?",
                "working heard:yes",
                "=result:yes in attempt 1!",
                "completed",
            ]
        assert desk.started == ["a", "b", "c", "a"]
        assert desk.stepped == ["a", "b", "c"]


async def _holder_is(client: Client, task_id: str, worker: str) -> bool:
    return (await row_of(client, task_id)).worker == worker


async def test_who_goes_on_working_is_not_parked(harness: EngineHarness) -> None:
    """Answered runs do not count, and are never dropped for those who wait."""
    desk = Desk()
    async with harness.client(desk.agent, max_parked=1) as client:
        working = []
        for name in "ab":
            task = await client.send(name)
            working.append(await client.send("wait", task=task, wait=False))
        waiting = await client.send("c")
        worker = client.engine.runner.worker
        for task in (waiting, *working):
            await stays(lambda task=task: _holder_is(client, task.id, worker))
        desk.go.set()
        for task in working:
            assert (await ended(client, task.id)).text.endswith("attempt 1")
        assert desk.started == ["a", "b", "c"]
        assert len(client.engine.runner.parked) == 1


async def test_a_dropped_task_that_asks_again_parks_again(harness: EngineHarness) -> None:
    agent, started = Agent("Asker"), list[int]()

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        started.append(1)
        return "".join([await turn.ask(f"{n}?") for n in range(3)])

    async with harness.client(agent, max_parked=0) as client:
        task = await client.send("go")
        task_id = task.id
        for number in range(3):
            await until(lambda: _holder_is(client, task_id, ""))
            assert (await row_of(client, task.id)).question == f"input:{number}?"
            task = await client.send(str(number), task=task)
        assert task.text == "012"
        assert len(started) == 4
        assert story(await checked(client, task.id)) == [
            "opened",
            "working",
            "?input:0?",
            "working heard:0",
            "?input:1?",
            "working heard:1",
            "?input:2?",
            "working heard:2",
            "=result:012!",
            "completed",
        ]


async def test_credentials_and_approvals_reach_dropped_tasks(harness: EngineHarness) -> None:
    agent, heard = Agent("Bank"), list[object]()

    @agent.skill("pay")
    async def pay(turn: Turn) -> str:
        await turn.think("hm")
        await turn.progress(0.1)
        heard.append(str(await turn.need_auth({"basic": {}})))
        await turn.think("hm")
        heard.append(await turn.approve("Pay?"))
        return "paid"

    async with harness.client(agent, max_parked=0) as client:
        task = await client.send("go")
        await until(lambda: _holder_is(client, task.id, ""))
        await client.send("pw", task=task, wait=False)
        # The run that was dropped before the approval has no password, so it is asked for again.
        task = await in_state(client, task.id, State.INPUT_REQUIRED)
        await until(lambda: _holder_is(client, task.id, ""))
        await client.send("yes", task=task, wait=False)
        task = await in_state(client, task.id, State.AUTH_REQUIRED)
        await until(lambda: _holder_is(client, task.id, ""))
        task = await client.send("pw", task=task)
        assert task.text == "paid"
        assert heard == ["pw", "pw", True]
        log = story(await checked(client, task.id))
        assert log.count("noted") == 2
        assert log[2:5] == [
            "noted",
            "working",
            "?credentials:Credentials are needed to go on",
        ]


async def test_an_answer_that_crosses_with_the_drop_is_not_lost(memory: EngineHarness) -> None:
    desk = Desk()
    store = Slow(memory.store())
    async with Client(desk.agent, store=store) as client:
        task = await client.send("a")
        run = client.engine.runner.runs[task.id]
        store.hold("release")
        async with background(client.engine.runner.give_back(run)) as dropping:
            await until(lambda: store.waiting)
            async with background(client.send("yes", task=task, wait=False)) as sending:

                async def heard() -> bool:
                    await client.engine._maintenance._reconcile()  # else one every ten seconds
                    return sending.done()

                await until(heard)
            store.let_go()
            await dropping
        done = await ended(client, task.id)
        assert done.text.endswith("yes in attempt 1")
        assert desk.stepped == ["a"]
        await checked(client, task.id)


async def test_an_answer_on_its_way_when_the_run_is_dropped_is_not_lost(
    memory: EngineHarness,
) -> None:
    desk = Desk()
    store = Slow(memory.store())
    async with Client(desk.agent, store=store) as client:
        task = await client.send("a")
        run = client.engine.runner.runs[task.id]
        store.hold("inputs")
        async with background(client.send("yes", task=task, wait=False)):
            await until(lambda: store.waiting)
            await client.engine.runner.give_back(run)
            store.let_go()
            done = await ended(client, task.id)
        assert done.text.endswith("yes in attempt 1")
        assert [m.text for m in done.history].count("yes") == 1
        await checked(client, task.id)


async def test_answers_and_drops_in_any_order(harness: EngineHarness) -> None:
    desk = Desk()
    async with harness.client(desk.agent, max_parked=3) as client:
        tasks = await asyncio.gather(*(client.send(str(n)) for n in range(12)))
        done = await asyncio.gather(*(client.send("yes", task=task) for task in tasks))
        assert {task.state for task in done} == {State.COMPLETED}
        for task in done:
            log = story(await checked(client, task.id))
            assert len(log) == len(set(log))
        assert sorted(desk.stepped) == sorted(str(n) for n in range(12))
        assert not client.engine.runner.parked


async def test_a_reader_stays_with_a_dropped_task(harness: EngineHarness) -> None:
    desk = Desk()
    async with harness.client(desk.agent, max_parked=0) as client:
        task = await client.send("a")
        await until(lambda: _holder_is(client, task.id, ""))
        async with background(gathered(client.watch(task.id))) as watching:
            await until(client.engine.runner.bell.listening)
            await client.send("yes", task=task)
            assert story(await watching) == [
                "snapshot input-required",
                "working heard:yes",
                "=result:yes in attempt 1!",
                "completed",
            ]


async def test_plain_functions_that_wait_do_not_use_up_the_threads(memory: EngineHarness) -> None:
    """Each holds a thread while it waits; so they are dropped before the threads run out."""
    agent = Agent("Asker")

    @agent.skill("ask")
    def ask(turn: SyncTurn) -> str:
        return str(turn.ask("Well?")) if turn.text == "ask" else str(turn.text)

    async with memory.client(agent) as client:
        tasks = [await client.send("ask") for _ in range(70)]
        async with asyncio.timeout(60):
            assert (await client.send("hi")).text == "hi"
            for task in tasks:
                assert (await client.send("yes", task=task)).text == "yes"
    await until(lambda: _skill_threads() == 0)


def _skill_threads() -> int:
    return sum(thread.name.startswith("dragoman-skill") for thread in threading.enumerate())


async def test_live_tasks_are_counted_across_a_restart(durable: EngineHarness) -> None:
    agent = Agent("Asker")

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        return await turn.ask("Well?")

    client = durable.client(agent, context=ANN, max_parked=1)
    await client.engine.start()
    tasks = [await client.send("go") for _ in range(3)]
    assert await client.engine.count_unfinished(ANN) == 3
    assert await client.engine.count_unfinished(BOB) == 0
    client = await durable.restart(client)
    assert await client.engine.count_unfinished(ANN) == 3
    await client.send("yes", task=tasks[0])
    assert await client.engine.count_unfinished(ANN) == 2
    await client.engine.stop(0)
