"""Running again after a crash: nothing is said or done twice (DESIGN §4.1, §5.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from dragoman import Agent, State, Turn
from dragoman.core.events import StateChanged
from dragoman.testing import Client
from engine.harness import (
    EngineHarness,
    Slow,
    checked,
    ended,
    gathered,
    in_state,
    log_of,
    row_of,
    story,
    terminals,
    until,
    written,
)
from waiting import forever


class Bumpy:
    """A way with stops: the code goes through, or waits at one of them for the crash to come."""

    def __init__(self) -> None:
        self.stop_at = ""
        self.reached: list[str] = []

    async def stop(self, name: str) -> None:
        self.reached.append(name)
        if name == self.stop_at:
            await forever()

    async def crashed_at(
        self, harness: EngineHarness, client: Client, name: str, **settings: object
    ) -> Client:
        """Waits until the code stops there; then crashes, restarts, and lets the code go on."""
        await until(lambda: name in self.reached)
        await written(client)
        self.stop_at = ""
        self.reached.clear()
        return await harness.restart(client, **settings)


async def test_what_was_said_before_the_last_record_is_swallowed(harness: EngineHarness) -> None:
    agent, way, did = Agent("Worker"), Bumpy(), list[str]()

    @agent.skill("work")
    async def work(turn: Turn) -> str:
        await turn.say("one")
        await turn.think("hm")
        await turn.artifact("draft", name="draft")
        found = await turn.step("find", lambda: did.append("find") or ["x", "y"])
        await turn.say("two")
        await way.stop("here")
        await turn.say(f"three in attempt {turn.attempt}")
        return ",".join(found)

    way.stop_at = "here"
    client = harness.client(agent)
    await client.engine.start()
    task = await client.send("go", wait=False)
    client = await way.crashed_at(harness, client, "here")
    task = await ended(client, task.id)
    assert task.text == "draft\nx,y"
    assert did == ["find"]
    log = await checked(client, task.id)
    assert story(log) == [
        "opened",
        "working",
        "working say:one",
        "noted",
        "=draft:draft!",
        "working say:two",
        "working",
        "working say:three in attempt 2",
        "=result:x,y!",
        "completed",
    ]
    again = log[6].event
    assert isinstance(again, StateChanged)
    assert again.metadata == {"attempt": 2}
    await client.engine.stop(0)


async def test_an_artifact_that_grew_is_sent_anew(harness: EngineHarness) -> None:
    agent, way, did = Agent("Writer"), Bumpy(), list[str]()

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        yield "a"
        await turn.step("think", lambda: did.append("think"))
        yield "b"
        await way.stop("here")
        yield "c"

    way.stop_at = "here"
    client = harness.client(agent)
    await client.engine.start()
    task = await client.send("go", wait=False)
    client = await way.crashed_at(harness, client, "here")
    task = await ended(client, task.id)
    assert task.text == "abc"
    assert did == ["think"]
    assert story(await checked(client, task.id)) == [
        "opened",
        "working",
        "=result:a",
        "+result:b",
        "working",
        "=result:ab",
        "+result:c!",
        "completed",
    ]
    await client.engine.stop(0)


async def test_without_records_all_is_sent_anew_and_no_message_twice(
    harness: EngineHarness,
) -> None:
    agent, way = Agent("Writer"), Bumpy()

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        await turn.say("hello")
        yield "a"
        yield "b"
        await way.stop("here")
        yield "c"

    way.stop_at = "here"
    client = harness.client(agent)
    await client.engine.start()
    task = await client.send("go", wait=False)
    client = await way.crashed_at(harness, client, "here")
    await ended(client, task.id)
    assert story(await checked(client, task.id)) == [
        "opened",
        "working",
        "working say:hello",
        "=result:a",
        "+result:b",
        "working",
        "=result:a",
        "+result:b",
        "+result:c!",
        "completed",
    ]
    await client.engine.stop(0)


STOPS = ["start", "said", "piece", "stepped", "answered", "more", "second", "end"]


@pytest.mark.parametrize("stop", STOPS)
async def test_a_crash_between_any_two_steps_doubles_nothing(
    memory: EngineHarness, stop: str
) -> None:
    await crash_between(memory, [stop])


@pytest.mark.parametrize("stops", [["said", "stepped", "end"], ["piece", "piece", "more"]])
async def test_several_crashes_double_nothing(harness: EngineHarness, stops: list[str]) -> None:
    await crash_between(harness, stops)


async def crash_between(harness: EngineHarness, stops: list[str]) -> None:
    agent, way, did = Agent("Worker"), Bumpy(), list[str]()

    @agent.skill("work")
    async def work(turn: Turn) -> AsyncGenerator[str, None]:
        await way.stop("start")
        await turn.say("one")
        await way.stop("said")
        yield "a"
        await way.stop("piece")
        await turn.step("first", lambda: did.append("first"))
        await way.stop("stepped")
        answer = await turn.ask("Well?")
        await way.stop("answered")
        yield f"b{answer}"
        await turn.artifact("side", name="side")
        await way.stop("more")
        await turn.say("two")
        await turn.step("second", lambda: did.append("second"))
        await way.stop("second")
        yield "c"
        await turn.say("three")
        await way.stop("end")

    client = harness.client(agent)
    await client.engine.start()
    way.stop_at = stops[0]
    task = await client.send("go", wait=False)
    answered = False
    for number, stop in enumerate(stops):
        if not answered and STOPS.index(stop) > STOPS.index("stepped"):
            await in_state(client, task.id, State.INPUT_REQUIRED)
            await client.send("!", task=task, wait=False)
            answered = True
        await until(lambda stop=stop: stop in way.reached)
        await written(client)
        way.reached.clear()
        way.stop_at = stops[number + 1] if number + 1 < len(stops) else ""
        client = await harness.restart(client)
    if not answered:
        await in_state(client, task.id, State.INPUT_REQUIRED)
        await client.send("!", task=task, wait=False)
    task = await ended(client, task.id)
    assert task.state is State.COMPLETED
    assert {a.artifact_id: a.text for a in task.artifacts} == {"result": "ab!c", "side": "side"}
    assert did == ["first", "second"]
    assert [m.text for m in task.history] == ["go", "one", "Well?", "!", "two", "three"]
    assert task.status.message is None
    log = await checked(client, task.id)
    assert terminals(log) == [State.COMPLETED]
    await client.engine.stop(0)


async def test_attempts_are_bounded(harness: EngineHarness) -> None:
    agent, attempts = Agent("Crasher"), list[int]()

    @agent.skill("crash", max_attempts=3)
    async def crash(turn: Turn) -> None:
        attempts.append(turn.attempt)
        await forever()

    client = harness.client(agent)
    await client.engine.start()
    task = await client.send("go", wait=False)
    for number in range(1, 4):
        await until(lambda number=number: len(attempts) == number)
        client = await harness.restart(client)
    task = await ended(client, task.id)
    assert attempts == [1, 2, 3]
    assert task.state is State.FAILED
    log = await checked(client, task.id)
    last = log[-1].event
    assert isinstance(last, StateChanged)
    assert last.metadata == {"reason": "worker_lost"}
    assert terminals(log) == [State.FAILED]
    await client.engine.stop(0)


async def test_the_pause_before_an_attempt_grows(memory: EngineHarness) -> None:
    agent, attempts = Agent("Crasher"), list[int]()

    @agent.skill("crash")
    async def crash(turn: Turn) -> None:
        attempts.append(turn.attempt)
        await forever()

    client = memory.client(agent)
    await client.engine.start()
    task = await client.send("go", wait=False)
    pauses = []
    for number in range(1, 8):
        await until(lambda number=number: len(attempts) == number)
        await memory.crash(client)
        memory.clock.skip(60)
        now = memory.clock()
        await client.store.reap()
        pauses.append(round(((await row_of(client, task.id)).run_at - now) / 1000))
        memory.clock.skip(60)
        client = memory.client(agent)
        await client.engine.start()
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    await client.engine.stop(0)


async def test_on_crash_fail_means_one_start(harness: EngineHarness) -> None:
    agent, attempts = Agent("Once"), list[int]()

    @agent.skill("once", on_crash="fail")
    async def once(turn: Turn) -> None:
        attempts.append(turn.attempt)
        await forever()

    client = harness.client(agent)
    await client.engine.start()
    task = await client.send("go", wait=False)
    await until(lambda: attempts)
    client = await harness.restart(client)
    task = await ended(client, task.id)
    assert attempts == [1]
    last = (await checked(client, task.id))[-1].event
    assert isinstance(last, StateChanged)
    assert (last.state, last.metadata) == (State.FAILED, {"reason": "worker_lost"})
    await client.engine.stop(0)


async def test_an_answer_makes_the_attempts_count_anew(harness: EngineHarness) -> None:
    agent, way, attempts = Agent("Asker"), Bumpy(), list[int]()

    @agent.skill("ask", max_attempts=2)
    async def ask(turn: Turn) -> str:
        attempts.append(turn.attempt)
        await way.stop("before")
        answer = await turn.ask("Well?")
        attempts.append(turn.attempt)
        await way.stop("after")
        return answer

    client = harness.client(agent)
    await client.engine.start()
    way.stop_at = "before"
    task = await client.send("go", wait=False)
    client = await way.crashed_at(harness, client, "before")
    task = await in_state(client, task.id, State.INPUT_REQUIRED)
    assert attempts == [1, 2]
    way.stop_at = "after"
    await client.send("yes", task=task, wait=False)
    client = await way.crashed_at(harness, client, "after")
    task = await ended(client, task.id)
    assert task.text == "yes"
    assert attempts == [1, 2, 1, 2, 2]
    await checked(client, task.id)
    await client.engine.stop(0)


async def test_to_be_lost_while_waiting_costs_no_attempt(harness: EngineHarness) -> None:
    agent, attempts = Agent("Asker"), list[int]()

    @agent.skill("ask", max_attempts=1)
    async def ask(turn: Turn) -> str:
        attempts.append(turn.attempt)
        return await turn.ask("One?") + await turn.ask("Two?")

    client = harness.client(agent)
    await client.engine.start()
    task = await client.send("go")
    for _ in range(2):
        client = await harness.restart(client)
    task = await client.send("1", task=task)
    assert task.state is State.INPUT_REQUIRED
    client = await harness.restart(client)
    task = await client.send("2", task=task)
    assert task.text == "12"
    assert attempts == [1, 1, 1]
    assert story(await checked(client, task.id)) == [
        "opened",
        "working",
        "?input:One?",
        "working heard:1",
        "?input:Two?",
        "working heard:2",
        "=result:12!",
        "completed",
    ]
    await client.engine.stop(0)


async def test_a_clean_stop_gives_the_attempt_back(harness: EngineHarness) -> None:
    agent, attempts = Agent("Sleeper"), list[int]()

    @agent.skill("sleep", max_attempts=1, on_crash="resume")
    async def sleep(turn: Turn) -> str:
        attempts.append(turn.attempt)
        if len(attempts) < 4:
            await forever()
        return "done"

    client = harness.client(agent)
    await client.engine.start()
    task = await client.send("go", wait=False)
    for number in range(1, 4):
        await until(lambda number=number: len(attempts) == number)
        await client.engine.stop(0)
        client = harness.client(agent)
        await client.engine.start()
    task = await ended(client, task.id)
    assert task.text == "done"
    assert attempts == [1, 1, 1, 1]
    await checked(client, task.id)
    await client.engine.stop(0)


@pytest.mark.parametrize("last_words", ["return", "fail", "say"])
async def test_what_code_says_on_a_clean_stop_does_not_count(
    harness: EngineHarness, last_words: str
) -> None:
    """It is stopped for the process's sake, and will run again."""
    agent, starts = Agent("Sleeper"), list[int]()

    @agent.skill("sleep")
    async def sleep(turn: Turn) -> str:
        starts.append(1)
        if len(starts) == 2:
            return "whole"
        try:
            await forever()
        except asyncio.CancelledError:
            if last_words == "fail":
                raise turn.fail("I was interrupted") from None
            if last_words == "say":
                await turn.say("I was interrupted")
                raise
        return "half"

    client = harness.client(agent)
    await client.engine.start()
    task = await client.send("go", wait=False)
    await until(lambda: starts)
    await client.engine.stop(0)
    async with harness.client(agent) as client:
        task = await ended(client, task.id)
        assert task.text == "whole"
        assert story(await checked(client, task.id)) == [
            "opened",
            "working",
            "working",
            "=result:whole!",
            "completed",
        ]


