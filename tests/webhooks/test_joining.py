"""Webhooks of 0.3 and older are told whole tasks: once for all that waits, and not too often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman import Agent, Turn
from dragoman.core.model import Message, Role, Task, Text
from dragoman.core.operations import SendMessage
from dragoman.engine import Engine
from dragoman.settings import Push
from dragoman.store import open_store
from dragoman.store.interface import Scope
from waiting import until
from webhooks.harness import ALICE, QUICK, SECRET, empty, hook, sender
from webhooks.receiver import Heard, Receiver

OLD = replace(ALICE, dialect="a2a-0.3")
STORES = ["memory:", "sqlite:///{}/tasks.db", "file://{}/tasks"]
LONG = 60.0

agent = Agent("Talker", description="Says much.")


@agent.skill("talk", default=True)
async def talk(turn: Turn) -> AsyncIterator[str]:
    chunks, size, pause = turn.text.split()
    for n in range(int(chunks)):
        await asyncio.sleep(float(pause))  # its work
        yield f"{n} ".ljust(int(size), ".")


@agent.skill("wait")
async def wait(turn: Turn) -> str:
    return await turn.ask("What?")


class Talking(Engine):
    """An engine with webhooks over a store of its own."""

    def __init__(self, store: str = "memory:", push: Push = QUICK) -> None:
        super().__init__(agent, open_store(store), secret=SECRET, sender=sender(), push=push)

    async def __aenter__(self) -> Talking:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop(0)

    async def send(self, text: str, url: str, skill: str = "talk", task_id: str = "") -> Task:
        message = Message(
            message_id="m",
            role=Role.USER,
            parts=(Text(text),),
            task_id=task_id,
            metadata={"skillId": skill},
        )
        at = None if task_id else hook(url)
        task = await self.call(SendMessage(message=message, hook=at, wait=False), OLD)
        assert isinstance(task, Task)
        return task


async def over(running: Engine, task: Task) -> None:
    """Waits until a task is finished."""

    async def final() -> bool:
        return (await running.store.row(Scope("", "alice", running.name), task.id)).final

    await until(final)


async def told(receiver: Receiver, state: str) -> None:
    """Waits until a state is told."""
    await until(lambda: any(state in one.body.decode() for one in receiver.heard))


@pytest.mark.parametrize("store", STORES)
async def test_what_waits_is_told_once(store: str, tmp_path: Path) -> None:
    first = asyncio.Event()

    async def slow(one: Heard) -> tuple[int, dict[str, str]]:
        await first.wait()
        return 204, {}

    receiver = Receiver(slow)
    async with receiver, Talking(store.format(tmp_path)) as running:
        task = await running.send("50 10 0.002", receiver.url)
        await over(running, task)
        first.set()
        await empty(running, LONG)
        assert len(receiver.heard) == 2
        assert [one.seq for one in receiver.heard][-1] == 53
        last = receiver.heard[-1].json
        assert last["status"]["state"] == "completed"
        assert last["artifacts"][0]["parts"][0]["text"].count(" ") == 50


@pytest.mark.slow  # takes two seconds
async def test_a_task_that_grows_is_not_posted_again_and_again() -> None:
    chunks, size = 300, 5_000
    async with Receiver() as receiver, Talking() as running:
        await running.send(f"{chunks} {size} 0.005", receiver.url)
        await told(receiver, "completed")
        await empty(running, LONG)
        seqs = [one.seq for one in receiver.heard]
        assert seqs == sorted(set(seqs))
        assert seqs[-1] == chunks + 3
        posted = sum(len(one.body) for one in receiver.heard)
        # Each chunk by itself would be 150 times the task; a pause per size keeps it near it.
        assert posted < 20 * chunks * size


async def test_the_end_and_questions_do_not_wait_for_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "dragoman.engine.webhook_queue.RATE", 0.001
    )  # every pause is as long as can be
    monkeypatch.setattr("dragoman.engine.webhook_queue.PAUSE", 3600.0)
    async with Receiver() as receiver, Talking() as running:
        task = await running.send("", receiver.url, "wait")
        await told(receiver, "input-required")
        await running.send("that", receiver.url, task_id=task.id)
        await told(receiver, "completed")


async def test_one_that_is_given_up_stands_for_all_that_it_told() -> None:
    down, finished = True, asyncio.Event()

    async def answer(one: Heard) -> tuple[int, dict[str, str]]:
        await finished.wait()
        return (500 if down else 204), {}

    push = replace(QUICK, failures=99)
    async with Receiver(answer) as receiver, Talking(push=push) as running:
        await over(running, await running.send("3 5 0", receiver.url))
        finished.set()
        await empty(running, LONG)
        (dead,) = await running.store.outbox(dead=True, limit=9)
        assert dead.seq == 6
        down = False
        assert await running.store.redeliver(dead.id)
        await empty(running, LONG)
        assert receiver.heard[-1].seq == 6
        assert receiver.heard[-1].json["status"]["state"] == "completed"
        assert await running.store.outbox(dead=True, limit=9) == []


@pytest.mark.parametrize("store", STORES[1:])
async def test_the_end_is_told_after_a_restart(store: str, tmp_path: Path) -> None:
    place, down = store.format(tmp_path), True

    def answer(one: Heard) -> tuple[int, dict[str, str]]:
        return (500 if down else 204), {}

    push = replace(QUICK, schedule=(0, *[0.02] * 999), failures=9999)
    async with Receiver(answer) as receiver:
        async with Talking(place, push) as running:
            await over(running, await running.send("5 10 0.002", receiver.url))
            await receiver.until(1, LONG)
        down = False
        refused = len(receiver.heard)
        async with Talking(place, push) as running:
            await told(receiver, "completed")
            await empty(running, LONG)
        arrived = receiver.heard[refused:]
        assert [one.seq for one in arrived if one.json["status"]["state"] == "completed"] == [8]
        assert arrived[-1].json["artifacts"][0]["parts"][0]["text"].count(" ") == 5
