"""A task that follows a task elsewhere, whatever the dialect of the other agent can say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman import Agent, Message, State, Task, Turn, connect
from dragoman.core.events import Asked, Stamped
from dragoman.core.operations import CancelTask, GetTask
from dragoman.core.peer import Context, Peer
from dragoman.iat import Host
from dragoman.iat.host import OPERATOR
from dragoman.testing.served import served
from iat.team import settings

NUMBERED = ("a2a-1.0", "a2a-1.0-rest", "a2a-0.3")
UNNUMBERED = ("a2a-0.1", "a2a-go")
"""Their streams carry no numbers from which one could go on."""


def teller() -> Agent:
    agent = Agent("Teller")

    @agent.skill("tell")
    async def tell(turn: Turn) -> AsyncIterator[str]:
        await turn.say("Let me think.")
        yield "one "
        yield "two "
        city = await turn.ask("Which city?")
        yield f"in {city}"

    return agent


@pytest.mark.parametrize("dialect", [*NUMBERED, *UNNUMBERED])
async def test_all_of_it_arrives_in_every_dialect(tmp_path: Path, dialect: str) -> None:
    host = Host("engine")
    async with (
        served(teller()) as far,
        connect(far, dialect=dialect) as agent,
        served(host, settings(tmp_path, "engine")),
    ):
        host.add("teller", agent)
        task_id, asked = "", []
        async with asyncio.timeout(120):
            async for batch in host.execute("go"):
                for entry in batch.entries:
                    assert isinstance(entry, Stamped)
                    task_id = entry.task_id
                    if isinstance(entry.event, Asked):
                        asked.append(entry.event.message.text)
                        waiting = await _engine(host).call(GetTask(task_id=task_id), OPERATOR)
                        assert waiting.text == "one two "
                        await host.answer(task_id, entry.event.question, "Rome")
        assert asked == ["Which city?"]
        task = await _engine(host).call(GetTask(task_id=task_id), OPERATOR)
        assert task.state is State.COMPLETED, task.status
        assert task.text == "one two in Rome"
        assert any("Let me think." in said.text for said in task.history)


@pytest.mark.parametrize("dialect", NUMBERED)
async def test_the_answer_to_a_question_does_not_wait_for_what_comes_of_it(dialect: str) -> None:
    agent, answered, released = Agent("Asker"), asyncio.Event(), asyncio.Event()

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        said = await turn.ask("Which city?")
        answered.set()
        await released.wait()
        return said

    async with served(agent) as url, connect(url, dialect=dialect) as caller:
        task = await caller.send("go")
        assert isinstance(task, Task)
        async with asyncio.timeout(60):
            told = await caller.resolve(task, "input:Which city?", "Rome")
            assert told.id == task.id
            await answered.wait()
            released.set()
            async for _ in caller.watch(task):
                pass
        assert (await caller.get(task)).text == "Rome"


@pytest.mark.slow  # takes three seconds
async def test_a_cancel_after_a_restart_reaches_the_other_agent(tmp_path: Path) -> None:
    started, canceled = asyncio.Event(), asyncio.Event()
    worker = Agent("Worker")

    @worker.skill("slow")
    async def slow(turn: Turn) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            canceled.set()
        return "never"

    own = settings(tmp_path, "engine", memory=False)
    async with asyncio.timeout(120), served(worker, settings(tmp_path, "worker")) as far:
        host = Host("engine", agents=[f"worker={far}"])
        async with served(host, own):
            first = await anext(host.execute("go"))
            await started.wait()
        (opened, *_) = first.entries
        assert not isinstance(opened, Message)
        assert not canceled.is_set()
        host = Host("engine", agents=[f"worker={far}"])
        async with served(host, own):
            await host.find("worker")
            task = await _engine(host).call(CancelTask(task_id=opened.task_id), OPERATOR)
            assert task.state is State.CANCELED
            await canceled.wait()


async def test_the_time_that_is_left_goes_along(tmp_path: Path) -> None:
    callers: list[Context] = []
    worker = Agent("Worker")

    @worker.skill("look")
    async def look(turn: Turn) -> str:
        callers.append(turn.caller)
        return "seen"

    host = Host("engine")
    async with (
        served(worker) as far,
        connect(far) as agent,
        served(host, settings(tmp_path, "engine")) as url,
        connect(url) as client,
    ):
        host.add("worker", agent)
        near = client.bearing(deadline=20.0)
        task = await near.send("go")
        assert isinstance(task, Task)
        assert task.text == "seen", task.status
    (seen,) = callers
    assert seen.deadline is not None
    assert 10 < seen.deadline <= 20


def _engine(host: Host) -> Peer:
    assert host.peer is not None
    return host.peer
