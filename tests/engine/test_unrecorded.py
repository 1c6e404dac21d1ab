"""Answers that cannot be recorded: they hold up their own task and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman import Agent, Message, Role, State, Text, Turn
from dragoman.engine import maintenance
from dragoman.store.interface import Input
from engine.harness import EngineHarness, ended


def forms() -> Agent:
    """Asks for an approval or for words."""
    agent = Agent("Forms")

    @agent.skill("fill")
    async def fill(turn: Turn) -> str:
        if turn.text == "approve":
            return str(await turn.approve("May I?"))
        return await turn.ask("What?")

    return agent


@pytest.mark.slow  # takes two seconds
async def test_an_audit_log_that_cannot_be_written_keeps_no_other_task_from_expiring(
    harness: EngineHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "BATCH", 2)
    async with harness.client(forms(), waiting=3600) as client:
        stuck = [await client.send("approve") for _ in range(3)]
        harness.clock.skip(1)
        other = await client.send("ask")
        client.engine.runner.audit.path = tmp_path  # a folder
        await harness.later(client, 3601)
        assert (await ended(client, other.id, 60)).state is State.FAILED
        for task in stuck:
            assert (await client.get(task.id)).state is State.INPUT_REQUIRED
        client.engine.runner.audit.path = None
        for task in stuck:
            assert (await ended(client, task.id, 60)).text == "False"


async def test_a_run_that_cannot_hear_keeps_no_other_from_hearing(
    shared: EngineHarness, tmp_path: Path
) -> None:
    said = Message(message_id="m", role=Role.USER, parts=(Text("yes"),))
    async with shared.client(forms()) as client:
        stuck = await client.send("approve")
        others = [await client.send("ask") for _ in range(2)]
        work = client.engine._maintenance
        await work.stop()
        await work._peek()
        client.engine.runner.audit.path = tmp_path  # a folder
        elsewhere = shared.store()
        await elsewhere.open()
        scope = client.engine.runner.scope_of(client.context)
        for task in (stuck, *others):
            await elsewhere.add_input(scope, task.id, Input(message=said), None)
        await elsewhere.close()
        shared.clock.skip(1)  # PostgreSQL is looked at once in a second
        await work._peek()
        for task in others:
            assert (await ended(client, task.id, 60)).text == "yes"
        assert (await client.get(stuck.id)).state is State.INPUT_REQUIRED
        # What it could not hear it hears later, whether or not anything changes in the store.
        client.engine.runner.audit.path = None
        await work._reconcile()
        assert (await ended(client, stuck.id, 60)).text == "True"
