"""A run that was canceled leaves memory when it has ended, not when its grace period would have."""

from __future__ import annotations

import asyncio
import gc
import weakref

from dragoman import Agent, Turn
from dragoman.core.model import Message, Role, State, Text
from dragoman.core.operations import CancelTask, SendMessage
from dragoman.core.peer import Context
from dragoman.engine import Engine
from dragoman.store import open_store
from waiting import until

ALICE = Context(principal="alice", dialect="a2a-1.0")


async def test_a_canceled_run_is_dropped_before_its_grace_period_is_over() -> None:
    agent = Agent("Desk", description="Works for long.")

    @agent.skill("work", cancel_grace=3600.0)
    async def work(turn: Turn) -> None:
        await turn.say("x" * 1_000_000)
        await asyncio.Event().wait()

    engine = Engine(agent, open_store("memory:"))
    await engine.start()
    try:
        hello = Message(message_id="m", role=Role.USER, parts=(Text("go"),))
        task = await engine.call(SendMessage(message=hello, wait=False), ALICE)
        run = weakref.ref(engine.runner.runs[task.id])
        canceled = await engine.call(CancelTask(task_id=task.id), ALICE)
        assert canceled.status.state is State.CANCELED

        def gone() -> bool:
            gc.collect()
            return run() is None

        await until(gone)
    finally:
        await engine.stop(0)
