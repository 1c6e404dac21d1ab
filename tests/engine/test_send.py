"""Sending: blocking or not, contexts, idempotency, places and queues."""

from __future__ import annotations

import asyncio
import logging

import pytest
from msgspec.structs import replace

from dragoman import Agent, Data, Message, State, Task, Turn
from dragoman.core.errors import (
    BadParams,
    Conflict,
    PushUnsupported,
    TaskFinished,
    TaskNotFound,
    TooMany,
)
from dragoman.core.extensions import IDEMPOTENCY
from dragoman.core.model import Hook
from dragoman.core.peer import Context
from dragoman.engine import EngineSettings
from dragoman.store.interface import Scope
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
    story,
    until,
)
from waiting import forever, stays


def gated() -> tuple[Agent, asyncio.Event, list[str]]:
    """An agent that waits for an event, and the texts it was started with."""
    agent, go, started = Agent("Gate"), asyncio.Event(), []

    @agent.skill("wait")
    async def wait(turn: Turn) -> str:
        started.append(turn.text)
        await go.wait()
        return turn.text

    return agent, go, started


# Waiting.


async def test_a_send_that_does_not_wait_is_answered_once_the_task_is_kept(
    harness: EngineHarness,
) -> None:
    agent, go, _ = gated()
    async with harness.client(agent) as client:
        task = await client.send("go", wait=False)
        assert task.state is State.WORKING
        row, stored = await client.store.load(Scope("", "anonymous", agent.name), task.id)
        assert stored.history == task.history
        assert row.last_seq == 2
        go.set()
        assert (await ended(client, task.id)).text == "go"


async def test_nothing_is_acknowledged_before_it_is_committed(memory: EngineHarness) -> None:
    agent, _, _ = gated()
    store = Slow(memory.store())
    async with Client(agent, store=store) as client:
        store.hold("create")
        async with background(client.send("go", wait=False)) as sending:
            await until(lambda: store.waiting)
            await stays(lambda: not sending.done())
            store.let_go()
            assert (await sending).state is State.WORKING
        assert (await client.list()).total == 1


async def test_a_stream_shows_nothing_before_it_is_committed(memory: EngineHarness) -> None:
    agent, go = Agent("Writer"), asyncio.Event()

    @agent.skill("write")
    async def write(turn: Turn) -> None:
        await go.wait()
        await turn.say("hm")
        await forever()

    store = Slow(memory.store())
    async with Client(agent, store=store) as client:
        task = await client.send("go", wait=False)
        seen: list[str] = []

        async def follow() -> None:
            async for event in client.watch(task.id, cursor=0):
                seen.extend(story([event]))

        store.hold("append")
        go.set()
        async with background(follow()):
            await until(lambda: store.waiting and len(seen) == 2)
            await stays(lambda: seen == ["opened", "working"])
            store.let_go()
            await until(lambda: "working say:hm" in seen)


async def test_a_blocking_send_waits_only_so_long(harness: EngineHarness) -> None:
    agent, go, _ = gated()
    async with harness.client(agent, max_wait=0.1) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        task = await client.send("go")
        assert task.state is State.WORKING
        assert loop.time() - began < 60  # without max_wait it would be minutes
        go.set()
        assert (await ended(client, task.id)).state is State.COMPLETED


async def test_a_send_to_a_running_task_waits_only_so_long() -> None:
    agent, _, _ = gated()
    async with Client(agent, settings=EngineSettings(max_wait=0.1)) as client:
        task = await client.send("go", wait=False)
        task = await client.send("more", task=task)
        assert task.state is State.WORKING
        assert [m.text for m in task.history] == ["go", "more"]


async def test_a_client_that_leaves_does_not_stop_the_task(harness: EngineHarness) -> None:
    agent, go, started = gated()
    async with harness.client(agent) as client:
        async with background(client.send("one")), background(gathered(client.stream("two"))):
            await until(lambda: len(started) == 2)
        go.set()
        await until(lambda: _all_done(client, 2))


async def _all_done(client: Client, count: int) -> bool:
    return (await client.list(state=State.COMPLETED)).total == count


async def test_push_is_refused_while_there_is_none() -> None:
    agent, _, _ = gated()
    async with Client(agent) as client:
        with pytest.raises(PushUnsupported):
            await client.send("go", hook=Hook(hook_id="", task_id="", url="https://example.com/"))
        assert (await client.list()).total == 0


