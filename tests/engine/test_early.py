"""`complete` ends a task with a status message; `detach` answers callers that wait, early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator

import pytest

from dragoman import Agent, ArtifactChunk, Message, Stamped, State, StateChanged, SyncTurn, Turn
from dragoman.testing import Client
from engine.harness import EngineHarness, checked, client_of, ended, in_state, terminals
from engine.harness import Slow as SlowStore
from waiting import forever, until

LONG = 60.0


async def test_a_task_is_completed_with_a_status_message(memory: EngineHarness) -> None:
    agent = Agent("Booker")

    @agent.skill("book")
    async def book(turn: Turn) -> str:
        await turn.artifact("room 7", name="booking")
        await turn.complete("Booked one room.", {"rooms": 1}, metadata={"lang": "en"})
        return "nobody hears this"

    async with memory.client(agent) as client:
        task = await client.send("go")
        assert task.state is State.COMPLETED
        assert task.status.message is not None
        assert task.status.message.text == "Booked one room."
        assert task.status.message.metadata == {"lang": "en"}
        assert [artifact.name for artifact in task.artifacts] == ["booking"]
        assert terminals(await checked(client, task.id)) == [State.COMPLETED]


async def test_a_generator_that_completes_ends_its_artifact() -> None:
    agent = Agent("Writer")

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        yield "one "
        yield "two"
        await turn.complete("Two words.")
        yield "three"

    async with Client(agent) as client:
        events = [one.event async for one in client.stream("go") if isinstance(one, Stamped)]
        chunks = [event for event in events if isinstance(event, ArtifactChunk)]
        assert [(one.artifact.text, one.last) for one in chunks] == [("one ", False), ("two", True)]
        last = events[-1]
        assert isinstance(last, StateChanged)
        assert last.message is not None
        assert (last.state, last.message.text) == (State.COMPLETED, "Two words.")


async def test_a_skill_that_may_reply_can_complete_a_task_instead() -> None:
    agent = Agent("Greeter")

    @agent.skill("greet", may_reply=True)
    async def greet(turn: Turn) -> None:
        await turn.complete("Hello.")

    async with Client(agent) as client:
        task = await client.send("go")
        assert task.status.message is not None
        assert (task.state, task.status.message.text) == (State.COMPLETED, "Hello.")


async def test_a_plain_function_has_both_verbs() -> None:
    agent, on = Agent("Plain"), asyncio.Event()

    @agent.skill("do")
    def do(turn: SyncTurn) -> Generator[str, None, None]:
        yield "begun"
        turn.detach("This takes a while.")
        while not on.is_set():
            turn.think("...")
        turn.complete("Done.")

    async with Client(agent) as client:
        async with asyncio.timeout(LONG):
            task = await client.send("go")
        assert task.state is State.WORKING
        assert task.status.message is not None
        assert task.status.message.text == "This takes a while."
        assert task.text == "begun"
        on.set()
        task = await ended(client, task.id, LONG)
        assert task.status.message is not None
        assert task.status.message.text == "Done."


class Slow:
    """An agent that answers early and works on until it may end."""

    def __init__(self, *, may_reply: bool = False) -> None:
        self.agent = Agent("Slow")
        self.on, self.first = asyncio.Event(), asyncio.Event()

        @self.agent.skill("work", may_reply=may_reply)
        async def work(turn: Turn) -> str:
            if turn.text == "ask":
                answer = await turn.ask("How long?")
                await turn.detach(f"{answer}, then.")
            elif turn.text == "twice":
                await turn.detach("first")
                await self.first.wait()
                await turn.ask("And now?")
                await turn.detach("second")
            else:
                await turn.detach(*([turn.text] if turn.text else []))
            await self.on.wait()
            return "the result"


@pytest.mark.parametrize("may_reply", [False, True])
async def test_a_waiting_caller_is_answered_while_the_skill_works_on(
    harness: EngineHarness, may_reply: bool
) -> None:
    slow = Slow(may_reply=may_reply)
    async with harness.client(slow.agent) as client:
        async with asyncio.timeout(LONG):
            task = await client.send("Come back later.")
        assert task.state is State.WORKING
        assert task.status.message is not None
        assert task.status.message.text == "Come back later."
        slow.on.set()
        assert (await ended(client, task.id, LONG)).text == "the result"
        assert terminals(await checked(client, task.id)) == [State.COMPLETED]


async def test_it_need_not_say_anything() -> None:
    slow = Slow()
    async with Client(slow.agent) as client:
        async with asyncio.timeout(LONG):
            task = await client.send("")
        assert (task.state, task.status.message) == (State.WORKING, None)
        slow.on.set()
        assert (await ended(client, task.id, LONG)).state is State.COMPLETED


async def test_a_stream_goes_on() -> None:
    slow = Slow()
    async with Client(slow.agent) as client:
        states: list[State] = []
        async for one in client.stream("Later."):
            assert not isinstance(one, Message)
            if isinstance(one.event, StateChanged):
                states.append(one.event.state)
            if len(states) == 2:
                slow.on.set()
        assert states == [State.WORKING, State.WORKING, State.COMPLETED]


async def test_an_answer_to_a_question_is_answered_early_too(harness: EngineHarness) -> None:
    slow = Slow()
    async with harness.client(slow.agent) as client:
        task = await client.send("ask")
        assert task.state is State.INPUT_REQUIRED
        async with asyncio.timeout(LONG):
            task = await client.send("an hour", task=task)
        assert task.state is State.WORKING
        assert task.status.message is not None
        assert task.status.message.text == "an hour, then."
        slow.on.set()
        assert (await ended(client, task.id, LONG)).text == "the result"


async def test_an_early_answer_is_for_those_that_wait_then(harness: EngineHarness) -> None:
    slow = Slow()
    async with harness.client(slow.agent) as client:
        async with asyncio.timeout(LONG):
            task = await client.send("twice")
            assert task.status.message is not None
            assert task.status.message.text == "first"
            slow.first.set()
            task = await in_state(client, task.id, State.INPUT_REQUIRED)
            # Who answers the question after that waits for what follows it.
            task = await client.send("go on", task=task)
        assert task.status.message is not None
        assert task.status.message.text == "second"
        slow.on.set()
        assert (await ended(client, task.id, LONG)).text == "the result"


async def test_an_early_answer_that_was_given_before_a_restart_is_not_given_again(
    durable: EngineHarness,
) -> None:
    slow = Slow()

    @slow.agent.skill("later")
    async def later(turn: Turn) -> str:
        await turn.detach("on it")
        answer = await turn.ask("How long?")
        await slow.on.wait()
        return f"after {answer}"

    client = durable.client(slow.agent)
    await client.engine.start()
    task = await client.send("go", skill="later")
    await in_state(client, task.id, State.INPUT_REQUIRED)
    client = await durable.restart(client)
    sent = asyncio.create_task(client.send("an hour", task=task))
    await in_state(client, task.id, State.WORKING)
    slow.on.set()
    async with asyncio.timeout(LONG):
        assert (await sent).text == "after an hour"
    await client.engine.stop(1)


async def test_an_answer_that_is_sent_again_waits_as_the_first_did() -> None:
    slow = Slow()

    @slow.agent.skill("later")
    async def later(turn: Turn) -> str:
        await turn.detach("on it")
        await turn.ask("How long?")
        await slow.on.wait()
        return "the result"

    async with Client(slow.agent) as client:
        task = await client.send("go", skill="later")
        await in_state(client, task.id, State.INPUT_REQUIRED)
        sends = [
            asyncio.create_task(client.send("an hour", task=task, key="k", message_id="m"))
            for _ in range(2)
        ]
        await in_state(client, task.id, State.WORKING)
        slow.on.set()
        async with asyncio.timeout(LONG):
            assert [(await sent).text for sent in sends] == ["the result"] * 2


async def test_a_caller_that_waits_in_another_process_is_answered_too(
    shared: EngineHarness,
) -> None:
    slow = Slow()
    async with shared.client(slow.agent) as one, shared.client(slow.agent) as other:
        task = await one.send("ask")
        async with asyncio.timeout(LONG):
            task = await other.send("an hour", task=task)
        assert task.state is State.WORKING
        assert task.status.message is not None
        assert task.status.message.text == "an hour, then."
        slow.on.set()
        assert (await ended(other, task.id, LONG)).text == "the result"


async def test_an_early_answer_of_another_process_is_not_missed_by_the_send_that_opened_the_task(
    shared: EngineHarness,
) -> None:
    slow = Slow()
    store = SlowStore(shared.store())
    full = client_of(slow.agent, store, shared.clock, max_runs=1)  # type: ignore[arg-type]
    async with full, shared.client(slow.agent) as other:
        await full.send("This takes the only place.")
        store.hold("row")
        sent = asyncio.create_task(full.send("Come back later."))
        await until(lambda: store.waiting > 0)
        (waiting,) = [task for task in (await other.list()).tasks if "later" in str(task)]
        await _answered_early(other, waiting.id)
        store.let_go()
        async with asyncio.timeout(LONG):
            task = await sent
        assert (task.id, task.state) == (waiting.id, State.WORKING)
        slow.on.set()
        assert (await ended(full, task.id, LONG)).text == "the result"


async def test_a_send_that_is_repeated_elsewhere_is_answered_as_early(
    shared: EngineHarness,
) -> None:
    slow = Slow()
    async with shared.client(slow.agent) as one, shared.client(slow.agent) as other:
        task = await one.send("Come back later.", key="k", message_id="m")
        async with asyncio.timeout(LONG):
            again = await other.send("Come back later.", key="k", message_id="m")
        assert (again.id, again.state) == (task.id, State.WORKING)
        slow.on.set()
        assert (await ended(other, task.id, LONG)).text == "the result"


async def _answered_early(client: Client, task_id: str) -> None:
    """Waits until the skill has answered those that wait."""

    async def answered() -> bool:
        return (await client.get(task_id)).status.message is not None

    await until(answered)


async def test_a_cancel_does_not_take_it_for_the_end() -> None:
    agent = Agent("Stubborn")

    @agent.skill("work", cancel_grace=30)
    async def work(turn: Turn) -> None:
        try:
            await forever()
        finally:
            await turn.detach("I am leaving.")

    async with Client(agent) as client:
        task = await client.send("go", wait=False)
        assert (await client.cancel(task.id)).state is State.CANCELED
