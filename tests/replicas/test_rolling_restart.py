"""Three servers on one PostgreSQL behind a load balancer are restarted one after the other, and no
caller notices: no call fails, and no stream is lost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from counts import FULL, count
from crash.server import Server
from dragoman import State, Task, connect
from dragoman.client import RemoteAgent
from dragoman.client.retry import Pauses
from interop.peers import A2A_SDK, PeerUnavailable
from postgres import store_url
from replicas.balancer import Balancer, balancing
from waiting import pace, until

pytestmark = pytest.mark.slow
REPLICAS = 3
CALLERS = count(1, 1, 8)
ROUNDS = count(1, 1, 3)
LONG = "20 0.05", "".join(f"{n} " for n in range(20))
SLOW = "100 0.05", "".join(f"{n} " for n in range(100))
"""Longer than a server that stops waits for its tasks, so they go on elsewhere."""
CLIENT = Path(__file__).parent / "a2a_sdk_load.py"


class Cluster:
    """The servers, and the balancer before them."""

    def __init__(self, servers: list[Server], balancer: Balancer) -> None:
        self.servers, self.url = servers, balancer.url

    async def restart_all(self) -> None:
        """One after the other, as an operator or Kubernetes does it."""
        for server in self.servers:
            code, _ = await server.stop()
            assert code == 0, server.logged()
            server.start()
            await server.ready()


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    store = store_url(folder)
    async with AsyncExitStack() as stack:
        servers = [Server(folder, store, name=f"server-{n}") for n in range(REPLICAS)]
        balancer = await stack.enter_async_context(balancing([each.port for each in servers]))
        for server in servers:
            server.environ["DRAGOMAN_SERVER_PUBLIC_URL"] = balancer.url
            stack.enter_context(server)
            server.start()
        for server in servers:
            await server.ready()
        yield Cluster(servers, balancer)
        for server in servers:
            code, _ = await server.stop()
            assert code == 0, server.logged()


@pytest.fixture
def retries(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often our client tries something again, by the reason."""
    found: Counter[str] = Counter()
    wait = Pauses.wait

    async def counted(self: Pauses, exc: Exception | None = None) -> None:
        found[type(exc).__name__ if exc is not None else "a stream ended early"] += 1
        await wait(self, exc)  # type: ignore[arg-type]

    monkeypatch.setattr(Pauses, "wait", counted)
    return found


async def _send(agent: RemoteAgent) -> None:
    task = await agent.send("hello")
    assert isinstance(task, Task)
    assert (task.state, task.text) == (State.COMPLETED, "HELLO")
    assert (await agent.get(task.id)).text == "HELLO"


async def _stream(agent: RemoteAgent) -> None:
    asked, told = LONG
    events = agent.stream(asked, skill="count")
    seen = [entry.seq async for entry in events]
    assert seen == list(range(1, len(seen) + 1))
    assert events.task is not None
    assert (events.task.state, events.task.text) == (State.COMPLETED, told)


async def _send_slow(agent: RemoteAgent) -> None:
    asked, told = SLOW
    task = await agent.send(asked, skill="count")
    assert isinstance(task, Task)
    assert (task.state, task.text) == (State.COMPLETED, told)


async def _watch_slow(agent: RemoteAgent) -> None:
    """Follows a task that may run at another server than the one that tells of it."""
    asked, told = SLOW
    task = await agent.send(asked, skill="count", wait=False)
    assert isinstance(task, Task)
    found = await agent.watch(task, 0).result()
    assert isinstance(found, Task)
    assert (found.state, found.text) == (State.COMPLETED, told)


async def test_our_client_notices_no_restart(
    tmp_path: Path, retries: Counter[str], capsys: pytest.CaptureFixture[str]
) -> None:
    done: Counter[str] = Counter()
    over = asyncio.Event()

    async def keep_calling(call: Callable[[RemoteAgent], Awaitable[None]]) -> None:
        async with connect(running.url) as agent:
            while not over.is_set():
                await call(agent)
                done[call.__name__] += 1
                await pace(0.05)

    async with cluster(tmp_path) as running, asyncio.TaskGroup() as group:
        for _ in range(CALLERS):
            group.create_task(keep_calling(_send))
            group.create_task(keep_calling(_stream))
        group.create_task(keep_calling(_send_slow))
        group.create_task(keep_calling(_watch_slow))
        await until(lambda: done["_send"] and done["_stream"])
        for _ in range(ROUNDS):
            await running.restart_all()
        over.set()
    with capsys.disabled():
        print(f"\n  {dict(done)}, tried again: {dict(retries) or 'nothing'}")
    assert done["_send"] > REPLICAS
    assert done["_stream"] > REPLICAS


@pytest.mark.skipif(not FULL, reason="make test-full runs it")
async def test_the_client_of_a2a_sdk_notices_no_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It tries nothing again by itself. A stream that ends before its task does is followed with
    its own `subscribe`, which is counted."""
    try:
        folder = await asyncio.to_thread(A2A_SDK.ready)
    except PeerUnavailable as exc:
        pytest.skip(str(exc))
    async with cluster(tmp_path) as running:
        process = await asyncio.create_subprocess_exec(
            *(*A2A_SDK.start(folder), str(CLIENT), running.url, str(CALLERS)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=folder,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        for _ in range(ROUNDS):
            await running.restart_all()
        process.stdin.close()
        told = json.loads(await process.stdout.readline())
        await process.wait()
    with capsys.disabled():
        print(f"\n  {told}")
    assert told["failed"] == []
    assert told["sends"] > REPLICAS
    assert told["streams"] > REPLICAS
