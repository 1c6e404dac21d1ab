"""Asking back: input, approvals, credentials; who answers what, and what silence means."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dragoman import Agent, Answer, Blob, Message, Role, State, Text, Turn
from dragoman.core.errors import Conflict, TaskFinished, TaskNotFound
from dragoman.core.events import Ask, Asked, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import added_up
from dragoman.core.questions import first_data
from dragoman.engine import EngineSettings
from dragoman.engine.overdue import expire
from dragoman.store.codec import Unpacker
from dragoman.store.interface import Input, Row, Scope
from dragoman.testing import Client
from engine.harness import (
    EngineHarness,
    Slow,
    background,
    checked,
    client_of,
    ended,
    gathered,
    in_state,
    row_of,
    story,
    until,
)
from waiting import forever, stays

CANARY = "canary-7c1f-swordfish"


def asker() -> Agent:
    """Asks twice."""
    agent = Agent("Asker")

    @agent.skill("plan")
    async def plan(turn: Turn) -> str:
        city = turn.text or await turn.ask("Which city?")
        days = await turn.ask("How many days?", details={"max": 7})
        return f"{days} days in {city}"

    return agent


async def test_a_task_asks_and_goes_on_with_the_same_id(harness: EngineHarness) -> None:
    async with harness.client(asker()) as client:
        task = await client.send("")
        assert task.state is State.INPUT_REQUIRED
        assert task.status.message is not None
        assert task.status.message.text == "Which city?"
        second = await client.send("Kyoto", task=task)
        assert second.id == task.id
        assert second.context_id == task.context_id
        assert second.state is State.INPUT_REQUIRED
        done = await client.send("3", task=task)
        assert done.state is State.COMPLETED
        assert done.text == "3 days in Kyoto"
        log = await checked(client, task.id)
        asked = [entry.event for entry in log if isinstance(entry.event, Asked)]
        assert [(a.question, a.kind, a.body) for a in asked] == [
            ("input:Which city?", Ask.INPUT, None),
            ("input:How many days?", Ask.INPUT, {"max": 7}),
        ]


async def test_a_stream_ends_at_the_question_and_the_next_goes_on(harness: EngineHarness) -> None:
    async with harness.client(asker()) as client:
        first = await gathered(client.stream("Kyoto"))
        assert story(first) == ["opened", "working", "?input:How many days?"]
        second = await gathered(client.stream("3", task=first[0].task_id))
        assert story(second) == [
            "snapshot working",
            "=result:3 days in Kyoto!",
            "completed",
        ]
        log = await checked(client, first[0].task_id)
        assert first + log[3:4] + second[1:] == log
        # The snapshot is the task right behind the event that carries the answer.
        begin = second[0].event
        assert second[0].seq == log[3].seq == 4
        assert isinstance(begin, Snapshot)
        assert begin.task == added_up(log[:4])
        assert [message.text for message in begin.task.history][-2:] == ["How many days?", "3"]


async def test_a_streamed_answer_to_a_request_for_credentials_begins_at_work() -> None:
    agent = Agent("Locked")

    @agent.skill("open")
    async def unlock(turn: Turn) -> str:
        await turn.need_auth({"bearer": {}})
        return "open"

    async with Client(agent) as client:
        task = await client.send("please")
        assert task.state is State.AUTH_REQUIRED
        events = await gathered(client.stream("secret", task=task))
        assert story(events) == ["snapshot working", "=result:open!", "completed"]


async def test_the_stream_of_an_answer_resumes_after_event_one(harness: EngineHarness) -> None:
    async with harness.client(asker()) as client:
        task = await client.send("Kyoto")
        told = await gathered(client.stream("3", task=task))
        assert await gathered(client.watch(task.id, told[0].seq)) == told[1:]
        assert [entry.seq for entry in told] == [4, 5, 6]


async def test_a_streamed_answer_that_leads_to_the_next_question_ends_there(
    harness: EngineHarness,
) -> None:
    async with harness.client(asker()) as client:
        task = await client.send("")
        told = await gathered(client.stream("Kyoto", task=task))
        assert story(told) == ["snapshot working", "?input:How many days?"]


async def test_an_answer_is_text_files_and_data() -> None:
    agent = Agent("Asker")
    heard: list[Answer] = []

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        answer = await turn.ask("Well?")
        heard.append(answer)
        return answer

    async with Client(agent) as client:
        task = await client.send("hi")
        await client.send("here", Blob(b"x", filename="x.bin"), {"n": 1}, task=task)
        assert heard == ["here"]
        assert heard[0].data == {"n": 1}
        assert heard[0].message.text == "here"
        (blob,) = heard[0].files
        assert isinstance(blob, Blob)
        assert blob.filename == "x.bin"


# Resolve.


async def test_a_question_is_answered_by_its_name(harness: EngineHarness) -> None:
    async with harness.client(asker()) as client:
        task = await client.send("Kyoto")
        await client.resolve(task.id, "input:How many days?", "3")
        task = await ended(client, task.id)
        assert task.text == "3 days in Kyoto"
        assert [m.text for m in task.history] == ["Kyoto", "How many days?", "3"]


@pytest.mark.parametrize("value", [3, {"n": 3}, ["a", "b"], True, None, 1.5, "three"])
async def test_an_answer_by_name_is_any_value(value: object) -> None:
    agent = Agent("Asker")
    heard: list[Answer] = []

    @agent.skill("ask")
    async def ask(turn: Turn) -> None:
        heard.append(await turn.ask("Well?"))

    async with Client(agent) as client:
        task = await client.send("hi")
        await client.resolve(task.id, "input:Well?", value)
        assert (await ended(client, task.id)).state is State.COMPLETED
        assert heard[0].data == value
        assert heard[0] == (value if isinstance(value, str) else heard[0].message.text)


async def test_another_question_is_a_conflict(harness: EngineHarness) -> None:
    async with harness.client(asker()) as client:
        task = await client.send("")
        with pytest.raises(Conflict):
            await client.resolve(task.id, "input:How many days?", "3")
        assert await client.get(task.id) == task
        await client.resolve(task.id, "input:Which city?", "Kyoto")
        await in_state(client, task.id, State.INPUT_REQUIRED)
        with pytest.raises(Conflict):
            await client.resolve(task.id, "input:Which city?", "Nara")
        done = await client.send("3", task=task)
        assert done.text == "3 days in Kyoto"
        with pytest.raises(TaskFinished):
            await client.resolve(task.id, "input:How many days?", "4")
        with pytest.raises(TaskNotFound):
            await client.resolve("no-such-task", "input:Which city?", "x")


async def test_of_two_answers_by_name_one_counts(harness: EngineHarness) -> None:
    async with harness.client(asker()) as client:
        task = await client.send("Kyoto")
        answers = await asyncio.gather(
            *(client.resolve(task.id, "input:How many days?", str(n)) for n in range(5)),
            return_exceptions=True,
        )
        # The others came too late: the question, or by then the task, was done with.
        assert sum(not isinstance(answer, Exception) for answer in answers) == 1
        assert all(
            isinstance(answer, Conflict | TaskFinished)
            for answer in answers
            if isinstance(answer, Exception)
        )
        assert (await ended(client, task.id)).text.endswith("days in Kyoto")


async def test_keys_and_numbers_name_questions() -> None:
    agent = Agent("Asker")

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        one = await turn.ask("Number?")
        two = await turn.ask("Number?")
        three = await turn.ask("Another number?", key="third")
        return f"{one}{two}{three}"

    async with Client(agent) as client:
        task = await client.send("hi")
        for question, answer in (
            ("input:Number?", "1"),
            ("input:Number?#2", "2"),
            ("input:third", "3"),
        ):
            assert (await row_of(client, task.id)).question == question
            await client.resolve(task.id, question, answer)
            await in_state(client, task.id, State.INPUT_REQUIRED, State.COMPLETED)
        assert (await ended(client, task.id)).text == "123"


async def test_questions_asked_together_are_asked_one_after_the_other() -> None:
    agent = Agent("Asker")

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        one, two = await asyncio.gather(turn.ask("One?"), turn.ask("Two?"))
        return f"{one}{two}"

    async with Client(agent) as client:
        task = await client.send("hi")
        task = await client.send("1", task=task)
        assert task.state is State.INPUT_REQUIRED
        task = await client.send("2", task=task)
        assert task.text == "12"
        await checked(client, task.id)


async def test_work_said_beside_a_question_leaves_it_open() -> None:
    agent, asked = Agent("Asker"), asyncio.Event()

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        async def busy() -> None:
            await asked.wait()
            await turn.say("still here")
            await turn.progress(0.5)

        answer, _ = await asyncio.gather(turn.ask("Well?"), busy())
        return answer

    async with Client(agent) as client:
        task = await client.send("hi")
        asked.set()
        await until(lambda: _has(client, task.id, "still here"))
        assert (await client.get(task.id)).state is State.INPUT_REQUIRED
        assert (await client.send("yes", task=task)).text == "yes"
        await checked(client, task.id)


async def _is(client: Client, task_id: str, state: State) -> bool:
    return (await row_of(client, task_id)).state is state


async def _has(client: Client, task_id: str, text: str) -> bool:
    task = await client.get(task_id)
    said = [m.text for m in task.history]
    return text in said or (task.status.message is not None and task.status.message.text == text)


# A message to a running task.


async def test_a_message_to_a_running_task_goes_to_history_and_the_next_ask(
    harness: EngineHarness,
) -> None:
    agent = Agent("Asker")
    go = asyncio.Event()

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        await go.wait()
        one = await turn.ask("One?")
        two = await turn.ask("Two?")
        return f"{one} {two}"

    async with harness.client(agent) as client:
        task = await client.send("hi", wait=False)
        task = await client.send("early", task=task, wait=False)
        assert task.state is State.WORKING
        assert [m.text for m in task.history] == ["hi", "early"]
        go.set()
        task = await in_state(client, task.id, State.INPUT_REQUIRED)
        assert task.status.message is not None
        assert task.status.message.text == "Two?"
        task = await client.send("late", task=task)
        assert task.text == "early late"
        assert story(await checked(client, task.id))[2:5] == [
            "working heard:early",
            "?input:Two?",
            "working heard:late",
        ]


async def test_a_message_that_crosses_with_the_question_answers_it(memory: EngineHarness) -> None:
    """It was said before the question could be seen, so it belongs to the next ask: this one."""
    agent = Agent("Asker")
    go = asyncio.Event()

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        await go.wait()
        return await turn.ask("Well?")

    store = Slow(memory.store())
    async with Client(agent, store=store) as client:
        task = await client.send("hi", wait=False)
        store.hold("inputs")
        async with background(client.send("crossing", task=task)) as sending:
            await until(lambda: store.waiting)
            go.set()
            await in_state(client, task.id, State.INPUT_REQUIRED)
            store.let_go()
            async with asyncio.timeout(60):
                done = await sending
        assert done.text == "crossing"
        await checked(client, task.id)


async def test_a_message_to_a_running_task_answers_no_approval(harness: EngineHarness) -> None:
    agent = Agent("Asker")
    go = asyncio.Event()

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        await go.wait()
        yes = await turn.approve("Delete all?")
        return f"{yes} {await turn.ask('Why?')}"

    async with harness.client(agent) as client:
        task = await client.send("hi", wait=False)
        await client.send("yes", task=task, wait=False)
        go.set()
        task = await in_state(client, task.id, State.INPUT_REQUIRED)
        assert task.status.message is not None
        assert task.status.message.text == "Delete all?"
        task = await client.send("no", task=task)
        assert task.text == "False yes"
        await checked(client, task.id)


async def test_words_that_come_as_a_task_ends_are_kept(memory: EngineHarness) -> None:
    """The end waits until all that was said is in history."""
    agent = Agent("Worker")
    go = asyncio.Event()

    @agent.skill("work")
    async def work(turn: Turn) -> str:
        await go.wait()
        return "done"

    store = Slow(memory.store())
    async with Client(agent, store=store) as client:
        task = await client.send("hi", wait=False)
        store.hold("inputs")
        async with background(client.send("wait!", task=task)) as sending:
            await until(lambda: store.waiting)
            go.set()
            await stays(lambda: _is(client, task.id, State.WORKING))
            store.let_go()
            done = await sending
        assert done.state is State.COMPLETED
        assert [m.text for m in done.history] == ["hi", "wait!"]
        assert story(await checked(client, task.id)) == [
            "opened",
            "working",
            "working heard:wait!",
            "=result:done!",
            "completed",
        ]


# Approvals.


def shop() -> Agent:
    agent = Agent("Shop")

    @agent.skill("order")
    async def order(turn: Turn) -> str:
        if not await turn.approve("Order?", details={"price": 30}):
            raise turn.reject("Not approved")
        return "ordered"

    return agent


YES = ["yes", "Yes!", "OK", "sure", "是", "好的", "同意", "可以。"]
NO = ["no", "NO.", "Deny", "否", "不行", "拒绝", "不同意！"]


@pytest.mark.parametrize("word", YES)
async def test_yes_is_yes(word: str) -> None:
    async with Client(shop()) as client:
        task = await client.send("tea")
        assert task.state is State.INPUT_REQUIRED
        assert (await client.send(word, task=task)).text == "ordered"


@pytest.mark.parametrize("word", NO)
async def test_no_is_no(word: str) -> None:
    async with Client(shop()) as client:
        task = await client.send("tea")
        done = await client.send(word, task=task)
        assert done.state is State.REJECTED
        assert done.status.message is not None
        assert done.status.message.text == "Not approved"
        assert done.artifacts == ()


@pytest.mark.parametrize(
    ("value", "state"),
    [
        ({"approved": True}, State.COMPLETED),
        ({"approved": False}, State.REJECTED),
        (True, State.COMPLETED),
        (False, State.REJECTED),
        ("yes", State.COMPLETED),
        ("不", State.REJECTED),
    ],
)
async def test_a_decision_may_be_data(value: object, state: State) -> None:
    async with Client(shop()) as client:
        task = await client.send("tea")
        assert task.status.message is not None
        await client.resolve(task.id, first_data(task.status.message.parts)["question"], value)
        assert (await ended(client, task.id)).state is state
        task = await client.send("tea")
        assert (await client.send(value, task=task)).state is state


@pytest.mark.parametrize("unsuitable", ["maybe", "yes please, but cheaper", {"approved": "yes"}, 1])
async def test_anything_else_asks_again(harness: EngineHarness, unsuitable: object) -> None:
    async with harness.client(shop()) as client:
        task = await client.send("tea")
        task = await client.send(unsuitable, task=task)
        assert task.state is State.INPUT_REQUIRED
        assert task.status.message is not None
        assert "yes or no" in task.status.message.text
        task = await client.send("hm", task=task)
        assert task.state is State.INPUT_REQUIRED
        assert (await client.send("yes", task=task)).text == "ordered"
        await checked(client, task.id)


async def test_an_approval_carries_its_details() -> None:
    async with Client(shop()) as client:
        events = await gathered(client.stream("tea"))
        asked = events[-1].event
        assert isinstance(asked, Asked)
        assert asked.kind is Ask.APPROVAL
        assert asked.body == {"price": 30}


async def test_silence_is_a_no(harness: EngineHarness) -> None:
    async with harness.client(shop(), waiting=3600) as client:
        task = await client.send("tea")
        await harness.later(client, 3599)
        await stays(lambda: _is(client, task.id, State.INPUT_REQUIRED))
        await harness.later(client, 2)
        done = await ended(client, task.id)
        assert done.state is State.REJECTED
        await checked(client, task.id)


async def test_an_approval_may_expire_sooner(memory: EngineHarness) -> None:
    agent = Agent("Shop")

    @agent.skill("order")
    async def order(turn: Turn) -> str:
        return str(await turn.approve("Order?", expires=60))

    async with memory.client(agent) as client:
        task = await client.send("tea")
        await memory.later(client, 61)
        assert (await ended(client, task.id)).text == "False"


# Waiting ends.


async def test_waiting_ends(harness: EngineHarness) -> None:
    async with harness.client(asker(), waiting=7 * 86_400.0, lease=86_400.0) as client:
        task = await client.send("")
        await harness.later(client, 7 * 86_400 + 1)
        done = await ended(client, task.id)
        assert done.state is State.FAILED
        last = (await checked(client, task.id))[-1].event
        assert isinstance(last, StateChanged)
        assert last.metadata == {"reason": "expired"}
        with pytest.raises(TaskFinished):
            await client.send("Kyoto", task=task)


async def test_waiting_ends_for_tasks_nobody_holds(harness: EngineHarness) -> None:
    client = harness.client(asker(), waiting=3600)
    await client.engine.start()
    task = await client.send("")
    client = await harness.restart(client, waiting=3600)
    assert (await client.get(task.id)).state is State.INPUT_REQUIRED
    await harness.later(client, 3600)
    assert (await ended(client, task.id)).state is State.FAILED
    await checked(client, task.id)
    await client.engine.stop(0)


async def test_an_answer_in_time_stops_the_clock(memory: EngineHarness) -> None:
    agent, go = Agent("Asker"), asyncio.Event()

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        answer = await turn.ask("Well?", expires=60)
        await go.wait()
        return answer

    async with memory.client(agent) as client:
        task = await client.send("")
        async with background(client.send("yes", task=task)) as sending:
            await in_state(client, task.id, State.WORKING)
            await memory.later(client, 100)
            await stays(lambda: not sending.done())
            go.set()
            assert (await sending).text == "yes"


@pytest.mark.parametrize("parked", [1, 0], ids=["held", "unheld"])
async def test_an_answer_in_the_last_moment_counts(memory: EngineHarness, parked: int) -> None:
    """The look for what waited too long saw the task just before its answer came."""
    agent, go = Agent("Asker"), asyncio.Event()

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        answer = await turn.ask("Well?")
        await go.wait()
        return answer

    async with memory.client(agent, waiting=100, max_parked=parked) as client:
        task = await client.send("go")
        await until(lambda: _parked_here(client, task.id, bool(parked)))
        memory.clock.skip(101)
        (late,) = await client.store.list_expired_tasks(agent.name, 10)
        if parked:
            await client.send("yes", task=task, wait=False)
        else:  # told by another process, which has not taken it up yet
            message = Message(message_id="m", role=Role.USER, parts=(Text("yes"),))
            await client.store.add_input(late.scope, task.id, Input(message=message), None)
        await expire(client.engine.runner, late)
        go.set()
        assert (await ended(client, task.id)).text == "yes"
        await checked(client, task.id)


async def _parked_here(client: Client, task_id: str, here: bool) -> bool:
    return bool((await row_of(client, task_id)).worker) is here


# Credentials.


async def test_words_that_came_sealed_as_a_task_ends_are_kept(tmp_path: Path) -> None:
    """Said while credentials were asked for, but after they were given: they are plain words."""
    agent = Agent("Bank")

    @agent.skill("pay")
    async def pay(turn: Turn) -> str:
        await turn.need_auth({"basic": {}}, {"bank": "B"})
        return "paid"

    store = Slow(EngineHarness(f"sqlite:///{tmp_path}/tasks.db").store())
    async with Client(agent, store=store) as client:
        task = await client.send("pay")
        store.hold_back("inputs")
        async with background(client.send(CANARY, task=task)) as first:
            await until(lambda: store.holds("inputs"))
            store.hold_back("add_input")
            async with background(client.send("and hurry", task=task)) as second:
                await until(lambda: store.holds("add_input"))
                store.let_go("inputs")
                done = await first
                store.let_go("add_input")
                await asyncio.wait([second], timeout=60)
        assert done.state is State.COMPLETED
        heard = {m.text for m in done.history if m.role is Role.USER}
        assert heard == {"pay", "[credentials]", "and hurry"}
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as db:
        kept = [Unpacker(Input)(body) for (body,) in db.execute("SELECT body FROM input")]
    assert not [said for said in kept if said.sealed]


def bank(calls: list[str]) -> Agent:
    agent = Agent("Bank")

    @agent.skill("pay")
    async def pay(turn: Turn) -> str:
        await turn.say("Looking up the account")
        password = await turn.need_auth({"basic": {}}, {"bank": "B"})
        calls.append(password)
        await turn.step("pay", lambda: "paid")
        return await turn.ask("Anything else?")

    return agent


@pytest.mark.parametrize("by_name", [False, True])
async def test_credentials_are_handed_over_and_kept_nowhere(
    durable: EngineHarness, tmp_path: Path, by_name: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    calls: list[str] = []
    client = durable.client(bank(calls))
    await client.engine.start()
    events = []

    async def follow() -> None:
        async for event in client.stream("pay"):
            assert isinstance(event, Stamped)
            events.append(event)

    async with background(follow()) as following:
        await until(lambda: events and isinstance(events[-1].event, Asked))
        asked = events[-1].event
        assert isinstance(asked, Asked)
        assert asked.kind is Ask.CREDENTIALS
        assert asked.body == {"schemes": {"basic": {}}, "details": {"bank": "B"}}
        task = await client.get(events[0].task_id)
        assert task.state is State.AUTH_REQUIRED
        if by_name:
            await client.resolve(task.id, asked.question, CANARY)
        else:
            await client.send(CANARY, task=task, metadata={"token": CANARY}, wait=False)
        await asyncio.wait([following])
    assert calls == [CANARY]
    task = await in_state(client, task.id, State.INPUT_REQUIRED)
    assert "[credentials]" in [m.text for m in task.history]
    assert CANARY not in repr(task)
    assert CANARY not in repr(events)
    assert CANARY not in repr(await checked(client, task.id))
    claim = (await row_of(client, task.id)).claim
    assert CANARY not in repr(await client.store.inputs(claim))
    assert CANARY not in repr(await client.store.records(claim))
    assert "credentials" in repr(await client.store.inputs(claim))
    await client.send("no", task=task)
    await client.engine.stop(0)
    assert CANARY not in caplog.text
    assert traces(tmp_path) == []


async def test_credentials_reach_the_store_sealed(durable: EngineHarness) -> None:
    calls: list[str] = []
    store = durable.store()
    client = client_of(bank(calls), store, durable.clock)
    kept: list[Input] = []
    tell = store.add_input

    async def told(scope: Scope, task_id: str, said: Input, question: str | None) -> Row:
        kept.append(said)
        return await tell(scope, task_id, said, question)

    store.add_input = told  # type: ignore[method-assign]
    async with client:
        task = await client.send("pay")
        await client.send(CANARY, task=task, metadata={"token": CANARY})
        assert calls == [CANARY]
    assert len(kept) == 1
    assert CANARY not in repr(kept)
    assert kept[0].sealed


async def test_credentials_sealed_with_another_key_are_asked_for_again(
    shared: EngineHarness,
) -> None:
    calls: list[str] = []
    one, two = shared.client(bank(calls)), shared.client(bank(calls))
    async with one, two:
        task = await one.send("pay")
        # Two processes of one server have the same key; these two have not.
        await two.send("nobody can read this", task=task, wait=False)

        async def heard() -> bool:
            row = await row_of(one, task.id)
            return row.inputs == row.heard == 1

        await until(heard, 60)
        assert (await one.get(task.id)).state is State.AUTH_REQUIRED
        assert calls == []
        await one.send(CANARY, task=task)
        assert calls == [CANARY]
        await one.send("no", task=task)
        await checked(one, task.id)


def traces(folder: Path) -> list[str]:
    """Files that still hold the canary."""
    return [
        path.name
        for path in folder.rglob("*")
        if path.is_file() and CANARY.encode() in path.read_bytes()
    ]


async def test_credentials_that_cross_with_a_cancel_are_not_kept(memory: EngineHarness) -> None:
    calls: list[str] = []
    store = Slow(memory.store())
    async with Client(bank(calls), store=store) as client:
        task = await client.send("pay")
        assert task.state is State.AUTH_REQUIRED
        store.hold("inputs")
        async with background(client.send(CANARY, task=task, wait=False)):
            await until(lambda: store.waiting)
            async with background(client.cancel(task.id)) as canceling:
                await stays(lambda: not canceling.done())
                store.let_go()
                done = await canceling
        assert done.state is State.CANCELED
        assert CANARY not in repr(done)
        assert CANARY not in repr(await checked(client, task.id))


async def test_credentials_are_asked_for_again_after_a_crash(harness: EngineHarness) -> None:
    """They are handed over once; a run that starts again has to ask again."""
    calls: list[str] = []
    client = harness.client(bank(calls))
    await client.engine.start()
    task = await client.send("pay")
    task = await client.send("one", task=task)
    assert task.state is State.INPUT_REQUIRED
    client = await harness.restart(client)
    task = await client.send("no", task=task)
    assert task.state is State.AUTH_REQUIRED
    task = await client.send("two", task=task)
    assert task.text == "no"
    assert calls == ["one", "two"]
    log = await checked(client, task.id)
    assert story(log).count("working say:Looking up the account") == 1
    await client.engine.stop(0)


async def test_an_auth_required_stream_stays_open() -> None:
    """Credentials may come out of band while the caller keeps listening (A2A 1.0 §7.6)."""
    calls: list[str] = []
    async with (
        Client(bank(calls)) as client,
        background(gathered(client.stream("pay"))) as streaming,
    ):
        await until(lambda: _one_waits(client))
        await stays(lambda: not streaming.done())
        (task,) = (await client.list()).tasks
        await client.send("pw", task=task, wait=False)
        assert story(await streaming)[-1] == "?input:Anything else?"


async def _one_waits(client: Client) -> bool:
    return (await client.list(state=State.AUTH_REQUIRED)).total == 1


# The clock.


async def test_waiting_does_not_count_as_running() -> None:
    agent = Agent("Asker")

    @agent.skill("ask", timeout=0.3)
    async def ask(turn: Turn) -> str:
        answer = await turn.ask("Well?")
        if answer == "hang":
            await forever()
        return answer

    async with Client(agent, settings=EngineSettings()) as client:
        task = await client.send("hi")
        hung = await client.send("hi")
        await asyncio.sleep(0.6)  # twice as long as it may run
        assert (await client.send("yes", task=task)).text == "yes"
        done = await client.send("hang", task=hung)
        assert done.state is State.FAILED
