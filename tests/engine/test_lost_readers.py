"""Callers of a run that this process had to let go of: they hear its last words, and no error."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from dragoman import Agent, State, Turn
from dragoman.core.errors import Fenced
from dragoman.core.events import Asked, Stamped
from dragoman.engine.runs.run import Run
from dragoman.testing import Client
from engine.harness import EngineHarness, Slow, background, until


def asker(go_on: asyncio.Event) -> Agent:
    agent = Agent("Asker")

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        await turn.say("a moment")
        await go_on.wait()
        return await turn.ask("Which?")

    return agent


async def lost(client: Client, run: Run) -> None:
    """As when the process slept for longer than its lease."""
    run.lose(Fenced("This process was silent for too long"))


async def given_back(client: Client, run: Run) -> None:
    """As when too many tasks wait at once."""
    await client.engine.runner.give_back(run)


@pytest.mark.parametrize("let_go", [lost, given_back], ids=lambda how: how.__name__)
async def test_a_stream_ends_with_the_question_of_a_run_that_is_gone(
    harness: EngineHarness, let_go: object
) -> None:
    go_on = asyncio.Event()
    async with harness.client(asker(go_on)) as client:
        op, ctx = client._message(("go",), {})
        async with aclosing(client.engine.stream(op, ctx)) as batches:
            heard = list((await anext(batches)).entries)
            assert isinstance(heard[0], Stamped)
            run = client.engine.runner.runs[heard[0].task_id]
            go_on.set()
            await until(lambda: run.resting)
            await let_go(client, run)  # type: ignore[operator]  # one of the two above
            async with asyncio.timeout(60):
                async for batch in batches:
                    heard += batch.entries
        assert isinstance(heard[-1], Stamped)
        assert isinstance(heard[-1].event, Asked)
        assert [step.seq for step in heard if isinstance(step, Stamped)] == [1, 2, 3, 4]


async def test_an_answer_that_was_kept_is_no_error_when_the_run_is_lost_meanwhile(
    shared: EngineHarness,
) -> None:
    """The message is in the store: whoever holds the task now finds it there."""
    go_on = asyncio.Event()
    go_on.set()
    store = Slow(shared.store())
    async with Client(asker(go_on), store=store) as client:
        task = await client.send("go")
        assert task.state is State.INPUT_REQUIRED
        store.hold("inputs")
        async with background(client.send("this", task=task)) as sending:
            await until(lambda: store.waiting)
            row = await store.row(client.engine.runner.runs[task.id].writer.row.scope, task.id)
            await store.enlist("another", 60_000)
            taken = await store.seize("another", task.id, row.epoch)
            assert taken is not None
            store.let_go()
            await until(lambda: task.id not in client.engine.runner.runs)
            await store.retire("another")
            async with asyncio.timeout(60):
                done = await sending
        assert done.text == "this"
