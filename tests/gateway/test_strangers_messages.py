"""What a message is beside its parts reaches agents of others: its id, metadata and extensions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Turn
from dragoman.store import open_store
from dragoman.store.interface import Scope
from dragoman.testing.served import served
from gateway.behind import gateway, settings
from gateway.desks import DIALECTS, Desk, PlainCaller, desk
from gateway.faulty import Door
from waiting import until

pytestmark = pytest.mark.slow  # starts processes
OURS = "urn:dragoman:idempotency:1/key"
EXTENSION = "urn:example:tone"
ABOUT: dict[str, Any] = {
    "messageId": "mine-1",
    "metadata": {"tone": "dry", "deep": {"n": [1, 2]}},
    "extensions": [EXTENSION],
}


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """An agent on a2a-sdk 1.3.0."""
    with desk(tmp_path_factory.mktemp("desk")) as found:
        yield found


def told_by(task: dict[str, Any], dialect: str) -> dict[str, Any]:
    """The message that the agent got, without what is between it and the gateway."""
    (artifact,) = task["artifacts"]
    found: dict[str, Any] = artifact["parts"][0]["data"]
    key = found.get("metadata", {}).pop(OURS, "")
    # Only where there are lists can a task be found by it.
    assert bool(key) == dialect.startswith("a2a-1.0")
    if "grpc" not in dialect:  # of gRPC the SDK shows its agents no headers
        assert found["header"]
        assert not key or key == found["header"]
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_messages_and_answers_arrive_with_all_that_they_are(
    tmp_path: Path, stranger: Desk, dialect: str
) -> None:
    sections = {"desk": stranger.section(dialect)}
    async with (
        asyncio.timeout(240),
        gateway(sections, settings(tmp_path)) as door,
        PlainCaller(door.at("desk")) as caller,
    ):
        for _ in range(2):  # callers use an id again
            task = (await caller.send("tell", **ABOUT))["task"]
            told = told_by(task, dialect)
            assert {name: told.get(name) for name in ABOUT} == ABOUT
        plain = told_by((await caller.send("tell", messageId="mine-2"))["task"], dialect)
        assert plain["messageId"] == "mine-2"
        assert not plain.get("metadata")
        asked = (await caller.send("tell-answers"))["task"]
        task = (await caller.send("Rome", taskId=asked["id"], **ABOUT))["task"]
        told = told_by(task, dialect)
        assert {name: told.get(name) for name in ABOUT} == ABOUT


async def test_a_cancel_after_a_crash_stops_the_task_of_our_message_and_no_other(
    tmp_path: Path,
) -> None:
    own = settings(tmp_path, store=f"sqlite:///{tmp_path / 'gateway.db'}")
    door = Door()
    with desk(tmp_path, at=f"{door.url}/") as stranger:
        door.to = int(stranger.url.rpartition(":")[2])
        await door.open()
        sections = {"desk": {"url": door.url, "dialect": "a2a-1.0"}}
        at_once: dict[str, Any] = {"configuration": {"returnImmediately": True}}
        async with asyncio.timeout(240), PlainCaller(stranger.url) as direct:
            async with gateway(sections, own) as front, PlainCaller(front.at("desk")) as caller:
                first = (await caller.send("slow", messageId="same", **at_once))["task"]
                await until(lambda: begun(caller, first["id"]))
                lost = asyncio.create_task(
                    caller.send("slow", messageId="same", contextId=first["contextId"], **at_once)
                )
                door.answers_flow.clear()
                second = (await lost)["task"]
                await until(lambda: states(direct, 2))
            await door.close()
            await cancel_in_store(own.server.store, second["id"])
            door.answers_flow.set()
            await door.open()
            async with gateway(sections, own) as front, PlainCaller(front.at("desk")) as caller:
                await until(lambda: canceled(direct))
                found = (await caller.call("GetTask", id=first["id"]))["result"]
                assert found["status"]["state"] == "TASK_STATE_WORKING", found
            assert sorted(await states(direct, 2)) == ["TASK_STATE_CANCELED", "TASK_STATE_WORKING"]
    await door.close()


async def cancel_in_store(url: str, task_id: str) -> None:
    """Leaves a task as a gateway does that dies while it cancels it."""
    store = open_store(url)
    await store.open()
    await store.ask_cancel(Scope("", "anonymous", "desk"), task_id)
    await store.close()


async def begun(caller: PlainCaller, task_id: str) -> bool:
    """Whether the gateway has heard of the agent's task."""
    return "message" in (await caller.call("GetTask", id=task_id))["result"]["status"]


async def states(direct: PlainCaller, count: int) -> list[str]:
    """The states of the tasks that the agent has, once there are so many."""
    tasks = (await direct.call("ListTasks"))["result"].get("tasks", [])
    return [each["status"]["state"] for each in tasks] if len(tasks) >= count else []


async def canceled(direct: PlainCaller) -> bool:
    return "TASK_STATE_CANCELED" in await states(direct, 2)


async def test_what_an_answer_loses_is_told(tmp_path: Path) -> None:
    """A2A 0.1 has no extensions of messages."""
    agent = Agent("Asker")

    @agent.skill("ask")
    async def ask(turn: Turn) -> str:
        return str(await turn.ask("Which city?"))

    async with (
        asyncio.timeout(240),
        served(agent) as url,
        gateway({"asker": {"url": url, "dialect": "a2a-0.1"}}, settings(tmp_path)) as front,
        PlainCaller(front.at("asker"), **{"a2a-extensions": "urn:dragoman:work:1"}) as caller,
    ):
        asked = (await caller.send("go"))["task"]
        events = [
            event
            async for event in caller.stream("Rome", taskId=asked["id"], extensions=[EXTENSION])
        ]
        assert "cannot carry: the extensions of a message" in str(events), events
        assert "Rome" in str(events)
