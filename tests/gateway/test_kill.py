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
from gateway.liar import lying, task
from ports import own_port
from waiting import forever, until

pytestmark = pytest.mark.slow  # starts processes
LIMIT = 240.0


@asynccontextmanager
async def running(home: Path, url: str, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """`dragoman gateway` with one agent; killed when the block ends."""
    (home / "dragoman.toml").write_text(
        f'[server]\nstore = "sqlite:///{home}/tasks.db"\nport = {port}\n'
        f'[agents.far]\nurl = "{url}"\n'
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
        process.kill()
        await process.wait()


async def _ready(port: int) -> bool:
    async with httpx2.AsyncClient() as client:
        try:
            return (await client.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200
        except httpx2.TransportError:
            return False


async def test_the_task_elsewhere_is_followed_again(tmp_path: Path) -> None:
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
    async with asyncio.timeout(LIMIT), served(agent) as url:
        async with running(tmp_path, url, port), connect(f"http://127.0.0.1:{port}") as caller:
            opened = await caller.send("go", wait=False)
            assert isinstance(opened, Task)
            await until(lambda: _has(caller, opened, "half "))
        async with running(tmp_path, url, port), connect(f"http://127.0.0.1:{port}") as caller:
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
