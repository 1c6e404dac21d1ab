"""Events, their places in the log, artifacts and history (DESIGN §4.1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from dragoman import Agent, Role, State, Text, Turn
from dragoman.core.events import ArtifactChunk, Note, Noted, Opened, Stamped, StateChanged
from dragoman.testing import Client
from engine.harness import EngineHarness, Slow, brief, checked, gathered, story
from waiting import forever, turns

WORK = "urn:dragoman:work:1"


async def lines_of(agent: Agent, *what: object, **about: Any) -> list[str]:
    """What a task's log says in brief, without its first two events."""
    async with Client(agent) as client:
        task = await client.send(*what, **about)
        log = await checked(client, task.id)
        assert story(log)[:2] == ["opened", "working"]
        return story(log)[2:]


async def test_a_task_opens_works_and_ends(harness: EngineHarness) -> None:
    agent = Agent("Echo")

    @agent.skill("echo")
    async def echo(turn: Turn) -> str:
        return turn.text.upper()

    async with harness.client(agent) as client:
        task = await client.send("hello", metadata={"from": "test"})
        assert task.state is State.COMPLETED
        assert task.text == "HELLO"
        log = await checked(client, task.id)
        assert story(log) == ["opened", "working", "=result:HELLO!", "completed"]
        opened = log[0].event
        assert isinstance(opened, Opened)
        assert opened.skill == "echo"
        assert opened.message.text == "hello"
        assert opened.message.task_id == task.id
        assert opened.message.context_id == task.context_id


async def test_opened_and_working_are_one_write(memory: EngineHarness) -> None:
    """Nobody ever sees a task of ours that is submitted but not working."""
    agent = Agent("Sleeper")
    writes: list[int] = []

    @agent.skill("sleep")
    async def sleep(turn: Turn) -> None:
        await forever()

    store = memory.store()
    create = store.create
    store.create = lambda draft, done: (  # type: ignore[method-assign]
        writes.append(len(draft.entries)),
        create(draft, done),
    )[1]
    async with Client(agent, store=store) as client:
        task = await client.send("go", wait=False)
        assert task.state is State.WORKING
        assert writes == [2]


async def test_a_quick_task_is_one_write(memory: EngineHarness) -> None:
    agent = Agent("Echo")

    @agent.skill("echo")
    async def echo(turn: Turn) -> str:
        await turn.say("hm")
        return turn.text

    store = Slow(memory.store())
    async with Client(agent, store=store) as client:
        store.hold("append")
        task = await client.send("hello")
        store.let_go()
        assert task.state is State.COMPLETED
        assert story(await checked(client, task.id))[2:] == [
            "working say:hm",
            "=result:hello!",
            "completed",
        ]


async def test_one_yield_is_one_event_and_the_last_is_marked() -> None:
    agent = Agent("Writer")

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[object, None]:
        yield "a"
        yield {"n": 1}
        yield None
        yield "b"

    lines = await lines_of(agent, "go")
    assert lines == ["=result:a", "+result:", "+result:b!", "completed"]


async def test_chunks_with_pauses_are_not_held_back() -> None:
    """A chunk is seen while the generator waits; its end is told when it is known."""
    agent = Agent("Writer")
    go = asyncio.Event()

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        yield "a"
        await go.wait()
        yield "b"

    async with Client(agent) as client:
        seen = []
        async for event in client.stream("go"):
            assert isinstance(event, Stamped)
            seen.append(brief(event.event))
            if seen[-1] == "=result:a":
                go.set()
        assert seen == ["opened", "working", "=result:a", "+result:b!", "completed"]


async def test_a_pause_before_the_end_costs_an_empty_last_chunk() -> None:
    agent = Agent("Writer")

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        yield "a"
        await asyncio.sleep(0.001)  # the pause

    assert await lines_of(agent, "go") == ["=result:a", "+result:!", "completed"]


async def test_a_generator_without_items_makes_no_artifact() -> None:
    agent = Agent("Writer")

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        if turn.text == "never":
            yield "x"

    assert await lines_of(agent, "go") == ["completed"]


