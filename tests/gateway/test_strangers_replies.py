"""A direct reply stays one and an error stays one, behind agents that know no idempotency keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import Message, State, Task, connect
from dragoman.core.errors import ContentTypeUnsupported
from gateway.behind import Gateway, gateway, settings
from gateway.desks import DIALECTS, Desk, PlainCaller, desk, words
from waiting import until

pytestmark = pytest.mark.slow  # starts processes
BREAKS_OFF = "a2a-0.3-rest"
"""There a2a-sdk 1.3.0 ends a stream that it refuses in the middle of the response, without a word,
so nobody can tell what came of the message."""
NEVER = 3600.0
SOON = 0.2


@pytest.fixture(scope="module", params=["streams", "plain"])
def stranger(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Desk]:
    """An agent on a2a-sdk 1.3.0, with and without streaming."""
    with desk(tmp_path_factory.mktemp("desk"), streams=request.param == "streams") as found:
        yield found


@asynccontextmanager
async def front(
    folder: Path, stranger: Desk, dialect: str = "a2a-1.0", store: str = "memory:", **more: Any
) -> AsyncIterator[Gateway]:
    """A gateway in front of it. Nothing becomes visible for being late, unless a test says so."""
    section = stranger.section(dialect, **{"reply_within": NEVER, **more})
    async with gateway({"desk": section}, settings(folder, store=store)) as door:
        yield door


async def tasks(caller: PlainCaller) -> list[dict[str, Any]]:
    """What the caller's list shows."""
    found: list[dict[str, Any]] = (await caller.call("ListTasks"))["result"].get("tasks", [])
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_replies_and_errors_stay_what_they_are(
    tmp_path: Path, stranger: Desk, dialect: str
) -> None:
    async with (
        asyncio.timeout(240),
        front(tmp_path, stranger, dialect) as door,
        PlainCaller(door.at("desk")) as caller,
    ):
        theirs = door.upstream("desk").theirs
        streams = theirs is not None and theirs.streaming
        reply = (await caller.send("reply hi"))["message"]
        assert (words(reply), reply["metadata"]) == ("You said hi", {"by": "desk"})
        if dialect == BREAKS_OFF and streams:
            lost = (await caller.send("refuse"))["task"]["status"]["message"]
            assert lost["metadata"]["reason"] == "unknown_outcome"
            return
        refused = (await caller.send("refuse"))["error"]
        assert refused["code"] == -32005
        assert "I read no such thing" in refused["message"]
        (streamed,) = [event async for event in caller.stream("reply hi")]
        assert words(streamed["message"]) == "You said hi"
        (event,) = [event async for event in caller.stream("refuse")]
        assert event["error"]["code"] == -32005
        assert await tasks(caller) == []
        task = (await caller.send("hello"))["task"]
        assert words(task["artifacts"][0]) == "HELLO"
        assert [each["id"] for each in await tasks(caller)] == [task["id"]]


@pytest.mark.parametrize("back", ["a2a-1.0", "a2a-1.0-grpc"])
@pytest.mark.parametrize("store", ["memory:", "sqlite"])
async def test_a_send_with_a_key_is_answered_again_and_executed_once(
    tmp_path: Path, stranger: Desk, store: str, back: str
) -> None:
    if store == "sqlite":
        store = f"sqlite:///{tmp_path / 'gateway.db'}"
    async with (
        asyncio.timeout(240),
        front(tmp_path, stranger, back, store) as door,
        connect(door.at("desk")) as caller,
        PlainCaller(door.at("desk")) as plain,
    ):
        said = f"reply {store} {back} {stranger.url}"
        options = {"key": "k1", "message_id": "m1"}
        first, again = [await caller.ask(said, **options) for _ in range(2)]  # type: ignore[arg-type]
        assert isinstance(first, Message)
        assert isinstance(again, Message)
        assert first.text == again.text == f"You said {said.removeprefix('reply ')}"
        assert words((await plain.send(f"executed {said}"))["message"]) == "1"
        for _ in range(2):  # an error is no answer: the caller may try again
            with pytest.raises(ContentTypeUnsupported):
                await caller.ask("refuse", key="k2", message_id="m2")
        assert not (await caller.list()).tasks