async def test_a_waiting_task_survives_a_clean_stop(harness: EngineHarness) -> None:
    agent = Agent("Asker")

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        await turn.say("hello")
        return await turn.ask("Well?")

    async with harness.client(agent) as client:
        task = await client.send("go")
    async with harness.client(agent) as client:
        assert await client.get(task.id) == task
        events = await gathered(client.stream("yes", task=task))
        assert story(events) == [
            "snapshot working",
            "=result:yes!",
            "completed",
        ]
        await checked(client, task.id)


async def test_queued_tasks_survive(durable: EngineHarness) -> None:
    agent, started = Agent("Worker"), list[str]()

    @agent.skill("work")
    async def work(turn: Turn) -> str:
        started.append(turn.text)
        if turn.text == "first":
            await forever()
        return turn.text

    client = durable.client(agent, max_runs=1)
    await client.engine.start()
    await client.send("first", wait=False)
    task = await client.send("second", wait=False)
    assert task.state is State.SUBMITTED
    client = await durable.restart(client)
    assert (await ended(client, task.id)).text == "second"
    assert started.count("second") == 1
    assert story(await checked(client, task.id))[:2] == ["opened", "working"]
    await client.engine.stop(0)


async def test_a_cancel_that_a_crash_interrupted_is_done(harness: EngineHarness) -> None:
    agent, starts = Agent("Sleeper"), list[int]()

    @agent.skill("sleep")
    async def sleep(turn: Turn) -> None:
        starts.append(1)
        await forever()

    client = harness.client(agent)
    await client.engine.start()
    task = await client.send("go", wait=False)
    await until(lambda: starts)
    row = await row_of(client, task.id)
    await client.store.ask_cancel(row.scope, task.id)
    client = await harness.restart(client)
    assert (await ended(client, task.id)).state is State.CANCELED
    assert starts == [1]
    await checked(client, task.id)
    await client.engine.stop(0)