async def test_what_is_said_between_yields_keeps_its_place() -> None:
    agent = Agent("Writer")

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        yield "a"
        await turn.say("between")
        yield "b"
        await turn.artifact("other", name="side")
        await turn.artifact("unnamed")
        yield "c"
        await turn.progress(0.5)
        await turn.think("hm")

    assert await lines_of(agent, "go") == [
        "=result:a",
        "working say:between",
        "+result:b",
        "=side:other!",
        "=result-2:unnamed!",
        "+result:c",
        "working",
        "noted",
        "+result:!",
        "completed",
    ]


async def test_a_question_comes_after_the_chunks_before_it() -> None:
    agent = Agent("Writer")

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        yield "a"
        answer = await turn.ask("More?")
        yield answer

    async with Client(agent) as client:
        events = await gathered(client.stream("go"))
        assert story(events) == ["opened", "working", "=result:a", "?input:More?"]
        task = await client.send("b", task=events[0].task_id)
        assert task.text == "ab"


async def test_chunks_before_a_failure_are_kept() -> None:
    agent = Agent("Writer")

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        yield "a"
        yield "b"
        raise turn.fail("Out of ink")

    assert await lines_of(agent, "go") == ["=result:a", "+result:b", "failed say:Out of ink"]


async def test_chunks_are_joined_by_time_only_when_asked() -> None:
    agent = Agent("Writer")

    async def words(turn: Turn) -> AsyncGenerator[object, None]:
        for piece in ("a", "b", {"n": 1}, "c", "d"):
            yield piece
            await turns()
        await asyncio.sleep(0.6)  # longer than chunks are joined
        yield "e"

    agent.skill("plain")(words)
    agent.skill("joined", join=0.3)(words)
    assert await lines_of(agent, "go", skill="plain") == [
        "=result:a",
        "+result:b",
        "+result:",
        "+result:c",
        "+result:d",
        "+result:e!",
        "completed",
    ]
    assert await lines_of(agent, "go", skill="joined") == [
        "=result:abcd",
        "+result:e!",
        "completed",
    ]


async def test_joined_chunks_keep_their_place_too() -> None:
    agent = Agent("Writer")

    @agent.skill("write", join=0.02)
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        yield "a"
        yield "b"
        await turn.say("between")
        yield "c"
        yield "d"
        raise turn.reject("Enough")

    assert await lines_of(agent, "go") == [
        "=result:ab",
        "working say:between",
        "+result:cd",
        "rejected say:Enough",
    ]


async def test_joined_parts_stay_apart_where_they_must() -> None:
    agent = Agent("Writer")

    @agent.skill("write", join=5)
    async def write(turn: Turn) -> AsyncGenerator[object, None]:
        yield "a"
        yield Text("b", metadata={"bold": True})
        yield "c"

    async with Client(agent) as client:
        task = await client.send("go")
        assert task.artifacts[0].parts == (
            Text("a"),
            Text("b", metadata={"bold": True}),
            Text("c"),
        )


async def test_artifact_ids_are_names_or_numbers() -> None:
    agent = Agent("Maker")

    @agent.skill("make")
    async def make(turn: Turn) -> str:
        await turn.artifact("one")
        await turn.artifact("two", last=False)
        await turn.artifact("more", append=True)
        await turn.artifact("report", name="report.md", description="All of it")
        return "end"

    assert await lines_of(agent, "go") == [
        "=result:one!",
        "=result-2:two",
        "+result-2:more!",
        "=report.md:report!",
        "=result-3:end!",
        "completed",
    ]


async def test_a_named_artifact_may_be_replaced_and_grown() -> None:
    agent = Agent("Maker")

    @agent.skill("make")
    async def make(turn: Turn) -> None:
        await turn.artifact("old", name="page")
        await turn.artifact("new", name="page", last=False, metadata={"v": 2})
        await turn.artifact("er", name="page", append=True, description="Grown")

    async with Client(agent) as client:
        task = await client.send("go")
        (page,) = task.artifacts
        assert (page.text, page.name, page.description) == ("newer", "page", "Grown")
        assert page.metadata == {"v": 2}
        await checked(client, task.id)


async def test_a_snapshot_joins_adjacent_plain_text(harness: EngineHarness) -> None:
    agent = Agent("Writer")

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[object, None]:
        yield "a"
        yield "b"
        yield Text("c", metadata={"bold": True})
        yield "d"
        await turns(2)
        yield "e"

    async with harness.client(agent) as client:
        task = await client.send("go")
        parts = (Text("ab"), Text("c", metadata={"bold": True}), Text("de"))
        assert task.artifacts[0].parts == parts
        assert (await client.get(task.id)).artifacts[0].parts == parts
        await checked(client, task.id)