# Continuing.


async def test_a_message_to_what_is_not_there_or_over_is_refused(harness: EngineHarness) -> None:
    agent, go, _ = gated()
    go.set()
    async with harness.client(agent) as client:
        with pytest.raises(TaskNotFound):
            await client.send("hi", task="no-such-task")
        task = await client.send("go")
        with pytest.raises(TaskFinished):
            await client.send("more", task=task)
        with pytest.raises(TaskFinished):
            await gathered(client.stream("more", task=task))
        assert await client.get(task.id) == task


async def test_a_message_for_another_context_is_refused() -> None:
    agent, _, _ = gated()
    async with Client(agent) as client:
        task = await client.send("go", wait=False)
        with pytest.raises(BadParams, match="another context"):
            await client.send("more", task=task, context_id="elsewhere")
        answer = await client.send("more", task=task, context_id=task.context_id, wait=False)
        assert answer.context_id == task.context_id


# Contexts.


async def test_contexts_are_made_or_taken(harness: EngineHarness) -> None:
    agent, go, _ = gated()
    go.set()
    async with harness.client(agent) as client:
        one, two = await client.send("a"), await client.send("b")
        assert one.context_id != two.context_id
        assert one.context_id == one.id  # it began it
        three = await client.send("c", context_id=one.context_id)
        four = await client.send("d", context_id="mine")
        assert three.context_id == one.context_id
        assert four.context_id == "mine"
        page = await client.list(context_id=one.context_id)
        assert [task.id for task in page.tasks] == [three.id, one.id]


async def test_a_conversation_is_the_context_of_one_caller(harness: EngineHarness) -> None:
    agent = Agent("Chat")

    @agent.skill("chat")
    async def chat(turn: Turn) -> dict[str, list[str]]:
        await turn.say(f"you said {turn.text}")
        return {"said": [m.text for m in await turn.conversation(limit=4)]}

    async with harness.client(agent, context=ANN) as ann:
        bob = Client(agent, store=ann.store, context=BOB)
        bob.engine = ann.engine
        await ann.send("one", context_id="c")
        await bob.send("secret", context_id="c")
        await ann.send("elsewhere", context_id="d")
        task = await ann.send("two", context_id="c")
        assert said_in(task) == ["one", "you said one", "two", "you said two"]
        task = await ann.send("three", context_id="c")
        assert said_in(task) == ["two", "you said two", "three", "you said three"]


def said_in(task: Task) -> list[str]:
    part = task.artifacts[0].parts[0]
    assert isinstance(part, Data)
    return list(part.value["said"])


# Idempotency.


async def test_a_repeat_gets_the_same_task(harness: EngineHarness) -> None:
    agent, go, started = gated()
    async with harness.client(agent) as client:
        first = await client.send("go", key="k", wait=False, message_id="m")
        again = await client.send("go", key="k", wait=False, message_id="m")
        assert again.id == first.id
        go.set()
        done = await client.send("go", key="k", message_id="m")
        assert (done.id, done.state) == (first.id, State.COMPLETED)
        assert started == ["go"]
        assert (await client.list()).total == 1


async def test_a_repeated_stream_replays(harness: EngineHarness) -> None:
    agent, go, started = gated()
    go.set()
    async with harness.client(agent) as client:
        first = await gathered(client.stream("go", key="k", message_id="m"))
        again = await gathered(client.stream("go", key="k", message_id="m"))
        assert story(first) == ["opened", "working", "=result:go!", "completed"]
        assert again == first
        assert started == ["go"]


async def test_a_repeat_while_it_runs_waits_for_the_same_end(harness: EngineHarness) -> None:
    agent, go, started = gated()
    async with harness.client(agent) as client:
        sends = [client.send("go", key="k", message_id="m") for _ in range(5)]
        async with background(asyncio.gather(*sends)) as sending:
            await until(lambda: started)
            await stays(lambda: started == ["go"])
            go.set()
            tasks = await sending
        assert len({task.id for task in tasks}) == 1
        assert {task.state for task in tasks} == {State.COMPLETED}
        assert started == ["go"]


