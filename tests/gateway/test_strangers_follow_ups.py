"""Follow-ups carry the context of their task: a2a-sdk 1.3.0 fails a task without it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman import Agent, State, Task, Turn, connect
from dragoman.testing.served import served
from gateway.behind import gateway, settings
from gateway.desks import DIALECTS, Desk, PlainCaller, desk, words

pytestmark = pytest.mark.slow  # starts processes
STOPS = ("Rome", "Oslo", "done")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """An agent on a2a-sdk 1.3.0."""
    with desk(tmp_path_factory.mktemp("desk")) as found:
        yield found


@pytest.mark.parametrize("by_id", [False, True], ids=["task", "id"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_our_client_names_the_context(stranger: Desk, dialect: str, by_id: bool) -> None:
    async with (
        asyncio.timeout(240),
        connect(stranger.url, dialect=dialect, origins=stranger.origins) as caller,
    ):
        task = await caller.send("trip")
        for stop in STOPS:
            assert task.state is State.INPUT_REQUIRED, task.status
            task = await caller.send(stop, task=task.id if by_id else task)
        assert (task.state, task.text) == (State.COMPLETED, "Rome, Oslo")


async def test_an_answer_by_the_name_of_its_question_names_the_context(stranger: Desk) -> None:
    async with asyncio.timeout(240), connect(stranger.url) as caller:
        task = await caller.send("trip")
        for stop in STOPS:
            task = await caller.answer(task, stop, question="whatever")
            while task.state not in (State.INPUT_REQUIRED, State.COMPLETED):
                assert task.state is State.WORKING or task.state is State.SUBMITTED, task.status
                task = await caller.get(task)
        assert task.text == "Rome, Oslo"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_answers_through_a_gateway_name_the_context(
    tmp_path: Path, stranger: Desk, dialect: str
) -> None:
    sections = {"desk": stranger.section(dialect)}
    async with (
        asyncio.timeout(240),
        gateway(sections, settings(tmp_path)) as door,
        PlainCaller(door.at("desk")) as caller,
    ):
        task = (await caller.send("trip"))["task"]
        for stop in STOPS:
            assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", task["status"]
            task = (await caller.send(stop, taskId=task["id"]))["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task["status"]
        assert words(task["artifacts"][0]) == "Rome, Oslo"


async def test_an_agent_that_calls_another_names_the_context(
    tmp_path: Path, stranger: Desk
) -> None:
    boss = Agent("Boss")

    @boss.skill("plan")
    async def plan(turn: Turn) -> str:
        desk = turn.agent(stranger.url)
        task: Task | str = await desk.send("trip")
        for stop in STOPS:
            found = await desk.answer(task, stop)
            task = found.id
        return found.text

    async with (
        asyncio.timeout(240),
        served(boss, settings(tmp_path)) as url,
        connect(url) as caller,
    ):
        assert (await caller.send("go")).text == "Rome, Oslo"