async def test_history_has_everything_but_the_status_message(harness: EngineHarness) -> None:
    agent = Agent("Chat")

    @agent.skill("chat")
    async def chat(turn: Turn) -> str:
        await turn.say("one")
        await turn.say("two")
        answer = await turn.ask("three?")
        assert [m.text for m in turn.history] == ["hi", "one", "two", "three?", "yes"]
        assert answer == "yes"
        raise turn.fail("four")

    async with harness.client(agent) as client:
        task = await client.send("hi")
        assert task.status.message is not None
        assert task.status.message.text == "three?"
        assert [m.text for m in task.history] == ["hi", "one", "two"]
        task = await client.send("yes", task=task)
        assert task.status.message is not None
        assert task.status.message.text == "four"
        assert [m.text for m in task.history] == ["hi", "one", "two", "three?", "yes"]
        assert [m.role for m in task.history] == [
            Role.USER,
            Role.AGENT,
            Role.AGENT,
            Role.AGENT,
            Role.USER,
        ]
        assert len({m.message_id for m in task.history}) == 5
        assert {m.task_id for m in task.history} == {task.id}
        assert {m.context_id for m in task.history} == {task.context_id}
        await checked(client, task.id)


async def test_history_can_be_shortened() -> None:
    agent = Agent("Chat")

    @agent.skill("chat")
    async def chat(turn: Turn) -> None:
        await turn.say("one")
        await turn.say("two")

    async with Client(agent) as client:
        task = await client.send("hi", history_length=1)
        assert [m.text for m in task.history] == ["two"]
        assert (await client.get(task.id, history_length=0)).history == ()
        assert len((await client.get(task.id, history_length=10)).history) == 3
        page = await client.list(history_length=2)
        assert [m.text for m in page.tasks[0].history] == ["one", "two"]


async def test_an_answer_is_the_working_event_that_carries_it(harness: EngineHarness) -> None:
    """Nothing invisible takes a seq: the answer arrives with `working`."""
    agent = Agent("Chat")

    @agent.skill("chat")
    async def chat(turn: Turn) -> str:
        return await turn.ask("Name?")

    async with harness.client(agent) as client:
        task = await client.send("hi")
        task = await client.send("Ada", task=task)
        assert story(await checked(client, task.id)) == [
            "opened",
            "working",
            "?input:Name?",
            "working heard:Ada",
            "=result:Ada!",
            "completed",
        ]


async def test_work_is_noted() -> None:
    agent = Agent("Worker")

    @agent.skill("work")
    async def work(turn: Turn) -> None:
        await turn.think("hm")
        await turn.log("started", level="debug", n=1)
        await turn.usage(tokens=12)
        await turn.progress(0.25, eta=3)

    async with Client(agent) as client:
        task = await client.send("go")
        notes = [entry.event for entry in (await checked(client, task.id))[2:-1]]
        assert notes == [
            Noted(kind=Note.THOUGHT, body={"text": "hm"}),
            Noted(kind=Note.LOG, body={"level": "debug", "message": "started", "n": 1}),
            Noted(kind=Note.USAGE, body={"tokens": 12}),
            StateChanged(
                state=State.WORKING,
                metadata={f"{WORK}/progress": {"fraction": 0.25, "eta": 3}},
            ),
        ]


async def test_a_long_stream_has_no_gaps_whatever_the_store_does(harness: EngineHarness) -> None:
    agent = Agent("Writer")

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        for number in range(1500):
            yield f"{number} "
            if number % 400 == 0:
                await asyncio.sleep(0.002)  # a pause in between

    async with harness.client(agent) as client:
        events = await gathered(client.stream("go"))
        log = await checked(client, events[0].task_id)
        assert events == log
        chunks = [e.event for e in log if isinstance(e.event, ArtifactChunk)]
        assert len(chunks) == 1500
        assert [chunk.last for chunk in chunks] == [False] * 1499 + [True]
        assert "".join(c.artifact.text for c in chunks) == "".join(f"{n} " for n in range(1500))