async def test_a_caller_that_does_not_wait_gets_a_task(tmp_path: Path, stranger: Desk) -> None:
    async with (
        asyncio.timeout(240),
        front(tmp_path, stranger) as door,
        PlainCaller(door.at("desk")) as caller,
    ):
        at_once = {"returnImmediately": True}
        task = (await caller.send("reply hi", configuration=at_once))["task"]
        done = await until(lambda: ended(caller, task["id"]))
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        assert words(done["status"]["message"]) == "You said hi"
        task = (await caller.send("refuse", configuration=at_once))["task"]
        done = await until(lambda: ended(caller, task["id"]))
        assert done["status"]["state"] == "TASK_STATE_FAILED"
        assert "I read no such thing" in words(done["status"]["message"])


async def ended(caller: PlainCaller, task_id: str) -> dict[str, Any] | None:
    task: dict[str, Any] = (await caller.call("GetTask", id=task_id))["result"]
    over = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED")
    return task if task["status"]["state"] in over else None


async def test_a_caller_with_a_webhook_gets_a_task(tmp_path: Path, stranger: Desk) -> None:
    async with (
        asyncio.timeout(240),
        front(tmp_path, stranger) as door,
        PlainCaller(door.at("desk")) as caller,
    ):
        hook = {"taskPushNotificationConfig": {"url": "http://127.0.0.1:9/hook"}}
        task = (await caller.send("reply hi", configuration=hook))["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert words(task["status"]["message"]) == "You said hi"


async def test_a_late_reply_completes_a_task_that_is_visible_by_then(
    tmp_path: Path, stranger: Desk
) -> None:
    async with (
        asyncio.timeout(240),
        front(tmp_path, stranger, reply_within=SOON) as door,
        PlainCaller(door.at("desk")) as caller,
        PlainCaller(stranger.url) as direct,
    ):
        sending = asyncio.create_task(caller.send("late send"))
        (shown,) = await until(lambda: tasks(caller))
        assert shown["status"]["state"] == "TASK_STATE_WORKING"
        await direct.send("go send")
        task = (await sending)["task"]
        assert task["id"] == shown["id"]
        assert words(task["status"]["message"]) == "Better late"
        events = []
        async for event in caller.stream("late stream"):
            if not events:
                await direct.send("go stream")
            events.append(event)
        assert "task" in events[0]
        assert words(events[-1]["statusUpdate"]["status"]["message"]) == "Better late"


async def test_a_gateway_that_stops_before_the_answer_keeps_the_task(
    tmp_path: Path, stranger: Desk
) -> None:
    store = f"sqlite:///{tmp_path / 'gateway.db'}"
    async with asyncio.timeout(240):
        async with (
            front(tmp_path, stranger, store=store) as door,
            connect(door.at("desk")) as caller,
            PlainCaller(stranger.url) as direct,
        ):
            sending = asyncio.create_task(caller.ask("late never", key="k1", message_id="m1"))
            await until(lambda: executed(direct, "late never"))
            assert not (await caller.list()).tasks
        await asyncio.gather(sending, return_exceptions=True)
        async with (
            front(tmp_path, stranger, store=store) as door,
            connect(door.at("desk")) as caller,
        ):
            task = await caller.ask("late never", key="k1", message_id="m1")
            assert isinstance(task, Task)
            assert task.state is State.FAILED
            assert task.status.message is not None
            assert (task.status.message.metadata or {})["reason"] == "unknown_outcome"
            assert [each.id for each in (await caller.list()).tasks] == [task.id]


async def executed(direct: PlainCaller, said: str) -> bool:
    return words((await direct.send(f"executed {said}"))["message"]) != "0"
