"""Two servers on one PostgreSQL: any of them serves any call, also of tasks that the other runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from counts import count
from crash.server import Server
from dragoman import State, Task, connect
from dragoman.client import RemoteAgent
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.core.model import Text
from nats_server import NatsServer
from postgres import store_url
from waiting import until

pytestmark = pytest.mark.slow


class Pair:
    """Two servers, and a client of each."""

    def __init__(self, servers: list[Server], agents: list[RemoteAgent], gate: Path) -> None:
        self.servers = servers
        self.one, self.two = agents
        self.gate = gate


@pytest.fixture(params=["postgres", "nats", "off"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    bell = {"postgres": "", "off": "off"}.get(request.param)
    url = store_url(tmp_path)
    async with AsyncExitStack() as stack:
        if bell is None:
            nats = NatsServer(tmp_path)
            stack.callback(nats.kill)
            bell = nats.url
        servers = [Server(tmp_path, url, name=name) for name in ("one", "two")]
        for server in servers:
            server.environ["DRAGOMAN_SERVER_BELL"] = bell
            stack.enter_context(server)
            server.start()
        agents = []
        for server in servers:
            await server.ready()
            agents.append(await stack.enter_async_context(connect(server.url)))
        yield Pair(servers, agents, servers[0].gate)
        for server in servers:
            code, _ = await server.stop()
            assert code == 0, server.logged()


async def _gathered(events: Any) -> list[Stamped]:
    return [event async for event in events]


async def test_any_server_serves_any_call(pair: Pair) -> None:
    one, two = pair.one, pair.two
    # Get and list.
    done = await one.send("hello")
    assert done.state is State.COMPLETED
    assert await two.get(done.id) == done
    assert [task.id for task in (await two.list()).tasks] == [done.id]

    # A live stream, and one that resumes by its cursor.
    running = await one.send("20 0.05", skill="count", wait=False)
    live = asyncio.create_task(_gathered(two.watch(running, 0)))
    log = await live
    assert [entry.seq for entry in log] == list(range(1, len(log) + 1))
    assert "".join(_text(entry) for entry in log) == "".join(f"{n} " for n in range(20))
    assert await _gathered(two.watch(running, 5)) == log[5:]
    assert await _gathered(one.watch(running, 0)) == log

    # Answers to questions, and an approval.
    asking = await one.send("go", skill="ask")
    assert asking.state is State.INPUT_REQUIRED
    asking = await two.send("a", task=asking)
    asking = await one.send("b", task=asking)
    answered = await two.answer(asking, True)
    answered = await until_state(one, answered.id, State.COMPLETED)
    assert answered.text == "a b True"

    # A cancel.
    waiting = await one.send("go", skill="wait", wait=False)
    canceled = await two.cancel(waiting)
    assert canceled.state is State.CANCELED
    assert (await one.get(waiting.id)).state is State.CANCELED


async def _arrivals(agent: RemoteAgent, task: Task) -> dict[int, float]:
    """When each event of a task arrives."""
    return {entry.seq: time.monotonic() async for entry in agent.watch(task, 0)}


async def until_state(agent: RemoteAgent, task_id: str, state: State) -> Any:
    async def there() -> Any:
        task = await agent.get(task_id)
        return task if task.state is state else None

    return await until(there)


def _text(entry: Stamped) -> str:
    event = entry.event
    parts = event.artifact.parts if isinstance(event, ArtifactChunk) else ()
    return "".join(part.text for part in parts if isinstance(part, Text))


async def test_news_of_the_other_server_come_at_once(
    pair: Pair, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """How much later a reader at the other server gets an event, and how long a cancel takes."""
    one, two = pair.one, pair.two
    running = await one.send("30 0.05", skill="count", wait=False)
    here, there = await asyncio.gather(_arrivals(one, running), _arrivals(two, running))
    assert here.keys() == there.keys()
    delays = [(there[seq] - here[seq]) * 1000 for seq in here]
    cancels = []
    name = request.node.callspec.params["pair"]
    for _ in range(count(5, 5, 50 if name == "off" else 500)):
        waiting = await one.send("go", skill="wait", wait=False)
        began = time.monotonic()
        assert (await two.cancel(waiting)).state is State.CANCELED
        cancels.append((time.monotonic() - began) * 1000)
        assert (await one.get(waiting.id)).state is State.CANCELED
    with capsys.disabled():
        print(
            f"\n  {name}: an event {median(delays):.1f} ms, a cancel {median(cancels):.1f} ms, "
            f"the slowest of {len(cancels)} {max(cancels):.1f} ms"
        )
    # A limit only shows that somebody rang: without a bell it takes up to a second.
    if name != "off":
        assert median(delays[10:]) < 500