async def test_a_skill_that_is_gone_fails_its_tasks(harness: EngineHarness) -> None:
    agent = Agent("Worker")

    @agent.skill("old")
    async def old(turn: Turn) -> None:
        await forever()

    client = harness.client(agent)
    await client.engine.start()
    task = await client.send("go", wait=False)
    new = Agent("Worker")

    @new.skill("new")
    async def other(turn: Turn) -> str:
        return "new"

    client = await harness.restart(client, new)
    task = await ended(client, task.id)
    assert task.state is State.FAILED
    last = (await checked(client, task.id))[-1].event
    assert isinstance(last, StateChanged)
    assert last.metadata == {"reason": "skill_gone"}
    await client.engine.stop(0)


async def test_an_early_word_is_still_there_after_a_crash(harness: EngineHarness) -> None:
    agent, way = Agent("Asker"), Bumpy()

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        await way.stop("first")
        one = await turn.ask("One?")
        await way.stop("second")
        return one + await turn.ask("Two?")

    client = harness.client(agent)
    await client.engine.start()
    way.stop_at = "first"
    task = await client.send("go", wait=False)
    await client.send("1", task=task, wait=False)
    await client.send("2", task=task, wait=False)
    client = await way.crashed_at(harness, client, "first")
    task = await ended(client, task.id)
    assert task.text == "12"
    assert [m.text for m in task.history] == ["go", "1", "2"]
    await checked(client, task.id)
    await client.engine.stop(0)


