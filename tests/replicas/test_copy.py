"""A store is copied while its server writes to it, and a server of the copy takes over."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from cli.run import dragoman
from counts import count
from crash.server import ENVIRON, HERE, Server
from dragoman import State, Task, connect
from dragoman.client import RemoteAgent
from dragoman.core.events import Stamped
from dragoman.store import open_store
from postgres import store_url
from waiting import until

pytestmark = pytest.mark.slow

TASKS = count(100, 200, 3000)
IN_SMALL_STEPS = """
import dragoman.store.transfer.copy as copy
copy.PAGE, copy.BATCH = 10, 2
from dragoman.cli import main
main()
"""


def _copying(source: str, target: str, log: Path, *python: str) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        words = ["data", "copy", "--from", source, "--to", target, "--follow"]
        return subprocess.Popen(
            [sys.executable, *python, *words], env=ENVIRON, stdout=file, stderr=file
        )


async def _sent(agent: RemoteAgent, first: int, last: int) -> list[Task]:
    """Sends tasks, and returns those that were acknowledged."""
    places = asyncio.Semaphore(8)

    async def one(n: int) -> Task:
        async with places:
            return await agent.send(f"hello {n}")

    return await asyncio.gather(*(one(n) for n in range(first, last)))


async def _log(agent: RemoteAgent, task: Task, after: int = 0) -> list[Stamped]:
    return [entry async for entry in agent.watch(task, after)]


async def test_a_store_in_use_is_copied_and_a_server_of_the_copy_goes_on(tmp_path: Path) -> None:
    source, target = f"sqlite:///{tmp_path}/tasks.db", store_url(tmp_path)
    said = tmp_path / "copy.log"
    async with AsyncExitStack() as stack:
        old = stack.enter_context(Server(tmp_path, source, name="old"))
        old.start()
        copy = open_store(target)
        await copy.open()
        stack.push_async_callback(copy.close)
        await old.ready()
        agent = await stack.enter_async_context(connect(old.url))
        done = await _sent(agent, 0, TASKS)
        asking = await agent.send("go", skill="ask")
        running = await agent.send("go", skill="wait", wait=False)

        # The copy is killed in the middle.
        process = _copying(source, target, said, "-c", IN_SMALL_STEPS)

        async def begun() -> int:
            assert process.poll() is None, said.read_text()
            return len(await copy.transfer.versions("", 10_000))

        some = await until(begun)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert 0 < some < TASKS
        refused = await asyncio.to_thread(
            dragoman,
            *("serve", str(HERE / "agent.py"), "--port", "0", "--store", target),
            cwd=tmp_path,
            DRAGOMAN_SECRET_KEY="k" * 32,
        )
        assert refused.returncode == 2
        assert "This store is an incomplete copy of sqlite:///" in refused.stderr

        # It goes on, while the server goes on writing; then the server is stopped.
        process = _copying(source, target, said, "-m", "dragoman")
        done += await _sent(agent, TASKS, TASKS + 50)
        await until(lambda: "changes are followed" in said.read_text())
        assert process.poll() is None
        done += await _sent(agent, TASKS + 50, TASKS + 100)
        before = await _log_so_far(agent, running)
        code, _ = await old.stop()
        assert code == 0, old.logged()
        assert await asyncio.to_thread(process.wait, 120) == 0, said.read_text()
        text = said.read_text()
        assert "The copy that was begun is continued." in text
        assert re.search(rf"^tasks +{TASKS + 102}$", text, re.MULTILINE), text
        assert "but the source has" not in text

        # A server of the copy has everything, and goes on where the other one stopped.
        new = Server(tmp_path, target, name="new")
        new.environ["DRAGOMAN_SECRET_KEY"] = (tmp_path / "dragoman.key").read_text().strip()
        stack.enter_context(new)
        new.start()
        await new.ready()
        again = await stack.enter_async_context(connect(new.url))
        for task in done:
            assert await again.get(task.id) == task
        new.gate.touch()
        whole = await _log(again, running)
        assert [entry.seq for entry in whole] == list(range(1, len(whole) + 1))
        assert whole[: len(before)] == before
        assert await _log(again, running, 3) == whole[3:]
        ended = await again.get(running.id)
        assert ended.state is State.COMPLETED
        assert re.fullmatch(r"(\. )*attempt \d", ended.text)
        asking = await again.send("a", task=asking)
        asking = await again.send("b", task=asking)
        answered = await again.answer(asking, True)
        await until(lambda: _is_completed(again, answered.id))
        code, _ = await new.stop()
        assert code == 0, new.logged()


async def _log_so_far(agent: RemoteAgent, task: Task) -> list[Stamped]:
    """Returns the beginning of the log of a task that runs."""
    found: list[Stamped] = []
    async for entry in agent.watch(task, 0):
        found.append(entry)
        if len(found) == 5:
            break
    return found


async def _is_completed(agent: RemoteAgent, task_id: str) -> bool:
    return (await agent.get(task_id)).state is State.COMPLETED
