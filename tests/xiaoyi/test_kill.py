"""`kill -9` of the agent in the middle of a task, and of the gateway in the middle of a stream: the
caller, in place of the phone, sees one answer per task."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.run import ENVIRON, dragoman
from counts import count
from dragoman import Agent, State, Task, Turn
from dragoman.client import connect
from dragoman.core.events import Stamped, StateChanged
from dragoman.core.lifecycle import FINAL
from dragoman.xiaoyi.outbound_link import SigningKeys
from gateway.test_kill import _ready
from ports import own_port
from waiting import until
from xiaoyi.links import AGENT, PATH
from xiaoyi.test_agent_links import QuickPolicy, linked
from xiaoyi.test_link_command import SOURCE

pytestmark = pytest.mark.slow  # starts processes
KILLS = count(1, 2, 20)
LIMIT = 240.0 + 60.0 * KILLS


class Home:
    """A folder with an agent, and a gateway that lets it dial in."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, own_port()
        (folder / "phone_agent.py").write_text(SOURCE)
        (folder / "dragoman.toml").write_text(
            f'[server]\nstore = "sqlite:///{folder}/gateway.db"\nport = {self.port}\n'
            '[agents.desk]\nfile = "phone_agent.py"\n'
        )
        made = dragoman(
            *("xiaoyi", "keys", "add", "--agent-id", AGENT, "--json"),
            *("--store", f"sqlite:///{folder}/gateway.db"),
            cwd=folder,
        )
        pair = json.loads(made.stdout)
        self.keys = SigningKeys(AGENT, pair["ak"], pair["sk"])
        self._environ = {"DRAGOMAN_XIAOYI_AK": pair["ak"], "DRAGOMAN_XIAOYI_SK": pair["sk"]}
        self.url = f"ws://127.0.0.1:{self.port}{PATH}"

    @asynccontextmanager
    async def _running(self, *command: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A command; killed when the block ends."""
        with (self.folder / "log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "dragoman", *command),
                cwd=self.folder,
                env={**ENVIRON, **self._environ, "PATH": os.environ["PATH"]},
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[None]:
        async with self._running("gateway"):
            await until(lambda: _ready(self.port))
            yield

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[None]:
        flags = ("--server", self.url, "--store", f"sqlite:///{self.folder}/agent.db")
        async with self._running("xiaoyi", "link", "phone_agent.py", "--agent-id", AGENT, *flags):
            yield

    def hold(self) -> None:
        """Lets no task end that begins now."""
        (self.folder / "go").unlink(missing_ok=True)

    def go(self) -> None:
        """Lets the tasks end that begin now."""
        (self.folder / "go").touch()

    @asynccontextmanager
    async def caller(self) -> AsyncIterator[Any]:
        """A caller, as soon as the agent can be called."""
        address = f"http://127.0.0.1:{self.port}/agents/{AGENT}"
        async with AsyncExitStack() as stack:

            async def reached() -> Any:
                try:
                    return await stack.enter_async_context(connect(address))
                except Exception:  # whatever it is: the agent has not dialled in yet
                    return None

            yield await until(reached)


async def begun(caller: Any, text: str) -> Task:
    """Sends a message, and returns its task as soon as a part of the answer is there."""

    async def opened() -> Any:
        try:
            return await caller.send(text, wait=False)
        except Exception:  # the agent has no link yet
            return None

    task: Task = await until(opened)

    async def told() -> bool:
        return bool((await caller.get(task)).text == "Well, ")

    await until(told)
    return task


async def one_answer(caller: Any, task: Task, text: str) -> None:
    """Waits for the end of a task, and checks that it has one answer."""

    async def ended() -> Task | None:
        found: Task = await caller.get(task)
        return found if found.state in FINAL else None

    found: Task = await until(ended)
    assert (found.state, found.text) == (State.COMPLETED, f"Well, {text}"), found
    assert len(found.artifacts) == 1
    told = [each.event async for each in caller.watch(task, 0) if isinstance(each, Stamped)]
    ends = [each for each in told if isinstance(each, StateChanged) and each.state in FINAL]
    assert len(ends) == 1, (caller, told)


async def test_an_agent_that_is_killed_in_the_middle_of_a_task_gives_one_answer(
    tmp_path: Path,
) -> None:
    home, tasks = Home(tmp_path), []
    async with asyncio.timeout(LIMIT), home.gateway():
        for number in range(KILLS):
            home.hold()
            async with home.agent(), home.caller() as caller:
                tasks.append(await begun(caller, str(number)))
            home.go()
            async with home.agent(), home.caller() as caller:
                await one_answer(caller, tasks[-1], str(number))
        async with home.agent(), home.caller() as caller:
            for number, task in enumerate(tasks):
                await one_answer(caller, task, str(number))


async def test_a_gateway_that_is_killed_in_the_middle_of_a_stream_gives_one_answer(
    tmp_path: Path,
) -> None:
    """The agent is in this process: it dials again a hundred times as fast."""
    home, tasks = Home(tmp_path), []
    agent, gate, runs = Agent("Phone agent", description="Answers phones."), [asyncio.Event()], []

    @agent.skill("talk")
    async def talk(turn: Turn) -> None:
        runs.append(turn.text)
        await turn.artifact("Well, ", last=False)
        await gate[-1].wait()
        await turn.artifact(turn.text, append=True)

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(LIMIT))
        dialled: Any = linked(
            home,  # type: ignore[arg-type]  # it has a url
            agent=agent,
            keys=home.keys,
            policy=lambda: QuickPolicy(tries=100_000),
        )
        await stack.enter_async_context(dialled)
        for number in range(KILLS):
            gate.append(asyncio.Event())
            async with home.gateway(), home.caller() as caller:
                tasks.append(await begun(caller, str(number)))
            if number % 2:
                gate[-1].set()  # the answer is complete while no server listens
            async with home.gateway(), home.caller() as caller:
                gate[-1].set()
                await one_answer(caller, tasks[-1], str(number))
        async with home.gateway(), home.caller() as caller:
            for number, task in enumerate(tasks):
                await one_answer(caller, task, str(number))
    assert runs == [str(number) for number in range(KILLS)]