async def test_another_message_under_the_same_key_is_a_conflict(harness: EngineHarness) -> None:
    agent, go, _ = gated()
    go.set()
    async with harness.client(agent) as client:
        await client.send("go", key="k", message_id="m")
        with pytest.raises(Conflict):
            await client.send("stop", key="k", message_id="m")
        with pytest.raises(Conflict):
            await gathered(client.stream("go", key="k", message_id="m2"))
        assert (await client.list()).total == 1


async def test_the_whole_request_counts_as_its_content() -> None:
    agent = Agent("Two")

    @agent.skill("one")
    async def one(turn: Turn) -> str:
        return "1"

    @agent.skill("two")
    async def two(turn: Turn) -> str:
        return "2"

    async with Client(agent) as client:
        op, ctx = client._message(("go",), {"key": "k", "message_id": "m"})
        await client.engine.call(replace(op, metadata={"skillId": "one"}), ctx)
        with pytest.raises(Conflict):
            await client.engine.call(replace(op, metadata={"skillId": "two"}), ctx)


async def test_keys_belong_to_their_caller(harness: EngineHarness) -> None:
    agent, go, _ = gated()
    go.set()
    async with harness.client(agent, context=ANN) as ann:
        bob = Client(agent, store=ann.store, context=BOB)
        bob.engine = ann.engine
        one = await ann.send("go", key="k", message_id="m")
        two = await bob.send("go", key="k", message_id="m")
        three = await bob.send("stop", key="k2", message_id="m")
        assert len({one.id, two.id, three.id}) == 3


async def test_a_bare_message_id_is_no_key() -> None:
    agent, go, _ = gated()
    go.set()
    async with Client(agent) as client:
        one = await client.send("go", message_id="m")
        two = await client.send("go", message_id="m")
        assert one.id != two.id


async def test_the_extension_makes_the_message_id_a_key() -> None:
    agent, go, _ = gated()
    go.set()
    async with Client(agent, context=Context(extensions=(IDEMPOTENCY,))) as client:
        one = await client.send("go", message_id="m")
        two = await client.send("go", message_id="m")
        assert one.id == two.id
        with pytest.raises(Conflict):
            await client.send("stop", message_id="m")


async def test_keys_survive_a_restart(durable: EngineHarness) -> None:
    agent, go, started = gated()
    go.set()
    async with durable.client(agent) as client:
        task = await client.send("go", key="k", message_id="m")
    async with durable.client(agent) as client:
        again = await client.send("go", key="k", message_id="m")
        assert again == task
        assert started == ["go"]


# Places.


async def test_tasks_wait_their_turn(harness: EngineHarness) -> None:
    agent, go, started = gated()
    async with harness.client(agent, max_runs=2, max_queue=2) as client:
        tasks = [await client.send(text, wait=False) for text in "abcd"]
        assert [task.state for task in tasks] == [State.WORKING] * 2 + [State.SUBMITTED] * 2
        with pytest.raises(TooMany):
            await client.send("e", wait=False)
        assert started == ["a", "b"]
        assert (await client.list()).total == 4
        go.set()
        for task in tasks:
            assert (await ended(client, task.id)).text == task.history[0].text
            assert story(await checked(client, task.id))[:2] == ["opened", "working"]
        assert started == ["a", "b", "c", "d"]
        assert (await client.send("f")).text == "f"


async def test_queued_tasks_are_waited_for_and_streamed(harness: EngineHarness) -> None:
    agent, go, started = gated()
    async with harness.client(agent, max_runs=1) as client:
        await client.send("a", wait=False)
        async with (
            background(client.send("b")) as sending,
            background(gathered(client.stream("c"))) as streaming,
        ):
            await until(lambda: _queued(client, 2))
            assert started == ["a"]
            go.set()
            assert (await sending).text == "b"
            assert story(await streaming) == ["opened", "working", "=result:c!", "completed"]


async def test_tasks_of_a_higher_priority_leave_the_queue_first(harness: EngineHarness) -> None:
    agent, go, started = gated()
    async with harness.client(agent, max_runs=1) as client:
        await client.send("a", wait=False)
        for text, said in (
            ("low", {"priority": "low"}),
            ("unknown", {"priority": {"level": 9}}),
            ("none", None),
            ("high", {"priority": "high"}),
        ):
            task = await client.send(text, wait=False, metadata=said)
            assert task.state is State.SUBMITTED
        go.set()
        await until(lambda: _over(client, 5))
        assert started == ["a", "high", "unknown", "none", "low"]


