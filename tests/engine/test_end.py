"""How tasks end: as they should, by refusal, by failure, by accident, by time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import pytest

from dragoman import Agent, State, SyncTurn, Task, Turn
from dragoman.core.errors import NotCancelable, StoreUnavailable, TaskFinished, TooMany
from dragoman.core.events import Snapshot, Stamped, StateChanged
from dragoman.engine import EngineSettings
from dragoman.settings import Retention
from dragoman.testing import Client
from engine.harness import (
    EngineHarness,
    Slow,
    background,
    checked,
    log_of,
    story,
    terminals,
    until,
    written,
)
from waiting import forever, stays, turns


async def end_of(agent: Agent, *what: object, **about: Any) -> tuple[Task, dict[str, Any]]:
    """How a task ends, and what its last event says about it; the next task must work."""
    async with Client(agent) as client:
        task = await client.send(*what, **about)
        last = (await checked(client, task.id))[-1].event
        assert isinstance(last, StateChanged)
        assert last.state is task.state
        assert (await client.send("hello", skill="fine")).text == "fine"
        return task, last.metadata or {}


def agent_with_a_fine_skill() -> Agent:
    agent = Agent("Ends")

    @agent.skill("fine")
    async def fine(turn: Turn) -> str:
        return "fine"

    return agent


def said(task: Task) -> str:
    assert task.status.message is not None
    return task.status.message.text


async def test_reject_says_no() -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> None:
        raise turn.reject("Not my trade")

    task, about = await end_of(agent, "go")
    assert (task.state, said(task), about) == (State.REJECTED, "Not my trade", {})


async def test_fail_says_why() -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> None:
        raise turn.fail("The printer is out of paper", reason="no_paper")

    task, about = await end_of(agent, "go")
    assert (task.state, said(task)) == (State.FAILED, "The printer is out of paper")
    assert about == {"reason": "no_paper"}


async def test_an_exception_reaches_the_log_and_only_its_id_the_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> None:
        raise ZeroDivisionError("secret detail")

    task, about = await end_of(agent, "go")
    assert task.state is State.FAILED
    assert about["reason"] == "agent_crashed"
    assert about["error"] in said(task)
    assert "secret detail" not in repr(task)
    assert about["error"] in caplog.text
    assert "secret detail" in caplog.text


async def test_an_exception_in_a_generator_ends_the_task() -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> AsyncGenerator[str, None]:
        yield "a"
        await turns()
        raise ZeroDivisionError

    task, about = await end_of(agent, "go")
    assert (task.state, task.text) == (State.FAILED, "a")
    assert about["reason"] == "agent_crashed"


async def test_a_skill_that_exits_ends_its_task_not_the_server() -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> None:
        raise SystemExit(3)

    @agent.skill("plain")
    def plain(turn: SyncTurn) -> None:
        raise SystemExit(3)

    task, about = await end_of(agent, "go")
    assert task.state is State.FAILED
    assert about["reason"] == "agent_crashed"
    task, about = await end_of(agent, "go", skill="plain")
    assert task.state is State.FAILED


@pytest.mark.parametrize("value", [object(), {1, 2}, lambda: 1], ids=["object", "set", "function"])
async def test_a_value_that_is_none_of_ours_is_explained(value: object) -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> object:
        return value

    task, about = await end_of(agent, "go")
    assert task.state is State.FAILED
    assert about["reason"] == "agent_misbehaved"
    assert type(value).__name__ in said(task)
    assert "Struct" in said(task)


async def test_data_that_is_no_json_is_explained() -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> dict[str, object]:
        return {"when": object()}

    task, about = await end_of(agent, "go")
    assert about["reason"] == "agent_misbehaved"
    assert "JSON" in said(task)


async def test_what_the_store_cannot_keep_ends_the_task(harness: EngineHarness) -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> AsyncGenerator[str, None]:
        yield "a"
        await turn.step("on the disk", lambda: None)
        yield "\ud800"
        await forever()

    async with harness.client(agent) as client:
        task = await client.send("go")
        assert task.state is State.FAILED
        assert task.text == "a"
        assert task.status.message is not None
        assert task.status.message.metadata == {"reason": "store_error"}
        said = "failed say:The output of the agent cannot be stored"
        assert story(await checked(client, task.id)) == ["opened", "working", "=result:a", said]
        assert (await client.send("go", skill="fine")).text == "fine"
        assert not client.engine.runner.runs


async def test_what_cannot_be_kept_of_a_quick_task_is_no_completed_task(
    memory: EngineHarness,
) -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> str:
        await turn.step("on the disk", lambda: None)
        return "\ud800"

    async with memory.client(agent) as client:
        task = await client.send("go")
        assert task.state is State.FAILED
        await checked(client, task.id)


async def test_who_asks_while_the_store_refuses_is_told_the_truth(memory: EngineHarness) -> None:
    """The agent says it is done, but that cannot be stored: nobody may see `completed`."""
    agent, go = agent_with_a_fine_skill(), asyncio.Event()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> str:
        await go.wait()
        return "\ud800"

    store = Slow(memory.store())
    async with Client(agent, store=store) as client:
        task = await client.send("go", wait=False)
        store.hold("append")
        go.set()
        await until(lambda: store.waiting)
        async with background(client.get(task.id)) as getting:
            await stays(lambda: not getting.done())
            store.let_go()
            assert (await getting).state is State.FAILED
        await checked(client, task.id)


async def test_a_store_that_is_away_for_a_moment_costs_nothing(memory: EngineHarness) -> None:
    agent = agent_with_a_fine_skill()
    store = memory.store()
    away = [2]
    append = store.append

    def sometimes(write: Any, done: Any) -> None:
        if away[0]:
            away[0] -= 1
            done(StoreUnavailable())
        else:
            append(write, done)

    store.append = sometimes  # type: ignore[method-assign]

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> str:
        await turns()
        await turn.say("one")
        await turns(20)
        return "two"

    async with Client(agent, store=store) as client:
        task = await client.send("go")
        assert task.text == "two"
        assert away == [0]
        await checked(client, task.id)


async def test_a_run_that_never_ends_is_ended() -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True, timeout=0.1)
    async def x(turn: Turn) -> None:
        await forever()

    task, about = await end_of(agent, "go")
    assert task.state is State.FAILED
    assert about == {"reason": "agent_timed_out"}
    assert "too long" in said(task)


async def test_a_run_that_ignores_its_timeout_is_left_behind() -> None:
    agent = agent_with_a_fine_skill()
    free, returned = asyncio.Event(), asyncio.Event()

    @agent.skill("x", default=True, timeout=0.1, cancel_grace=0.1)
    async def x(turn: Turn) -> str:
        while not free.is_set():
            with suppress(asyncio.CancelledError):
                await free.wait()
        returned.set()
        return "done"

    async with Client(agent) as client:
        task = await client.send("go")
        assert task.state is State.FAILED
        free.set()
        await returned.wait()
        await client.send("go", skill="fine")  # a later write
        assert await client.get(task.id) == task
        assert not client.engine.runner.runs


async def test_a_generator_that_never_yields_is_ended() -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True, timeout=0.1)
    async def x(turn: Turn) -> AsyncGenerator[str, None]:
        await forever()
        yield "never"

    task, about = await end_of(agent, "go")
    assert about == {"reason": "agent_timed_out"}
    assert task.artifacts == ()


async def test_a_generator_that_never_stops_lets_others_work() -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> AsyncGenerator[str, None]:
        while True:
            yield "x"

    async with Client(agent) as client:
        task = await client.send("go", wait=False)
        async with asyncio.timeout(60):
            assert (await client.send("go", skill="fine")).text == "fine"
            assert (await client.cancel(task.id)).state is State.CANCELED


async def test_a_task_has_a_size(harness: EngineHarness) -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> AsyncGenerator[str, None]:
        while True:
            yield "x" * 1000

    async with harness.client(agent, max_task_size=20_000) as client:
        task = await client.send("go")
        assert task.state is State.FAILED
        last = (await checked(client, task.id))[-1].event
        assert isinstance(last, StateChanged)
        assert last.metadata == {"reason": "too_large"}
        assert len(task.text) <= 22_000
        assert (await client.send("go", skill="fine")).text == "fine"


@pytest.mark.parametrize("way", ["said", "data", "heard"])
async def test_whatever_a_task_holds_counts(harness: EngineHarness, way: str) -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> AsyncGenerator[dict[str, str], None]:
        while True:
            if way == "said":
                await turn.say("x" * 1000)
            elif way == "data":
                yield {"x": "x" * 1000}
            else:
                await turn.ask("More?")

    async with harness.client(agent, max_task_size=20_000) as client:
        task = await client.send("go")
        while task.state is State.INPUT_REQUIRED:
            task = await client.send("x" * 1000, task=task)
        assert task.state is State.FAILED
        last = (await checked(client, task.id))[-1].event
        assert isinstance(last, StateChanged)
        assert last.metadata == {"reason": "too_large"}
        assert (await client.send("go", skill="fine")).text == "fine"


async def test_a_size_outlives_a_worker(harness: EngineHarness) -> None:
    agent = Agent("size", description="", version="1")

    @agent.skill("x")
    async def x(turn: Turn) -> str:
        await turn.artifact("x" * 15_000)
        await turn.ask("More?")
        await turn.artifact("x" * 15_000, id="more")
        return "never"

    async with harness.client(agent, max_task_size=20_000) as client:
        task = await client.send("go")
        run = client.engine.runner.runs[task.id]
        await client.engine.runner.give_back(run)
        task = await client.send("yes", task=task)
        assert task.state is State.FAILED


async def test_code_that_blocks_the_loop_ends_too() -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> str:
        time.sleep(0.3)  # noqa: ASYNC251  # the mistake this test is about
        return "blocked"

    async with Client(agent, settings=EngineSettings(lease=0.15)) as client:
        task = await client.send("go")
        assert task.text == "blocked"
        assert (await client.send("go", skill="fine")).text == "fine"
        await checked(client, task.id)


async def test_what_comes_after_the_end_is_dropped(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agent_with_a_fine_skill()
    on = asyncio.Event()

    @agent.skill("x", default=True, may_reply=True)
    async def x(turn: Turn) -> AsyncGenerator[str, None]:
        yield "a"
        await turn.say("one")
        await turn.reply("that is all")
        await turn.say("two")
        await turn.artifact("c", name="c")
        await turn.think("d")
        on.set()
        while True:
            yield "e"

    async with harness.client(agent) as client:
        task = await client.send("go")
        assert task.state is State.COMPLETED
        assert said(task) == "that is all"
        async with asyncio.timeout(60):
            await on.wait()
        await client.send("go", skill="fine")  # a later write
        assert await client.get(task.id) == task
        assert task.text == "a"
        assert terminals(await checked(client, task.id)) == [State.COMPLETED]
        assert "after the end" in caplog.text
        assert not client.engine.runner.runs


async def test_a_question_after_the_end_is_a_mistake_and_hangs_nothing(
    memory: EngineHarness,
) -> None:
    agent = agent_with_a_fine_skill()
    caught: list[str] = []

    @agent.skill("x", default=True, may_reply=True)
    async def x(turn: Turn) -> None:
        await turn.say("on")
        await turn.reply("done")
        try:
            await turn.ask("Anyone?")
        except Exception as exc:
            caught.append(str(exc))

    async with memory.client(agent) as client:
        task = await client.send("go")
        await until(lambda: caught)
        assert "over" in caught[0]
        assert (await client.get(task.id)).state is State.COMPLETED
        assert not client.engine.runner.parked


async def test_what_is_over_never_changes(harness: EngineHarness) -> None:
    agent = agent_with_a_fine_skill()
    async with harness.client(agent) as client:
        task = await client.send("go")
        log = await log_of(client, task.id)
        with pytest.raises(TaskFinished):
            await client.send("more", task=task)
        with pytest.raises(TaskFinished):
            await client.resolve(task.id, "input:x", 1)
        with pytest.raises(NotCancelable):
            await client.cancel(task.id)
        assert await client.get(task.id) == task
        assert await log_of(client, task.id) == log


async def test_a_canceled_error_of_the_authors_own_is_a_crash() -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> None:
        raise asyncio.CancelledError

    task, about = await end_of(agent, "go")
    assert task.state is State.FAILED
    assert about["reason"] == "agent_crashed"


async def test_an_error_of_ours_fails_the_task_with_its_reason() -> None:
    agent = agent_with_a_fine_skill()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> None:
        raise TooMany("The other agent is busy")

    task, about = await end_of(agent, "go")
    assert about == {"reason": "too_many"}
    assert said(task) == "The other agent is busy"


# Retention.


async def test_old_tasks_lose_their_log_and_then_go(harness: EngineHarness) -> None:
    agent = agent_with_a_fine_skill()
    async with harness.client(agent, keep_events=100, keep_tasks=1000) as client:
        task = await client.send("go")
        story = await log_of(client, task.id)
        harness.clock.skip(101)
        await client.engine._maintenance._sweep()
        assert await log_of(client, task.id) == []
        assert await client.get(task.id) == task
        (told,) = [event async for event in client.watch(task.id, cursor=1)]
        assert isinstance(told, Stamped)
        assert told.event == Snapshot(task=task)
        assert told.seq == story[-1].seq
        assert [event async for event in client.watch(task.id, cursor=told.seq)] == []
        harness.clock.skip(900)
        await client.engine._maintenance._sweep()
        assert (await client.list()).total == 0


@pytest.mark.parametrize("way", ["keep_tasks", "retention"])
async def test_what_is_to_go_soon_goes_soon(harness: EngineHarness, way: str) -> None:
    """By itself, and not at the next full hour."""
    client = harness.client(
        agent_with_a_fine_skill(), **({way: 0.5} if way == "keep_tasks" else {})
    )
    if way == "retention":
        client.engine._maintenance.sooner = (Retention(keep_tasks=0.5),)
    async with client:
        assert client.engine._maintenance._sweep_pause() == 1.0
        await client.send("go")
        harness.clock.skip(1)

        async def gone() -> bool:
            return (await client.list()).total == 0

        await until(gone, 60)


@pytest.mark.parametrize(
    ("keep", "pause"),
    [
        ({}, 3600.0),
        ({"keep_tasks": 86_400.0}, 3600.0),
        ({"keep_tasks": 600.0}, 150.0),
        ({"keep_events": 60.0}, 15.0),
        ({"keep_tasks": 0.1}, 1.0),
    ],
)
async def test_how_often_old_tasks_are_looked_for(
    memory: EngineHarness, keep: dict[str, float], pause: float
) -> None:
    async with memory.client(agent_with_a_fine_skill(), **keep) as client:
        assert client.engine._maintenance._sweep_pause() == pause


async def test_a_clock_set_forward_drops_nothing_for_an_hour(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    async with harness.client(agent_with_a_fine_skill()) as client:
        task = await client.send("go")
        harness.clock.set_forward(60 * 86_400)
        keeper = client.engine._maintenance
        await keeper._sweep()
        assert "The clock was set forward" in caplog.text
        assert await client.get(task.id) == task
        harness.clock.skip(1800)
        await keeper._sweep()
        assert await client.get(task.id) == task
        # By then it is meant.
        harness.clock.skip(1800)
        await keeper._sweep()
        assert (await client.list()).total == 0


async def test_waiting_tasks_are_not_swept(harness: EngineHarness) -> None:
    agent = Agent("Asker")

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        return await turn.ask("Well?")

    async with harness.client(agent, keep_events=1, keep_tasks=1, waiting=10_000) as client:
        task = await client.send("go")
        harness.clock.skip(1000)
        await client.engine._maintenance._sweep()
        assert (await client.send("yes", task=task)).text == "yes"


# Stopping.


async def test_a_stop_lets_quick_runs_finish(durable: EngineHarness) -> None:
    agent = Agent("Worker")

    @agent.skill("work")
    async def work(turn: Turn) -> str:
        await asyncio.sleep(0.1)  # the quick work
        return "done"

    client = durable.client(agent)
    await client.engine.start()
    task = await client.send("go", wait=False)
    await client.engine.stop(grace=2)
    async with durable.client(agent) as client:
        assert (await client.get(task.id)).text == "done"


async def test_a_stop_ends_streams_and_waits(harness: EngineHarness) -> None:
    """Nobody who waits is left hanging when an engine stops."""
    agent = Agent("Sleeper")

    @agent.skill("sleep")
    async def sleep(turn: Turn) -> None:
        await turn.say("on")
        await forever()

    client = harness.client(agent)
    await client.engine.start()
    sending = asyncio.ensure_future(client.send("go"))
    await until(lambda: client.engine.runner.runs)
    await written(client)
    async with asyncio.timeout(60):
        await client.engine.stop(0)
        task = await sending
    assert task.state is State.WORKING


async def test_a_held_store_holds_up_a_stop_but_loses_nothing(memory: EngineHarness) -> None:
    agent = agent_with_a_fine_skill()
    go = asyncio.Event()

    @agent.skill("x", default=True)
    async def x(turn: Turn) -> None:
        await go.wait()
        await turn.say("on")
        await forever()

    store = Slow(memory.store())
    client = Client(agent, store=store)
    await client.engine.start()
    task = await client.send("go", wait=False)
    store.hold("append")
    go.set()
    await until(lambda: store.waiting)
    stopping = asyncio.ensure_future(client.engine.stop(0))
    await stays(lambda: not stopping.done())
    store.let_go()
    await stopping
    assert story(await log_of(client, task.id))[2:] == ["working say:on"]
    async with Client(agent, store=store) as client:
        await until(lambda: _attempts(client, task.id, 2))
        await client.cancel(task.id)
        await checked(client, task.id)


async def _attempts(client: Client, task_id: str, count: int) -> bool:
    log = await log_of(client, task_id)
    return sum(line == "working" for line in story(log)) == count
