"""What a skill reads from its turn, and what its verbs refuse."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import Agent, Blob, Link, Message, Role, State, Task, Text, Turn
from dragoman.core.events import Ask, Asked
from dragoman.core.operations import SendMessage
from dragoman.core.peer import Context
from dragoman.engine import Engine, EngineSettings
from dragoman.testing import Client
from engine.harness import ended
from waiting import forever, turns


async def read(what: Any, *sent: object, **about: Any) -> Any:
    """What a skill finds in its turn for a message."""
    agent, found = Agent("Reader"), []

    @agent.skill("read")
    async def skill(turn: Turn) -> None:
        found.append(what(turn))

    async with Client(agent) as client:
        task = await client.send(*sent, **about)
        assert task.state is State.COMPLETED
    return found[0]


async def test_what_was_said() -> None:
    blob, link = Blob(b"x", filename="x"), Link("https://x.example/y")
    sent = ("one", {"n": 1}, blob, "two", link, {"n": 2})
    assert await read(lambda turn: turn.text, *sent) == "one\ntwo"
    assert await read(lambda turn: turn.data, *sent) == {"n": 1}
    assert await read(lambda turn: turn.files, *sent) == (blob, link)
    assert len(await read(lambda turn: turn.parts, *sent)) == 6
    assert await read(lambda turn: turn.data, "one") is None
    message = await read(lambda turn: turn.message, "hi", message_id="m-1")
    assert (message.message_id, message.role, message.text) == ("m-1", Role.USER, "hi")


async def test_who_and_where() -> None:
    agent, turns = Agent("Reader"), list[Turn]()

    @agent.skill("read")
    async def skill(turn: Turn) -> None:
        turns.append(turn)

    context = Context(
        tenant="t", principal="ann", extensions=("urn:x",), dialect="a2a-1.0", trace="00-abc"
    )
    async with Client(agent, context=context) as client:
        op, ctx = client._message(("hi",), {"context_id": "c", "metadata": {"a": 1, "b": 1}})
        op = replace(
            op,
            message=replace(op.message, references=("other-task",)),
            metadata={"b": 2},
            accepts=("text/plain",),
        )
        task = await client.engine.call(op, ctx)
        assert isinstance(task, Task)
    (turn,) = turns
    assert turn.task_id == task.id
    assert turn.context_id == "c"
    assert turn.skill == "read"
    assert turn.attempt == 1
    assert not turn.cancelled
    assert turn.metadata == {"a": 1, "b": 2}
    assert turn.accepts == ("text/plain",)
    assert turn.references == ("other-task",)
    assert turn.extensions == ("urn:x",)
    assert turn.context == ()
    assert (turn.caller.principal, turn.caller.tenant) == ("ann", "t")
    assert turn.key("pay") == f"{task.id}:pay"
    assert [m.text for m in turn.history] == ["hi"]


async def end_of(agent: Agent, **context: Any) -> tuple[State, str]:
    async with Client(agent, context=Context(**context)) as client:
        task = await client.send("go")
        assert task.status.message is not None
        return task.state, task.status.message.text


async def test_tools_nobody_offered_are_a_clear_error() -> None:
    agent = Agent("Caller")

    @agent.skill("call")
    async def call(turn: Turn) -> None:
        await turn.call_tool("weather", city="Kyoto")

    state, text = await end_of(agent)
    assert state is State.FAILED
    assert "no tool `weather`" in text
    assert "offered: none" in text
    assert "clock, map" in (await end_of(agent, tools=("clock", "map")))[1]


async def test_a_tool_of_the_caller_is_a_question() -> None:
    agent = Agent("Caller")

    @agent.skill("call")
    async def call(turn: Turn) -> dict[str, object]:
        return {"found": await turn.call_tool("weather", city="Kyoto")}

    async with Client(agent, context=Context(tools=("weather",))) as client:
        events = [event async for event in client.stream("go")]
        asked = events[-1].event  # type: ignore[union-attr]
        assert isinstance(asked, Asked)
        assert (asked.kind, asked.body) == (Ask.TOOL, {"city": "Kyoto"})
        task_id = events[0].task_id  # type: ignore[union-attr]
        await client.resolve(task_id, asked.question, {"sky": "blue"})
        task = await ended(client, task_id)
        assert task.artifacts[0].parts[0].value == {"found": {"sky": "blue"}}  # type: ignore[union-attr]


async def test_other_agents_need_a_way_to_them() -> None:
    agent = Agent("Caller")

    @agent.skill("call")
    async def call(turn: Turn) -> None:
        turn.agent("https://other.example")

    client = Client(agent)
    client.engine = Engine(agent, client.store)  # as one that only serves may be made
    async with client:
        task = await client.send("go")
    assert task.state is State.FAILED
    assert task.status.message is not None
    assert "without a way to other agents" in task.status.message.text


async def test_there_is_no_workspace_without_a_dialect_that_gives_one() -> None:
    agent = Agent("Caller")

    @agent.skill("call")
    async def call(turn: Turn) -> None:
        turn.workspace  # noqa: B018

    state, text = await end_of(agent)
    assert state is State.FAILED
    assert "workspace" in text


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
async def test_progress_is_from_0_to_1(fraction: float) -> None:
    agent = Agent("Worker")

    @agent.skill("work")
    async def work(turn: Turn) -> None:
        await turn.progress(fraction)

    state, text = await end_of(agent)
    assert state is State.FAILED
    assert "from 0 to 1" in text


async def test_a_message_may_have_several_parts_and_metadata() -> None:
    agent = Agent("Sayer")

    @agent.skill("say")
    async def say(turn: Turn) -> None:
        await turn.say("look", {"n": 1}, b"x", metadata={"mood": "good"})
        await turn.say()

    async with Client(agent) as client:
        task = await client.send("go")
        said = task.history[1]
        assert [type(part).__name__ for part in said.parts] == ["Text", "Data", "Blob"]
        assert said.metadata == {"mood": "good"}
        assert (said.role, said.task_id, said.context_id) == (
            Role.AGENT,
            task.id,
            task.context_id,
        )
        assert task.history[2].parts == (Text(""),)


async def test_verbs_that_are_not_awaited_are_noticed(recwarn: pytest.WarningsRecorder) -> None:
    """All verbs are coroutines, so Python itself tells who forgot an `await`."""
    agent = Agent("Hasty")

    @agent.skill("say")
    async def say(turn: Turn) -> str:
        turn.say("hello")  # type: ignore[unused-coroutine]
        return "done"

    async with Client(agent) as client:
        task = await client.send("go")
        assert [m.text for m in task.history] == ["go"]
    assert "never awaited" in str(recwarn.pop(RuntimeWarning).message)


# Direct replies.


def host(**about: Any) -> Agent:
    agent = Agent("Host")

    @agent.skill("greet", may_reply=True, **about)
    async def greet(turn: Turn) -> str:
        if turn.text == "think":
            await turn.conversation()
            await turns(10)
        if turn.text in ("say", "work"):
            await turn.say("one moment")
        if turn.text == "step":
            await turn.step("look up", lambda: None)
        if turn.text == "wait":
            await forever()
        if turn.text == "fail":
            raise turn.fail("No")
        if turn.text != "work":
            await turn.reply(f"Hello to {turn.text}", {"n": 1})
        return "worked"

    return agent


async def test_a_direct_reply_makes_no_task() -> None:
    async with Client(host()) as client:
        for text in ("Ada", "think"):
            reply = await client.ask(text)
            assert isinstance(reply, Message)
            assert reply.text == f"Hello to {text}"
            assert (reply.role, reply.task_id) == (Role.AGENT, "")
            assert reply.context_id
        streamed = [event async for event in client.stream("Ada")]
        assert len(streamed) == 1
        assert isinstance(streamed[0], Message)
        assert (await client.list()).total == 0
        assert not client.engine.runner.runs
        with pytest.raises(AssertionError, match="without a task"):
            await client.send("Ada")


@pytest.mark.parametrize("text", ["say", "step"])
async def test_once_the_task_is_open_a_reply_completes_it(text: str) -> None:
    async with Client(host()) as client:
        task = await client.send(text)
        assert task.state is State.COMPLETED
        assert task.status.message is not None
        assert task.status.message.text == f"Hello to {text}"
        assert task.artifacts == ()
        streamed = [event async for event in client.stream(text)]
        assert not any(isinstance(event, Message) for event in streamed)
        assert (await client.list()).total == 2


async def test_a_caller_that_does_not_wait_gets_a_task() -> None:
    async with Client(host()) as client:
        task = await client.send("Ada", wait=False)
        task = await ended(client, task.id)
        assert task.status.message is not None
        assert task.status.message.text == "Hello to Ada"


async def test_without_a_reply_it_is_a_task_like_any_other() -> None:
    async with Client(host()) as client:
        assert (await client.send("work")).text == "worked"
        assert (await client.send("fail")).state is State.FAILED


async def test_who_thinks_too_long_gets_a_task() -> None:
    async with Client(host(), settings=EngineSettings(max_wait=0.1)) as client:
        task = await client.send("wait")
        assert task.state is State.WORKING
        assert (await client.cancel(task.id)).state is State.CANCELED


async def test_a_reply_needs_leave() -> None:
    agent = Agent("Host")

    @agent.skill("greet")
    async def greet(turn: Turn) -> None:
        await turn.reply("Hello")

    state, text = await end_of(agent)
    assert state is State.FAILED
    assert "may_reply=True" in text


async def test_a_keyed_direct_reply_may_be_asked_for_again() -> None:
    """No task was opened, so there is none to find again: the skill simply replies once more."""
    async with Client(host()) as client:
        first = await client.ask("Ada", key="k", message_id="m")
        again = await client.ask("Ada", key="k", message_id="m")
        assert isinstance(first, Message)
        assert isinstance(again, Message)
        assert first.text == again.text


async def test_a_keyed_task_of_a_skill_that_may_reply_is_opened_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The repeat begins to run, since it might reply; it is stopped before it does anything."""
    agent, steps = Agent("Host"), list[int]()

    @agent.skill("greet", may_reply=True)
    async def greet(turn: Turn) -> str:
        await turn.step("pay", steps.append, 1)
        return "paid"

    async with Client(agent) as client:
        one = await client.send("go", key="k", message_id="m")
        two = await client.send("go", key="k", message_id="m")
        assert one.id == two.id
        assert steps == [1]
        assert (await client.list()).total == 1
    assert "crashed" not in caplog.text


def test_an_operation_says_what_it_wants() -> None:
    message = Message(message_id="m", role=Role.USER, parts=(Text("hi"),))
    assert SendMessage(message=message).wait