async def test_an_early_word_that_was_used_is_not_used_again(harness: EngineHarness) -> None:
    agent, way = Agent("Asker"), Bumpy()

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        await way.stop("first")
        one = await turn.ask("One?")
        await turn.step("keep", lambda: None)
        await way.stop("second")
        return one + await turn.ask("Two?")

    client = harness.client(agent)
    await client.engine.start()
    task = await client.send("go", wait=False)
    task = await in_state(client, task.id, State.INPUT_REQUIRED)
    way.stop_at = "second"
    await client.send("1", task=task, wait=False)
    client = await way.crashed_at(harness, client, "second")
    task = await in_state(client, task.id, State.INPUT_REQUIRED)
    task = await client.send("2", task=task)
    assert task.text == "12"
    await checked(client, task.id)
    await client.engine.stop(0)


async def test_a_word_that_a_crash_left_unheard_is_heard_once(memory: EngineHarness) -> None:
    agent, way = Agent("Asker"), Bumpy()

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        await way.stop("here")
        return await turn.ask("Well?")

    store = Slow(memory.store())
    client = Client(agent, store=store)
    await client.engine.start()
    way.stop_at = "here"
    task = await client.send("go", wait=False)
    store.hold("inputs")
    telling = asyncio.ensure_future(client.send("yes", task=task, wait=False))
    await until(lambda: store.waiting)
    way.stop_at = ""
    client = await memory.restart(client)
    telling.cancel()
    store.let_go()
    task = await ended(client, task.id)
    assert task.text == "yes"
    assert [m.text for m in task.history] == ["go", "yes"]
    await checked(client, task.id)
    await client.engine.stop(0)


