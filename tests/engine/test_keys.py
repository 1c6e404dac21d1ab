"""A send that is made twice under one key is done once: opening, answering, replying, named."""

from __future__ import annotations

import asyncio

import pytest

from dragoman import Agent, Message, State, Task, Turn
from dragoman.core.errors import Conflict
from dragoman.core.events import Snapshot, Stamped
from dragoman.core.peer import Context
from engine.harness import EngineHarness, gathered


def desk(did: list[str]) -> Agent:
    agent = Agent("Desk")

    @agent.skill("trip", default=True)
    async def trip(turn: Turn) -> str:
        one = await turn.ask("From?")
        two = await turn.ask("To?")
        did.append(f"{one}-{two}")
        return did[-1]

    @agent.skill("greet", may_reply=True)
    async def greet(turn: Turn) -> None:
        did.append("greet")
        await asyncio.sleep(0.05)  # long enough to be asked again meanwhile
        await turn.reply(f"hello {turn.text}")

    @agent.skill("echo")
    async def echo(turn: Turn) -> str:
        did.append(turn.text)
        return turn.text

    return agent


async def test_an_answer_is_told_once(harness: EngineHarness) -> None:
    did: list[str] = []
    async with harness.client(desk(did)) as client:
        task = await client.send("go")
        about = {"task": task, "key": "k1", "message_id": "m1"}
        first = await client.send("Oslo", **about)
        again = await client.send("Oslo", **about)
        assert first.state is again.state is State.INPUT_REQUIRED
        assert again == first
        with pytest.raises(Conflict):
            await client.send("Rome", **about)
        told = [entry async for entry in client.stream("Oslo", **about)]
        (only,) = told
        assert isinstance(only, Stamped)
        assert isinstance(only.event, Snapshot)
        assert only.event.task == first
        done = await client.send("Rome", task=task, key="k2", message_id="m2")
        assert done.text == "Oslo-Rome"
        # Also when it is all over, and to whoever asks late.
        assert await client.send("Oslo", **about) == done
        assert [entry async for entry in client.stream("Oslo", **about)] != []
    async with harness.client(desk(did)) as client:
        assert (await client.send("Rome", task=task, key="k2", message_id="m2")).text == done.text
    assert did == ["Oslo-Rome"]


async def test_two_answers_at_once_are_one(harness: EngineHarness) -> None:
    did: list[str] = []
    async with harness.client(desk(did)) as client:
        task = await client.send("go")
        about = {"task": task, "key": "k1", "message_id": "m1"}
        tasks = await asyncio.gather(*(client.send("Oslo", **about) for _ in range(4)))
        assert {each.status.message.text for each in tasks if each.status.message} == {"To?"}
        assert [m.text for m in (await client.get(task.id)).history].count("Oslo") == 1


async def test_two_streamed_answers_at_once_are_one(harness: EngineHarness) -> None:
    """And none of them begins with the question that was answered."""
    did: list[str] = []
    async with harness.client(desk(did)) as client:
        task = await client.send("go")
        about = {"task": task, "key": "k1", "message_id": "m1"}
        streams = (gathered(client.stream("Oslo", **about)) for _ in range(4))
        for told in await asyncio.gather(*streams):
            assert isinstance(told[0].event, Snapshot)
            first = told[0].event.task
            asked = first.status.message.text if first.status.message else ""
            assert (first.state, asked) in (
                (State.WORKING, ""),
                (State.INPUT_REQUIRED, "To?"),  # came so late that it asks again
            )
            assert "Oslo" in [message.text for message in first.history]
        assert [m.text for m in (await client.get(task.id)).history].count("Oslo") == 1


async def test_a_direct_reply_is_made_once(harness: EngineHarness) -> None:
    did: list[str] = []
    about = {"skill": "greet", "key": "k", "message_id": "m"}
    async with harness.client(desk(did)) as client:
        first = await client.ask("Ada", **about)
        assert isinstance(first, Message)
        assert (first.text, first.task_id) == ("hello Ada", "")
        assert await client.ask("Ada", **about) == first
        assert [entry async for entry in client.stream("Ada", **about)] == [first]
        with pytest.raises(Conflict):
            await client.ask("Bob", **about)
        assert (await client.list()).total == 0
        assert isinstance(await client.ask("Ada", skill="greet"), Message)
    async with harness.client(desk(did)) as client:
        assert await client.ask("Ada", **about) == first
        assert (await client.list()).total == 0
    assert did == ["greet", "greet"]


async def test_a_repetition_joins_a_reply_that_is_being_made(memory: EngineHarness) -> None:
    did: list[str] = []
    about = {"skill": "greet", "key": "k", "message_id": "m"}
    async with memory.client(desk(did)) as client:
        replies = await asyncio.gather(*(client.ask("Ada", **about) for _ in range(3)))
        assert {reply.text for reply in replies} == {"hello Ada"}
        assert all(isinstance(reply, Message) for reply in replies)
    assert did == ["greet"]


async def test_a_named_task_is_opened_once(harness: EngineHarness) -> None:
    """A2A 0.1: the caller names its task, and a second message of that name continues it."""
    did: list[str] = []
    async with harness.client(desk(did)) as client:
        about = {"open_as": "mine", "key": "k", "message_id": "m"}
        first = await client.send("go", **about)
        again = await client.send("go", **about)
        assert (again.id, again.state) == (first.id, State.INPUT_REQUIRED)
        assert [m.text for m in (await client.get(first.id)).history] == ["go"]
        with pytest.raises(Conflict):
            await client.send("go", open_as="another", key="k", message_id="m")
        told = {"open_as": "mine", "key": "k2", "message_id": "m2"}
        for _ in range(2):
            task = await client.send("Oslo", **told)
            assert isinstance(task, Task)
            assert task.status.message is not None
            assert task.status.message.text == "To?"


async def test_keys_belong_to_their_callers(memory: EngineHarness) -> None:
    did: list[str] = []
    async with memory.client(desk(did)) as client:
        about = {"skill": "greet", "key": "k", "message_id": "m"}
        await client.ask("Ada", **about)
        client.context = Context(principal="bob")
        assert (await client.ask("Bob", **about)).text == "hello Bob"
    assert did == ["greet", "greet"]
