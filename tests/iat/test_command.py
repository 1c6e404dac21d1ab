"""`dragoman iat host` in a process of its own, and a host that starts again."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.run import ENVIRON, dragoman
from dragoman import State, Task
from dragoman.core.operations import GetTask
from dragoman.iat.host import OPERATOR
from dragoman.store import open_store
from dragoman.store.approvals import decide, open_approvals
from dragoman.testing.served import served
from iat.team import SECRET, engine_host, joining, settings, worker
from waiting import until

HOST = """
from dragoman.iat import Host

host = Host("desk")

@host.tool
def size(path: str) -> int:
    return len(path)
"""


@pytest.mark.slow
async def test_the_host_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(HOST)
    store = f"sqlite:///{tmp_path}/desk.db"
    command = [sys.executable, "-m", "dragoman", "iat", "host", "desk.py", "--port", "0"]
    process = subprocess.Popen(  # noqa: ASYNC220  its output is read in threads
        [*command, "--store", store, "--execute", "c.txt", "--to", "worker"],
        cwd=tmp_path,
        env={**ENVIRON, "IAT_SECRET": SECRET},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        first = await asyncio.to_thread(process.stdout.readline)
        found = re.search(r"http://[^\s/]+", first)
        assert found, first + process.communicate()[0]
        own = settings(tmp_path, "worker", host=joining(found[0], "ws", "desk"))
        async with served(worker(), own):
            lines = [await asyncio.to_thread(process.stdout.readline)]
            while "dragoman approvals approve" not in lines[-1]:
                assert process.poll() is None, lines
                lines.append(await asyncio.to_thread(process.stdout.readline))
            name = re.findall(r"approve (\w+)", lines[-1])[0]
            said = await asyncio.to_thread(
                dragoman, "approvals", "approve", name, "--store", store, cwd=tmp_path
            )
            assert "approved" in said.stdout, said.stderr
            rest, _ = await asyncio.to_thread(process.communicate, timeout=120)
    finally:
        process.kill()
        process.communicate()
    told = "".join(lines) + rest
    assert "… How large is it?" in told
    assert "| , deleted" in told
    assert "completed" in told
    assert process.returncode == 0


@pytest.mark.slow  # starts a process
def test_without_a_secret_it_does_not_start(tmp_path: Path) -> None:
    ran = dragoman("iat", "host", "--port", "0", "--store", "memory:", cwd=tmp_path)
    assert ran.returncode == 2
    assert "IAT_SECRET" in ran.stderr


@pytest.mark.parametrize("while_away", [True, False])
async def test_an_execute_survives_the_host(tmp_path: Path, while_away: bool) -> None:
    """The approval is open when the host ends; the next one goes on with the same task."""
    store = f"sqlite:///{tmp_path}/engine.db"
    agent = served(worker(), settings(tmp_path, "worker"))
    async with agent as worker_url:
        from dragoman.core.card import Card, Interface
        from dragoman.core.peer import Context
        from dragoman.core.session import Introduction
        from dragoman.security.iat import PROVED

        there = Interface(url=f"{worker_url}/iat", binding="IAT", version="1")
        card = Card(name="worker", description="", version="", interfaces=(there,))
        met = Introduction("1", "worker", card)
        with_secret = Context(principal="iat:worker", schemes=(PROVED,))
        host = engine_host()
        async with served(host, settings(tmp_path, "engine", memory=False)):
            host.joined(met, with_secret, None, "")
            async for batch in host.execute("d.txt"):
                if any(type(each.event).__name__ == "Asked" for each in batch.entries):  # type: ignore[union-attr]
                    task_id = batch.entries[0].task_id
                    break
        if while_away:
            await _approve(store)
        host = engine_host()
        async with served(host, settings(tmp_path, "engine", memory=False)):
            host.joined(met, with_secret, None, "")
            if not while_away:
                await _approve(store)
            assert host.peer is not None

            async def done() -> Task | None:
                task = await host.peer.call(GetTask(task_id=task_id), OPERATOR)
                return task if task.state is State.COMPLETED else None

            task = await until(done)
            assert task.text == "d.txt has 5 bytes, deleted"


async def _approve(url: str) -> None:
    store = open_store(url)
    await store.open()
    (one,) = await open_approvals(store)
    await decide(store, one.id, approved=True, by="operator test")
    await store.close()
