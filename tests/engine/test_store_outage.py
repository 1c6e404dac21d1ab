"""A store that is away keeps nobody waiting: callers are refused, and tasks go on by themselves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from dragoman import Agent, Turn
from dragoman.core.errors import StoreUnavailable
from dragoman.core.model import Message, Role, State, Task, Text
from dragoman.core.operations import CancelTask, GetTask, ListTasks, SendMessage
from dragoman.core.peer import Context
from dragoman.engine import Engine
from dragoman.store import open_store
from postgres import Server
from store.disk import full_disk
from waiting import LIMIT, until

ALICE = Context(principal="alice", dialect="a2a-1.0")
SPARE = {"file": 1000, "sqlite": 30_000}
"""Bytes that are left on the disk: enough for the answer of a caller, too few for the result."""
LARGE = "x" * 60_000
ANSWERED_WITHIN_SECONDS = 20.0
"""Five times what a caller has to wait for a database that is away. It was 29 seconds once."""

release = Event()
agent = Agent("Desk", description="Asks and works.")


@agent.skill("ask", default=True)
async def ask(turn: Turn) -> str:
    return await turn.ask("What?") + LARGE


@agent.skill("block")
async def block(turn: Turn) -> str:
    await turn.step("wait", release.wait)
    return "done"


@agent.skill("forever")
async def forever(turn: Turn) -> None:
    await asyncio.Event().wait()


@agent.skill("quick")
async def quick(turn: Turn) -> str:
    return turn.text


def message(text: str, skill: str = "ask", task_id: str = "", *, wait: bool = True) -> SendMessage:
    said = Message(
        message_id=f"m-{text}",
        role=Role.USER,
        parts=(Text(text),),
        task_id=task_id,
        metadata={"skillId": skill},
    )
    return SendMessage(message=said, wait=wait)


@asynccontextmanager
async def running(url: str) -> AsyncIterator[Engine]:
    engine = Engine(agent, open_store(url), secret=b"s" * 32)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop(0)


async def task_of(call: Awaitable[Any]) -> Task:
    async with asyncio.timeout(LIMIT):
        found = await call
    assert isinstance(found, Task)
    return found


def url_of(kind: str, folder: Path) -> str:
    return f"file://{folder}/store" if kind == "file" else f"sqlite:///{folder}/tasks.db"


def size_of(kind: str, folder: Path) -> int:
    if kind == "sqlite":
        return (folder / "tasks.db-wal").stat().st_size
    return max(path.stat().st_size for path in (folder / "store" / "tasks").iterdir())


@pytest.mark.parametrize("kind", list(SPARE))
async def test_an_answer_whose_result_finds_no_room_is_refused_at_once_and_goes_on_later(
    tmp_path: Path, kind: str
) -> None:
    async with running(url_of(kind, tmp_path)) as engine:
        task = await task_of(engine.call(message("hi"), ALICE))
        assert task.status.state is State.INPUT_REQUIRED
        with full_disk(size_of(kind, tmp_path) + SPARE[kind]):
            async with asyncio.timeout(LIMIT):
                with pytest.raises(StoreUnavailable):
                    await engine.call(message("yes", task_id=task.id), ALICE)
                # What is on the disk can be read.
                found = await engine.call(GetTask(task_id=task.id), ALICE)
        assert found.status.state is not State.COMPLETED

        async def completed() -> bool:
            return (await engine.call(GetTask(task_id=task.id), ALICE)).status.state is (
                State.COMPLETED
            )

        await until(completed)


@pytest.mark.parametrize("kind", list(SPARE))
async def test_steps_that_block_delay_nobody_who_reads(tmp_path: Path, kind: str) -> None:
    """There are as many as the threads of a step can take, and more than the loop's own."""
    release.clear()
    async with running(url_of(kind, tmp_path)) as engine:
        done = await task_of(engine.call(message("hi", "quick"), ALICE))
        try:
            for n in range(40):
                await engine.call(message(f"{n}", "block", wait=False), ALICE)
            assert await task_of(engine.call(GetTask(task_id=done.id), ALICE)) == done
            async with asyncio.timeout(LIMIT):
                assert await asyncio.to_thread(lambda: 7) == 7
        finally:
            release.set()


@pytest.mark.slow
async def test_callers_of_a_stopped_database_are_refused_within_seconds() -> None:
    server = Server("fsync = off")
    try:
        async with running(server.url) as engine:
            waiting = await task_of(engine.call(message("hi"), ALICE))
            done = await task_of(engine.call(message("hi", "quick"), ALICE))
            works = await task_of(engine.call(message("hi", "forever", wait=False), ALICE))
            server.stop()
            began = time.monotonic()
            calls = (
                message("new", "quick"),
                message("new, not waited for", "quick", wait=False),
                message("yes", task_id=waiting.id),
                GetTask(task_id=done.id),
                ListTasks(),
                CancelTask(task_id=works.id),
            )
            answers = await asyncio.gather(
                *(engine.call(call, ALICE) for call in calls), return_exceptions=True
            )
            took = time.monotonic() - began
            assert [type(answer) for answer in answers] == [StoreUnavailable] * len(calls)
            assert took < ANSWERED_WITHIN_SECONDS
            server.start()

            async def answered() -> bool:
                try:
                    answer = await engine.call(message("now", task_id=waiting.id), ALICE)
                except StoreUnavailable:
                    return False
                return isinstance(answer, Task) and answer.status.state is State.COMPLETED

            await until(answered)
    finally:
        server.remove()