async def _over(client: Client, count: int) -> bool:
    return (await client.engine.counts()).get("completed") == count


async def _queued(client: Client, count: int) -> bool:
    return (await client.engine.counts())["runnable"] == count


async def test_a_canceled_place_in_the_queue_is_free_again(memory: EngineHarness) -> None:
    agent, go, started = gated()
    async with memory.client(agent, max_runs=1, max_queue=1) as client:
        await client.send("a", wait=False)
        for _ in range(3):
            task = await client.send("b", wait=False)
            assert task.state is State.SUBMITTED
            assert (await client.cancel(task.id)).state is State.CANCELED
        task = await client.send("c", wait=False)
        go.set()
        assert (await ended(client, task.id)).state is State.COMPLETED
        assert started == ["a", "c"]


async def test_a_message_does_not_let_a_task_jump_the_queue(harness: EngineHarness) -> None:
    agent, go, started = gated()
    async with harness.client(agent, max_runs=1) as client:
        await client.send("a", wait=False)
        task = await client.send("b", wait=False)
        task = await client.send("hurry", task=task, wait=False)
        await stays(lambda: started == ["a"])
        assert task.state is State.SUBMITTED
        go.set()
        done = await ended(client, task.id)
        assert [m.text for m in done.history] == ["b", "hurry"]
        await checked(client, task.id)


async def test_a_queued_idempotent_task_is_opened_once(harness: EngineHarness) -> None:
    agent, go, started = gated()
    async with harness.client(agent, max_runs=1) as client:
        await client.send("a", wait=False)
        one = await client.send("b", key="k", message_id="m", wait=False)
        two = await client.send("b", key="k", message_id="m", wait=False)
        assert one.id == two.id
        go.set()
        assert (await client.send("b", key="k", message_id="m")).text == "b"
        assert started == ["a", "b"]


async def test_who_waits_for_an_answer_takes_no_place(harness: EngineHarness) -> None:
    """Otherwise a few callers that never answer would stop everyone else."""
    agent = Agent("Asker")

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        return await turn.ask("Well?") if turn.text == "ask" else turn.text

    async with harness.client(agent, max_runs=1) as client:
        waiting = await client.send("ask")
        assert waiting.state is State.INPUT_REQUIRED
        async with asyncio.timeout(60):
            assert (await client.send("hi")).text == "hi"
        assert (await client.send("yes", task=waiting)).text == "yes"


async def test_an_agent_without_skills_says_so() -> None:
    async with Client(Agent("Empty")) as client:
        with pytest.raises(Exception, match="has no skills"):
            await client.send("hi")


async def test_counts_are_by_state(harness: EngineHarness) -> None:
    agent, go, _ = gated()
    async with harness.client(agent, max_runs=1) as client:
        one = await client.send("a", wait=False)
        await client.send("b", wait=False)
        assert await client.engine.counts() == {"working": 1, "submitted": 1, "runnable": 1}
        go.set()
        await ended(client, one.id)
        await until(lambda: _all_done(client, 2))
        assert await client.engine.counts() == {"completed": 2, "runnable": 0}


# Bad weather.


async def test_a_store_that_refuses_the_task_refuses_the_call(
    memory: EngineHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """A message that cannot be stored is not acknowledged, and the next call works."""
    caplog.set_level(logging.CRITICAL)
    agent = Agent("Echo")

    @agent.skill("echo")
    async def echo(turn: Turn) -> str:
        return turn.text

    async with memory.client(agent) as client:
        with pytest.raises(Exception, match="cannot be stored"):
            await client.send("\ud800")
        assert (await client.list()).total == 0
        assert (await client.send("fine")).text == "fine"


async def test_a_message_is_all_that_is_asked_of_a_caller() -> None:
    """Empty parts are the dialects' business; here they are a message without text."""
    agent = Agent("Echo")

    @agent.skill("echo")
    async def echo(turn: Turn) -> str:
        return f"[{turn.text}]"

    async with Client(agent) as client:
        task = await client.send()
        assert isinstance(task.history[0], Message)
        assert task.text == "[]"
        assert (await in_state(client, task.id, State.COMPLETED)).text == "[]"
