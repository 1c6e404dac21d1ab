"""The agent of the crash tests. It leaves a line in `CRASH_LEDGER`.executions for every execution:
the call of which caller, in which task of ours, in which attempt."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dragoman import Turn
from dragoman.agent import Shape

sys.path.insert(0, str(Path(__file__).parent.parent))

from crash.agent import agent


def recorded(function: Callable[[Turn], Any], shape: Shape) -> Callable[[Turn], Any]:
    async def coroutine(turn: Turn) -> Any:
        note(turn)
        return await function(turn)

    async def chunks(turn: Turn) -> AsyncIterator[Any]:
        note(turn)
        async with aclosing(function(turn)) as pieces:
            async for piece in pieces:
                yield piece

    return coroutine if shape is Shape.COROUTINE else chunks


def note(turn: Turn) -> None:
    call = (turn.message.metadata or {})["call"]
    path = os.environ["CRASH_LEDGER"] + ".executions"
    ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(ledger, f"{call} {turn.task_id} {turn.attempt}\n".encode())
    finally:
        os.close(ledger)


for name, skill in agent.skills.items():
    agent.skills[name] = replace(skill, function=recorded(skill.function, skill.shape))
