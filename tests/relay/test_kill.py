"""`kill -9` of an agent that asks another one: the other one is asked once, and stopped with it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman import Agent, State, Turn
from dragoman.store.interface import Scope
from dragoman.testing import Client, served
from engine.harness import ended
from relay.boss import boss_in, noted
from waiting import stays, until

pytestmark = pytest.mark.slow  # starts processes

TESTS = Path(__file__).parent.parent


class Worker:
    """Counts what it does. Its work ends when it is let go."""

    def __init__(self) -> None:
        self.agent = Agent("Worker")
        self.did: list[str] = []
        self.free = asyncio.Event()
        self.canceled: list[str] = []

        @self.agent.skill("work")
        async def work(turn: Turn) -> str:
            self.did.append(turn.text)
            try:
                await self.free.wait()
            except asyncio.CancelledError:
                self.canceled.append(turn.text)
                raise
            return turn.text.upper()

        @self.agent.skill("ask")
        async def ask(turn: Turn) -> str:
            self.did.append("ask")
            city = await turn.ask("Which city?")
            self.did.append(city)
            try:
                await self.free.wait()
            except asyncio.CancelledError:
                self.canceled.append("ask")
                raise
            return f"booked {city}"


@asynccontextmanager
async def victim(store: str, folder: Path, address: str, skill: str) -> AsyncIterator[None]:
    """A boss at work; killed when the block ends."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "relay.boss", store, str(folder), address, skill),
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    try:
        await until(lambda: (folder / "acked").exists() and acked(folder) != "")
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


def acked(folder: Path) -> str:
    return (folder / "acked").read_text()


@pytest.fixture(params=["sqlite", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return (
        f"sqlite:///{tmp_path / 'tasks.db'}"
        if request.param == "sqlite"
        else f"file://{tmp_path / 'tasks'}"
    )


async def test_a_finished_call_is_not_repeated(store: str, tmp_path: Path) -> None:
    worker = Worker()
    worker.free.set()
    async with served(worker.agent) as address, victim(store, tmp_path, address, "one"):
        await until((tmp_path / "returned").exists)
    # Nobody is there any more who could be asked again.
    (tmp_path / "gate").touch()
    async with Client(boss_in(tmp_path, address), store=store) as client:
        task = await ended(client, acked(tmp_path))
        assert (task.state, task.text) == (State.COMPLETED, "got WORK")
        assert len(task.artifacts) == 1
    assert worker.did == ["work"]


async def test_an_unfinished_call_goes_on_with_the_same_task(store: str, tmp_path: Path) -> None:
    worker = Worker()
    (tmp_path / "gate").touch()
    async with served(worker.agent) as address:
        async with victim(store, tmp_path, address, "one"):
            await until(lambda: worker.did)
            await until((tmp_path / "noted").exists)
        assert worker.canceled == []
        async with Client(boss_in(tmp_path, address), store=store) as client:
            asyncio.get_running_loop().call_later(0.3, worker.free.set)
            task = await ended(client, acked(tmp_path))
            assert (task.state, task.text) == (State.COMPLETED, "got WORK")
    assert worker.did == ["work"]


async def test_a_fan_out_goes_on_where_it_was(store: str, tmp_path: Path) -> None:
    worker = Worker()
    async with served(worker.agent) as address:
        async with victim(store, tmp_path, address, "many"):
            await until(lambda: worker.did)
            worker.free.set()
            await until(lambda: len(worker.did) >= 2)
        async with Client(boss_in(tmp_path, address), store=store) as client:
            task = await ended(client, acked(tmp_path))
            assert task.text == "FIRST 0, FIRST 1, FIRST 2"
    # Each was asked once: also one that was killed before it knew its task, by its key.
    assert sorted(worker.did) == ["FIRST 0", "FIRST 1", "FIRST 2", "first"]


async def test_a_cancel_after_the_crash_goes_down(store: str, tmp_path: Path) -> None:
    worker = Worker()
    async with served(worker.agent) as address:
        async with victim(store, tmp_path, address, "one"):
            await until(lambda: worker.did)
            await until((tmp_path / "noted").exists)
        async with Client(boss_in(tmp_path, address), store=store) as client:
            assert (await client.cancel(acked(tmp_path))).state is State.CANCELED
            await until(lambda: worker.canceled)
    assert (worker.did, worker.canceled) == (["work"], ["work"])


async def test_a_cancel_before_the_crash_goes_down_after_it(tmp_path: Path) -> None:
    """The mark was set, and the process died before it could tell the other agent."""
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    worker = Worker()
    async with served(worker.agent) as address:
        async with victim(store, tmp_path, address, "one"):
            await until(lambda: worker.did)
            await until((tmp_path / "noted").exists)
        # As the dead process had left it.
        async with Client(Agent("Nobody"), store=store) as other:
            scope = Scope("", "anonymous", "Boss")
            row = await other.store.ask_cancel(scope, acked(tmp_path))
            assert row.cancel
        async with Client(boss_in(tmp_path, address), store=store) as client:
            assert (await ended(client, acked(tmp_path))).state is State.CANCELED
            await until(lambda: worker.canceled)
    assert worker.did == ["work"]


async def test_a_question_passed_up_survives(store: str, tmp_path: Path) -> None:
    worker = Worker()
    async with served(worker.agent) as address:
        async with victim(store, tmp_path, address, "asks"):
            pass
        async with Client(boss_in(tmp_path, address), store=store) as client:
            task = await client.get(acked(tmp_path))
            assert task.state is State.INPUT_REQUIRED
            worker.free.set()
            task = await client.send("Rome", task=task)
            assert task.text == "booked Rome"
    assert worker.did == ["ask", "Rome"]


async def test_an_answer_is_told_once(store: str, tmp_path: Path) -> None:
    worker = Worker()
    async with served(worker.agent) as address:
        async with victim(store, tmp_path, address, "answers"):
            await until(lambda: worker.did == ["ask", "Rome"])
        async with Client(boss_in(tmp_path, address), store=store) as client:
            asyncio.get_running_loop().call_later(0.3, worker.free.set)
            assert (await ended(client, acked(tmp_path))).text == "booked Rome"
    assert worker.did == ["ask", "Rome"]


async def test_a_clean_stop_leaves_the_other_at_work(store: str, tmp_path: Path) -> None:
    worker = Worker()
    (tmp_path / "gate").touch()
    async with served(worker.agent) as address:
        async with Client(boss_in(tmp_path, address), store=store) as client:
            task = await client.send("go", skill="one", wait=False)
            await until(lambda: worker.did)
            await until(lambda: noted(client, task.id))
        async with Client(boss_in(tmp_path, address), store=store) as client:
            await until(lambda: task.id in client.engine.runner.runs)
            await stays(lambda: worker.canceled == [])
            worker.free.set()
            assert (await ended(client, task.id)).text == "got WORK"
    assert worker.did == ["work"]
