"""`kill -9` of a gateway: tasks elsewhere are followed again, and no message is executed twice."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dragoman import Agent, State, Task, Turn, connect
from dragoman.testing.served import served
from gateway.behind import section, settings
from gateway.liar import lying, task
from ports import own_port
from waiting import forever, until

pytestmark = pytest.mark.slow  # starts processes
LIMIT = 240.0


@asynccontextmanager
async def running(
    home: Path, url: str, port: int, more: str = ""
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`dragoman gateway` with one agent, and more lines in its section; killed when the block
    ends."""
    (home / "dragoman.toml").write_text(
        f'[server]\nstore = "sqlite:///{home}/tasks.db"\nport = {port}\n'
        f'[agents.far]\nurl = "{url}"\n{more}\n'
    )
    environ = {k: v for k, v in os.environ.items() if not k.startswith("DRAGOMAN_")}
    with (home / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dragoman", "gateway"),
            cwd=home,
            env=environ,
            stdout=log,
            stderr=log,
        )
    try:
        await until(lambda: _ready(port))
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _ready(port: int) -> bool:
    async with httpx2.AsyncClient() as client:
        try:
            return (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200
        except httpx2.TransportError:
            return False


@pytest.mark.parametrize("dialect", ["a2a-1.0", "iat", "iat-ws"])
async def test_the_task_elsewhere_is_followed_again(tmp_path: Path, dialect: str) -> None:
    did: list[str] = []
    free = asyncio.Event()
    agent = Agent("Worker")

    @agent.skill("work")
    async def work(turn: Turn) -> AsyncIterator[str]:
        did.append(turn.text)
        yield "half "
        await free.wait()
        yield "whole"

    port = own_port()
    near = f"http://127.0.0.1:{port}"
    async with (
        asyncio.timeout(LIMIT),
        served(agent, settings(tmp_path, name="worker")) as url,
    ):
        about = section(tmp_path, url, dialect)
        secret = f'secret = {{ file = "{tmp_path}/secret" }}\nagent_id = "worker"'
        far = tmp_path, about["url"], port, secret if "secret" in about else ""
        async with running(*far), connect(near) as caller:
            opened = await caller.send("go", wait=False)
            assert isinstance(opened, Task)
            await until(lambda: _has(caller, opened, "half "))
        async with running(*far), connect(near) as caller:
            free.set()

            async def ended() -> Task | None:
                found = await caller.get(opened)
                return found if found.state is not State.WORKING else None

            found = await until(ended)
            assert (found.state, found.text) == (State.COMPLETED, "half whole")
    assert did == ["go"]


async def _has(caller: Any, opened: Task, text: str) -> bool:
    found: Task = await caller.get(opened)
    return found.text == text


async def test_what_nobody_can_know_is_said_so(tmp_path: Path) -> None:
    async def script(method: str, params: dict[str, Any]) -> AsyncIterator[Any]:
        await forever()
        yield task()

    port = own_port()
    async with asyncio.timeout(LIMIT), lying(script) as liar:
        async with (
            running(tmp_path, liar.url, port),
            connect(f"http://127.0.0.1:{port}") as caller,
        ):
            opened = await caller.send("go", wait=False)
            assert isinstance(opened, Task)
            await until(lambda: liar.count("SendStreamingMessage"))
        async with (
            running(tmp_path, liar.url, port),
            connect(f"http://127.0.0.1:{port}") as caller,
        ):

            async def ended() -> Task | None:
                found = await caller.get(opened)
                return found if found.state is State.FAILED else None

            found = await until(ended)
            assert found.status.message.metadata["reason"] == "unknown_outcome"
    assert liar.count("SendStreamingMessage") == 1


WORKER = """
import asyncio, os
from dragoman import Agent, Turn

agent = Agent("Worker")

@agent.skill("work", on_crash="fail")
async def work(turn: Turn):
    with open("did", "a") as did:
        did.write(turn.text + "\\n")
    for number in range(20):
        yield f"{turn.text}.{number} "
        await asyncio.sleep(0.1)  # its work
"""


@asynccontextmanager
async def serving(home: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """`dragoman serve` of the worker; killed when the block ends."""
    (home / "worker.py").write_text(WORKER)
    command = ("serve", "worker.py", "--port", str(port), "--store", f"sqlite:///{home}/far.db")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("DRAGOMAN_")}
    with (home / "far.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dragoman", *command),
            cwd=home,
            env=environ,
            stdout=log,
            stderr=log,
        )
    try:
        await until(lambda: _ready(port))
        yield process
    finally:
        process.kill()
        await process.wait()


KILLS = 20 if os.environ.get("DRAGOMAN_FULL") else 2
"""Of the gateway, and of the agent behind it."""


async def test_every_task_ends_and_none_is_executed_twice(tmp_path: Path) -> None:
    here, there = own_port(), own_port()
    far, near = f"http://127.0.0.1:{there}", f"http://127.0.0.1:{here}"
    opened: list[Task] = []
    async with asyncio.timeout(1200 if KILLS > 2 else LIMIT):

        async def begin(caller: Any, many: int = 4) -> None:
            for _ in range(many):
                task = await caller.send(str(len(opened)), wait=False)
                assert isinstance(task, Task)
                opened.append(task)
            await until(lambda: _begun(caller, opened[-1]))

        async with serving(tmp_path, there):
            for _ in range(KILLS):
                async with running(tmp_path, far, here), connect(near) as caller:
                    await begin(caller)
        for _ in range(KILLS):
            async with (
                serving(tmp_path, there),
                running(tmp_path, far, here),
                connect(near) as caller,
            ):
                await begin(caller)
        async with serving(tmp_path, there), running(tmp_path, far, here), connect(near) as caller:
            await begin(caller)
            for number, task in enumerate(opened):
                found = await until(lambda task=task: _final(caller, task))
                told = [entry async for entry in caller.watch(task, 0)]
                assert [entry.seq for entry in told] == list(range(1, len(told) + 1))
                rest = [entry async for entry in caller.watch(task, 3)]
                assert rest == told[3:]
                if found.state is State.COMPLETED:
                    assert found.text == "".join(f"{number}.{n} " for n in range(20))
                else:
                    reason = found.status.message.metadata["reason"]
                    assert reason in ("worker_lost", "unknown_outcome", "unreachable"), reason
            states = [(await caller.get(task)).state for task in opened]
            assert states.count(State.COMPLETED) > KILLS
    did = (tmp_path / "did").read_text().split()
    assert sorted(did) == sorted(set(did))


async def _begun(caller: Any, task: Task) -> bool:
    found: Task = await caller.get(task)
    return found.state is not State.SUBMITTED and (bool(found.text) or found.state is State.FAILED)


async def _final(caller: Any, task: Task) -> Task | None:
    found: Task = await caller.get(task)
    return found if found.state in (State.COMPLETED, State.FAILED) else None
