"""A cancel reaches the agent elsewhere whenever it comes, also after a restart of
the gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, State, Task, Turn, connect
from dragoman.client.agent import RemoteAgent
from gateway.behind import gateway, section, settings
from gateway.faulty import Door, door_to
from waiting import until


class Endless:
    """An agent that works until it is canceled, and what became of its work."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.stopped = asyncio.Event()
        self.door: Door | None = None
        """The door that is shut as soon as the work begins, so that nobody hears of it."""
        self.agent = Agent("Endless")
        self.agent.skill("work")(self._work)

    async def _work(self, turn: Turn) -> None:
        if self.door is not None:
            self.door.flows.clear()
        self.begun.append(turn.task_id)
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()


async def test_a_cancel_before_the_agent_has_answered_reaches_its_task(tmp_path: Path) -> None:
    endless = Endless()
    async with asyncio.timeout(240), door_to(tmp_path, endless.agent) as door:
        endless.door = door
        sections = {"worker": section(tmp_path, door.url, "a2a-1.0")}
        async with gateway(sections, settings(tmp_path)) as front, connect(front.url) as caller:
            task = await _begun(caller, endless)
            canceling = asyncio.create_task(caller.cancel(task))
            await asyncio.wait((canceling,), timeout=0.5)  # so that the cancel is there first
            door.flows.set()
            assert (await canceling).state is State.CANCELED
            await endless.stopped.wait()


@pytest.mark.slow  # takes several seconds
async def test_a_cancel_whose_gateway_dies_before_the_agent_answers_reaches_its_task(
    tmp_path: Path,
) -> None:
    endless = Endless()
    own = settings(tmp_path, store=f"sqlite:///{tmp_path / 'gateway.db'}")
    async with asyncio.timeout(240), door_to(tmp_path, endless.agent) as door:
        endless.door = door
        sections = {"worker": section(tmp_path, door.url, "a2a-1.0")}
        async with gateway(sections, own) as front, connect(front.url) as caller:
            task = await _begun(caller, endless)
            canceling = asyncio.create_task(_ignored(caller.cancel(task)))
            await asyncio.wait((canceling,), timeout=0.5)  # so that the cancel is there first
        await canceling
        await door.close()  # the first gateway never hears of the task
        assert not endless.stopped.is_set()
        endless.door = None
        door.flows.set()
        await door.open()
        async with gateway(sections, own) as front, connect(front.url) as caller:
            await endless.stopped.wait()
            await until(lambda: _is(caller, task, State.CANCELED))
        assert len(endless.begun) == 1


@pytest.mark.slow  # takes several seconds
async def test_a_task_that_was_sent_before_a_crash_can_be_canceled_after_it(
    tmp_path: Path,
) -> None:
    endless = Endless()
    own = settings(tmp_path, store=f"sqlite:///{tmp_path / 'gateway.db'}")
    async with asyncio.timeout(240), door_to(tmp_path, endless.agent) as door:
        endless.door = door
        sections = {"worker": section(tmp_path, door.url, "a2a-1.0")}
        async with gateway(sections, own) as front, connect(front.url) as caller:
            task = await _begun(caller, endless)
        await door.close()
        endless.door = None
        async with gateway(sections, own, wait=False) as front, connect(front.url) as caller:
            canceling = asyncio.create_task(caller.cancel(task))
            await asyncio.wait((canceling,), timeout=0.5)  # while the agent is away
            door.flows.set()
            await door.open()
            assert (await canceling).state is State.CANCELED
            await endless.stopped.wait()
        assert len(endless.begun) == 1


async def _begun(caller: RemoteAgent, endless: Endless) -> Task:
    task = await caller.send("go", wait=False)
    assert isinstance(task, Task)
    await until(lambda: endless.begun)
    return task


async def _ignored(call: Any) -> None:
    await asyncio.gather(call, return_exceptions=True)


async def _is(caller: RemoteAgent, task: Task, state: State) -> bool:
    return (await caller.get(task)).state is state
