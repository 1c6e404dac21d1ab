"""A caller that leaves while its message is being taken: what it has set going goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman import Agent, State, Turn
from engine.harness import EngineHarness, Slow, client_of, ended, log_of, until

LONG = 3600.0
"""The lease of a worker that finds what it forgot only in an hour."""


def desk() -> Agent:
    agent = Agent("Desk")

    @agent.skill("echo", on_crash="fail", default=True)
    async def echo(turn: Turn) -> str:
        return turn.text

    @agent.skill("reply", may_reply=True)
    async def reply(turn: Turn) -> str:
        await turn.say("A task, then.")
        return turn.text

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        return f"to {await turn.ask('Which city?')}"

    return agent


async def leave(call: Any, slow: Slow) -> None:
    """Makes a call and gives it up as soon as it is held up in the store."""
    calling = asyncio.ensure_future(call)
    await until(lambda: slow.waiting)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


@pytest.mark.parametrize("skill", ["echo", "reply"])
async def test_a_task_whose_caller_leaves_while_it_is_created_runs(
    memory: EngineHarness, skill: str
) -> None:
    slow = Slow(memory.store())
    async with client_of(desk(), slow, memory.clock, lease=LONG) as client:  # type: ignore[arg-type]
        slow.hold("create")
        await leave(client.send("hi", skill=skill, key="k1", message_id="m1"), slow)
        slow.let_go()
        task_id = (await client.send("hi", skill=skill, key="k1", message_id="m1")).id
        task = await ended(client, task_id)
        assert (task.state, task.text) == (State.COMPLETED, "hi")
        assert "attempt" not in str(await log_of(client, task.id)), "it was run again"


async def test_an_answer_whose_caller_leaves_while_it_is_taken_up_is_heard(
    memory: EngineHarness,
) -> None:
    slow = Slow(memory.store())
    async with client_of(desk(), slow, memory.clock, lease=LONG) as client:  # type: ignore[arg-type]
        task = await client.send("go", skill="ask")
        await client.engine.runner.give_back(client.engine.runner.runs[task.id])
        slow.hold_back("seize")
        await leave(client.send("Oslo", task=task), slow)
        slow.let_go()
        assert (await ended(client, task.id)).text == "to Oslo"


async def test_a_cancel_whose_caller_leaves_is_carried_out(memory: EngineHarness) -> None:
    slow = Slow(memory.store())
    async with client_of(desk(), slow, memory.clock, lease=LONG) as client:  # type: ignore[arg-type]
        task = await client.send("go", skill="ask")
        slow.hold_back("ask_cancel")
        await leave(client.cancel(task.id), slow)
        slow.let_go()
        assert (await ended(client, task.id)).state is State.CANCELED