async def test_code_that_goes_another_way_still_ends_with_its_own_result(
    harness: EngineHarness,
) -> None:
    """Records nobody asks for any more are passed by; what is grown anew replaces the old."""
    agent, starts = Agent("Fickle"), list[int]()

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        starts.append(1)
        yield "a"
        await turn.step(f"step {len(starts)}", lambda: None)
        yield "b"
        await turn.step("common", lambda: None)
        if len(starts) == 1:
            await forever()
        yield "c"

    client = harness.client(agent)
    await client.engine.start()
    task = await client.send("go", wait=False)
    await until(lambda: _recorded(client, task.id, 2))
    client = await harness.restart(client)
    task = await ended(client, task.id)
    assert task.text == "abc"
    await checked(client, task.id)
    await client.engine.stop(0)


async def test_pieces_before_credentials_are_not_doubled(harness: EngineHarness) -> None:
    """Credentials are not recorded, so a later attempt asks again in the middle of its records."""
    agent, way = Agent("Bank"), Bumpy()

    @agent.skill("pay")
    async def pay(turn: Turn) -> AsyncGenerator[str, None]:
        yield "a"
        await turn.think("hm")
        secret = await turn.need_auth({"basic": {}})
        yield "b"
        await turn.step("pay", lambda: secret == "pw")
        yield "c"
        await way.stop("here")
        yield "d"

    client = harness.client(agent)
    await client.engine.start()
    task = await client.send("go")
    way.stop_at = "here"
    await client.send("pw", task=task, wait=False)
    client = await way.crashed_at(harness, client, "here")
    task = await in_state(client, task.id, State.AUTH_REQUIRED)
    task = await client.send("pw", task=task)
    assert task.text == "abcd"
    log = story(await checked(client, task.id))
    assert log.count("noted") == 1
    assert log.count("?credentials:Credentials are needed to go on") == 2
    await client.engine.stop(0)


async def _recorded(client: Client, task_id: str, count: int) -> bool:
    return len(await client.store.records((await row_of(client, task_id)).claim)) == count


async def test_a_reader_follows_a_task_over_a_crash(shared: EngineHarness) -> None:
    agent, way = Agent("Writer"), Bumpy()

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        yield "a"
        await way.stop("here")
        yield "b"

    way.stop_at = "here"
    client = shared.client(agent)
    await client.engine.start()
    async with shared.client(agent) as reader:
        task = await client.send("go", wait=False)
        following = asyncio.ensure_future(gathered(reader.watch(task.id, 0)))
        await until(lambda: way.reached)
        way.stop_at = ""
        await shared.crash(client)
        await shared.later(reader, 60)
        await reader.store.reap()
        await shared.later(reader, 31)
        async with asyncio.timeout(60):
            events = await following
        assert events == await log_of(reader, task.id)
        assert events[-1].event.state is State.COMPLETED  # type: ignore[union-attr]
        await checked(reader, task.id)
