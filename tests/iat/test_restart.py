"""`kill -9` of a gateway: the tasks of IAT agents behind it go on, and no work is done twice."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman import State, Task, connect
from dragoman.core.lifecycle import FINAL
from gateway.test_kill import running as gateway_running
from iat.keeping_stranger import KeepingStranger, KeptTask
from iat.stranger import running
from ports import own_port
from waiting import until

pytestmark = pytest.mark.slow  # starts processes
LIMIT = 240.0


async def ended(caller: Any, task: Task) -> Task:
    """The task when it is over."""

    async def look() -> Task | None:
        found: Task = await caller.get(task)
        return found if found.state in FINAL else None

    return await until(look)


async def test_a_running_task_goes_on_after_the_gateway_was_killed(tmp_path: Path) -> None:
    free = threading.Event()

    def job(task: KeptTask, say: Callable[[str], None]) -> None:
        say("half ")
        free.wait(LIMIT)
        say("whole")

    port = own_port()
    near = f"http://127.0.0.1:{port}"
    with running(KeepingStranger(job)) as agent:
        url = f"iat+{agent.url}"
        async with asyncio.timeout(LIMIT):
            async with gateway_running(tmp_path, url, port), connect(near) as caller:
                opened = await caller.send("go", wait=False)
                assert isinstance(opened, Task)

                async def half() -> bool:
                    found: Task = await caller.get(opened)
                    return found.text == "half "

                await until(half)
            async with gateway_running(tmp_path, url, port), connect(near) as caller:
                free.set()
                found = await ended(caller, opened)
    assert (found.state, found.text) == (State.COMPLETED, "half whole"), found.status
    assert len(agent.tasks) == 1
    assert len(agent.names) == 1, "the gateway has one name for this agent"


async def test_a_kill_at_the_acknowledgement_does_not_run_the_work_twice(tmp_path: Path) -> None:
    kill: list[Callable[[], None]] = []
    killed = threading.Event()

    def job(task: KeptTask, say: Callable[[str], None]) -> None:
        killed.wait(LIMIT)
        say("done once")

    def at_the_answer(task: KeptTask) -> None:
        if kill:
            kill.pop()()
            killed.set()

    port = own_port()
    near = f"http://127.0.0.1:{port}"
    with running(KeepingStranger(job)) as agent:
        agent.before_answer = at_the_answer
        url = f"iat+{agent.url}"
        async with asyncio.timeout(LIMIT):
            async with gateway_running(tmp_path, url, port) as process, connect(near) as caller:
                kill.append(lambda: os.kill(process.pid, signal.SIGKILL))
                opened = await caller.send("go", wait=False)
                assert isinstance(opened, Task)
                await until(killed.is_set)
            async with gateway_running(tmp_path, url, port), connect(near) as caller:
                found = await ended(caller, opened)
    assert (found.state, found.text) == (State.COMPLETED, "done once"), found.status
    assert len(agent.tasks) == 1
    assert len(agent.names) == 1
