"""Cancel reaches the code, is enforced after a grace, and happens once (DESIGN §5.6)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress

import pytest

from dragoman import Agent, State, SyncTurn, Turn
from dragoman.agent.run_api import RunApi
from dragoman.core.errors import NotCancelable, TaskFinished, TaskNotFound
from dragoman.engine.runs.run import Run
from dragoman.server.remote_agents import RemoteAgents
from dragoman.testing import Client
from engine.harness import (
    EngineHarness,
    Slow,
    background,
    checked,
    gathered,
    in_state,
    row_of,
    story,
    terminals,
    until,
)
from waiting import forever, stays, turns


async def test_cancel_reaches_the_coroutine(harness: EngineHarness) -> None:
    agent = Agent("Sleeper")
    seen: list[str] = []

    @agent.skill("sleep")
    async def sleep(turn: Turn) -> None:
        seen.append("begun")
        try:
            await forever()
        finally:
            seen.append(f"stopped, cancelled={turn.cancelled}")

    async with harness.client(agent) as client:
        task = await client.send("go", wait=False)
        await until(lambda: seen)
        done = await client.cancel(task.id)
        assert done.state is State.CANCELED
        assert seen == ["begun", "stopped, cancelled=True"]
        assert story(await checked(client, task.id)) == ["opened", "working", "canceled"]


async def test_cancel_reaches_a_generator() -> None:
    agent = Agent("Writer")
    seen: list[str] = []

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        try:
            yield "a"
            seen.append("begun")
            await forever()
        finally:
            seen.append("closed")

    async with Client(agent) as client:
        task = await client.send("go", wait=False)
        await until(lambda: seen)
        done = await client.cancel(task.id)
        assert done.text == "a"
        assert seen == ["begun", "closed"]
        assert story(await checked(client, task.id))[2:] == ["=result:a", "canceled"]


async def test_last_words_are_kept(harness: EngineHarness) -> None:
    agent, begun = Agent("Sleeper"), asyncio.Event()

    @agent.skill("sleep")
    async def sleep(turn: Turn) -> str:
        begun.set()
        try:
            await forever()
        except asyncio.CancelledError:
            await turn.say("cleaning up")
            await turns(20)  # and takes its time
        return "half a result"

    async with harness.client(agent) as client:
        task = await client.send("go", wait=False)
        await begun.wait()
        done = await client.cancel(task.id)
        assert done.state is State.CANCELED
        assert story(await checked(client, task.id))[2:] == [
            "working say:cleaning up",
            "=result:half a result!",
            "canceled",
        ]


@pytest.mark.parametrize("how", ["raise", "fail", "reject", "reply"])
async def test_whatever_the_code_says_after_a_cancel_it_is_canceled(how: str) -> None:
    agent, begun = Agent("Stubborn"), asyncio.Event()

    @agent.skill("be", may_reply=True)
    async def be(turn: Turn) -> None:
        await turn.say("on")
        begun.set()
        try:
            await forever()
        except asyncio.CancelledError:
            match how:
                case "raise":
                    raise ValueError("Not me") from None
                case "fail":
                    raise turn.fail("No") from None
                case "reject":
                    raise turn.reject("No") from None
            await turn.reply("I did it after all")

    async with Client(agent) as client:
        task = await client.send("go", wait=False)
        await begun.wait()
        assert (await client.cancel(task.id)).state is State.CANCELED
        assert terminals(await checked(client, task.id)) == [State.CANCELED]


async def test_cancel_is_enforced_after_the_grace(harness: EngineHarness) -> None:
    agent = Agent("Deaf")
    begun, free, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    ran_on: list[bool] = []

    @agent.skill("be", cancel_grace=0.1)
    async def be(turn: Turn) -> str:
        begun.set()
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                await turn.say("la la la")
        ran_on.append(turn.cancelled)
        await turn.say("after the end")
        await turn.artifact("too late")
        ended.set()
        return "done"

    async with harness.client(agent) as client:
        task = await client.send("go", wait=False)
        await begun.wait()
        done = await client.cancel(task.id)
        assert done.state is State.CANCELED
        free.set()
        await ended.wait()
        assert ran_on == [True]
        await client.send("go", wait=False)  # a later write: what was to be kept is kept by then
        assert await client.get(task.id) == done
        assert story(await checked(client, task.id)) == [
            "opened",
            "working",
            "working say:la la la",
            "canceled",
        ]


async def test_what_a_left_behind_run_does_changes_nothing(memory: EngineHarness) -> None:
    """Steps, questions and replies after the end: none of them hangs or reaches the log."""
    agent = Agent("Deaf")
    begun, free = asyncio.Event(), asyncio.Event()
    did: list[str] = []

    @agent.skill("be", cancel_grace=0, may_reply=True)
    async def be(turn: Turn) -> None:
        begun.set()
        while not free.is_set():
            with suppress(asyncio.CancelledError):
                await free.wait()
        did.append(await turn.step("after", lambda: "stepped"))
        await turn.reply("hello?")
        did.append("replied")
        await turn.ask("Anyone?")
        did.append("answered")

    async with memory.client(agent) as client:
        task = await client.send("go", wait=False)
        await begun.wait()
        runs = client.engine.runner.runs
        code = runs[task.id].task
        assert code is not None
        done = await client.cancel(task.id)
        free.set()
        async with asyncio.timeout(60):
            await asyncio.wait([code])
        assert did == ["stepped", "replied"]
        assert not runs
        assert not client.engine.runner.parked
        assert await client.get(task.id) == done


async def test_a_waiting_task_is_canceled(harness: EngineHarness) -> None:
    agent = Agent("Asker")

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        return await turn.ask("Well?") + await turn.ask("And?")

    async with harness.client(agent) as client:
        task = await client.send("go")
        task = await client.send("one", task=task)
        done = await client.cancel(task.id)
        assert done.state is State.CANCELED
        assert [m.text for m in done.history] == ["go", "Well?", "one", "And?"]
        with pytest.raises(TaskFinished):
            await client.send("two", task=task)
        await checked(client, task.id)


async def test_a_waiting_task_nobody_holds_is_canceled(harness: EngineHarness) -> None:
    agent = Agent("Asker")

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        return await turn.ask("Well?") + await turn.ask("And?")

    client = harness.client(agent)
    await client.engine.start()
    task = await client.send("go")
    task = await client.send("one", task=task)
    client = await harness.restart(client)
    done = await client.cancel(task.id)
    assert done.state is State.CANCELED
    assert [m.text for m in done.history] == ["go", "Well?", "one", "And?"]
    await checked(client, task.id)
    await client.engine.stop(0)


async def test_what_is_over_or_not_there_cannot_be_canceled(harness: EngineHarness) -> None:
    agent = Agent("Echo")

    @agent.skill("echo")
    async def echo(turn: Turn) -> str:
        return turn.text

    async with harness.client(agent) as client:
        task = await client.send("hi")
        with pytest.raises(NotCancelable):
            await client.cancel(task.id)
        assert await client.get(task.id) == task
        with pytest.raises(TaskNotFound):
            await client.cancel("no-such-task")


async def test_canceling_twice_cancels_once(harness: EngineHarness) -> None:
    agent, begun = Agent("Sleeper"), asyncio.Event()

    @agent.skill("sleep")
    async def sleep(turn: Turn) -> None:
        begun.set()
        await forever()

    async with harness.client(agent) as client:
        task = await client.send("go", wait=False)
        await begun.wait()
        answers = await asyncio.gather(
            *(client.cancel(task.id) for _ in range(5)), return_exceptions=True
        )
        for answer in answers:
            assert isinstance(answer, NotCancelable) or answer.state is State.CANCELED
        assert any(not isinstance(answer, Exception) for answer in answers)
        with pytest.raises(NotCancelable):
            await client.cancel(task.id)
        assert terminals(await checked(client, task.id)) == [State.CANCELED]


async def test_a_task_that_ends_first_wins(memory: EngineHarness) -> None:
    """The end is said but not committed when the cancel comes."""
    agent = Agent("Worker")
    go = asyncio.Event()

    @agent.skill("work")
    async def work(turn: Turn) -> str:
        await go.wait()
        return "done"

    store = Slow(memory.store())
    async with Client(agent, store=store) as client:
        task = await client.send("go", wait=False)
        store.hold("append")
        go.set()
        await until(lambda: store.waiting)
        async with background(client.cancel(task.id)) as canceling:
            await stays(lambda: not canceling.done())
            store.let_go()
            with pytest.raises(NotCancelable):
                await canceling
        assert terminals(await checked(client, task.id)) == [State.COMPLETED]


async def test_cancel_racing_completion_ends_once(harness: EngineHarness) -> None:
    agent = Agent("Worker")

    @agent.skill("work")
    async def work(turn: Turn) -> str:
        await turns(int(turn.text))
        return "done"

    async with harness.client(agent) as client:
        for steps in range(0, 24, 2):
            task = await client.send(str(steps), wait=False)
            try:
                done = await client.cancel(task.id)
                assert done.state is State.CANCELED
            except NotCancelable:
                done = await client.get(task.id)
                assert done.state is State.COMPLETED
            assert terminals(await checked(client, task.id)) == [done.state]


async def test_a_cancel_while_a_task_is_taken_up_stops_it(memory: EngineHarness) -> None:
    """Between the claim and the first step of the code."""
    agent = Agent("Asker")
    started: list[int] = []

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        started.append(turn.attempt)
        return await turn.ask("Well?")

    store = Slow(memory.store())
    client = Client(agent, store=store)
    await client.engine.start()
    task = await client.send("go")
    await memory.crash(client)
    memory.clock.skip(60)
    async with Client(agent, store=store) as client:
        store.hold("records")
        async with background(client.send("yes", task=task)) as sending:
            await until(lambda: store.waiting)
            async with background(client.cancel(task.id)) as canceling:
                await until(lambda: store.waiting >= 2)
                store.let_go()
                done = await canceling
            assert (await sending) == done
        assert done.state is State.CANCELED
        assert started == [1]
        assert not client.engine.runner.runs
        assert [m.text for m in done.history] == ["go", "Well?", "yes"]
        await checked(client, task.id)


@pytest.mark.parametrize("where", ["before its past is known", "after its words are read"])
async def test_an_answer_while_a_task_is_taken_up_is_heard(
    memory: EngineHarness, where: str
) -> None:
    agent = Agent("Asker")

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        return await turn.ask("One?") + await turn.ask("Two?")

    store = Slow(memory.store())
    client = Client(agent, store=store)
    await client.engine.start()
    task = await client.send("go")
    await memory.crash(client)
    memory.clock.skip(60)
    async with Client(agent, store=store) as client:
        await turns(50)  # its maintenance has looked for work, and looks again in a second
        early = where.startswith("before")
        if early:
            store.hold("seize")
        else:
            store.hold_back("inputs")
        async with background(client.send("1", task=task)) as sending:
            await until(lambda: store.waiting)
            if early:  # its run is made and known, and is about to read the log
                for call, before in (("load", "seize"), ("read", "load")):
                    store.hold(call)
                    store.let_go(before)
                    await until(lambda: store.waiting)
            async with background(client.send("2", task=task)) as other:
                await stays(lambda: not other.done())  # the question is answered already
                store.let_go()
                assert (await other).text == "12"
            done = await sending
        assert done.text == "12"
        assert [m.text for m in done.history].count("1") == 1
        assert [m.text for m in done.history].count("2") == 1
        await checked(client, task.id)


async def test_a_cancel_before_the_first_step_needs_no_grace(memory: EngineHarness) -> None:
    """Code that is taken up again and canceled in the same turn of the loop never begins."""
    agent, starts = Agent("Sleeper"), list[int]()

    @agent.skill("sleep", cancel_grace=60)
    async def sleep(turn: Turn) -> None:
        starts.append(1)
        await forever()

    async with memory.client(agent) as client:
        task = await client.send("go", wait=False)
        await until(lambda: starts)
        row = await row_of(client, task.id)
        await client.engine.runner.give_back(client.engine.runner.runs[task.id])
        client.engine.runner.place_free.clear()
        taken = await client.store.seize(client.engine.runner.worker, task.id, row.epoch)
        assert taken is not None
        await client.engine.runner.resume(taken)
        async with asyncio.timeout(60):
            assert (await client.cancel(task.id)).state is State.CANCELED
        assert starts == [1]
        await checked(client, task.id)


async def test_a_stream_ends_with_the_cancel(harness: EngineHarness) -> None:
    agent = Agent("Sleeper")

    @agent.skill("sleep")
    async def sleep(turn: Turn) -> None:
        await forever()

    async with harness.client(agent) as client:
        task = await client.send("go", wait=False)
        async with (
            background(gathered(client.watch(task.id))) as watching,
            background(client.send("more", task=task)) as sending,
        ):
            await until(lambda: client.engine.runner.idle)
            await client.cancel(task.id)
            assert story(await watching)[-1] == "canceled"
            assert (await sending).state is State.CANCELED


async def test_a_plain_function_sees_that_it_is_canceled() -> None:
    agent = Agent("Sleeper")
    begun, seen = threading.Event(), threading.Event()

    @agent.skill("sleep")
    def sleep(turn: SyncTurn) -> None:
        begun.set()
        while not turn.cancelled:
            threading.Event().wait(0.005)
        seen.set()

    async with Client(agent) as client:
        task = await client.send("go", wait=False)
        await until(begun.is_set)
        assert (await client.cancel(task.id)).state is State.CANCELED
        await until(seen.is_set)


async def test_a_plain_function_that_waits_for_an_answer_is_let_go() -> None:
    agent = Agent("Asker")
    out = threading.Event()

    @agent.skill("ask")
    def ask(turn: SyncTurn) -> str:
        try:
            return str(turn.ask("Well?"))
        finally:
            out.set()

    async with Client(agent) as client:
        task = await client.send("go")
        assert (await client.cancel(task.id)).state is State.CANCELED
        assert await asyncio.to_thread(out.wait, 2)
        other = await client.send("go")
        assert other.state is State.INPUT_REQUIRED
    assert await asyncio.to_thread(out.wait, 2)


@pytest.mark.slow  # takes two seconds
async def test_a_cancel_at_a_process_that_lost_the_task_is_true(shared: EngineHarness) -> None:
    """It does not know yet that another process runs the task."""
    agent, going = Agent("Sleeper"), asyncio.Event()

    @agent.skill("sleep", cancel_grace=0.2)
    async def sleep(turn: Turn) -> None:
        await going.wait()

    async with shared.client(agent) as one, shared.client(agent) as two:
        task = await one.send("go", wait=False)
        await one.engine._maintenance.stop()
        row = await row_of(two, task.id)
        taken = await two.store.seize(two.engine.runner.worker, task.id, row.epoch)
        assert taken is not None
        await two.engine.runner.resume(taken)
        assert (await one.cancel(task.id)).state is State.CANCELED
        assert (await two.get(task.id)).state is State.CANCELED


async def test_a_worker_nobody_knows_cannot_cancel_but_does_not_hang(memory: EngineHarness) -> None:
    """It counts as dead until its next beat; a cancel waits for that without blocking the loop."""
    agent = Agent("Asker")

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        return await turn.ask("Well?")

    client = memory.client(agent)
    await client.engine.start()
    task = await client.send("go")
    client = await memory.restart(client, lease=0.6)
    await client.store.retire(client.engine.runner.worker)
    async with asyncio.timeout(60):
        done = await client.cancel(task.id)
    assert done.state is State.CANCELED
    await client.engine.stop(0)


async def test_canceled_by_the_time_it_is_known(harness: EngineHarness) -> None:
    """What `get` and `list` say after the answer is what the answer said."""
    agent = Agent("Sleeper")

    @agent.skill("sleep")
    async def sleep(turn: Turn) -> None:
        await forever()

    async with harness.client(agent) as client:
        task = await client.send("go", wait=False)
        done = await client.cancel(task.id)
        assert await client.get(task.id) == done
        assert (await client.list(state=State.CANCELED)).total == 1
        assert (await in_state(client, task.id, State.CANCELED)) == done


class Relayed(Agent):
    """An agent whose tasks follow tasks elsewhere, and for which of ours one was looked for."""

    def __init__(self) -> None:
        super().__init__("Relayed")
        self.looked_for: list[str] = []

    async def stop_unrecorded(self, run: RunApi) -> None:
        self.looked_for.append(run.task_id)


async def test_a_cancel_before_the_first_step_of_a_resumed_run_looks_for_its_remote_task(
    memory: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code is canceled without running any of itself, so it cannot look."""
    agent, attempts = Relayed(), list[int]()

    @agent.skill("hang")
    async def hang(turn: Turn) -> None:
        attempts.append(turn.attempt)
        await asyncio.Event().wait()

    first = memory.client(agent)
    await first.engine.start()
    task = await first.send("go", wait=False)
    await until(lambda: attempts)
    await memory.crash(first)
    memory.clock.skip(60)
    client = memory.client(agent)
    runner = client.engine.runner
    runner.outside = RemoteAgents(agent)
    start = runner.start

    def start_and_cancel(run: Run) -> None:
        start(run)
        runner.cancel(run)

    monkeypatch.setattr(runner, "start", start_and_cancel)
    async with client:
        await memory.later(client, 31)
        await in_state(client, task.id, State.CANCELED)
    assert agent.looked_for == [task.id]
    assert len(attempts) == 1
