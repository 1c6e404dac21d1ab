"""`dragoman serve --workers`: several processes behind one port, and the parent that looks after
them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from dragoman import connect
from dragoman.core.errors import ConfigError
from dragoman.core.model import State
from dragoman.observability.metrics import added_up
from dragoman.server.workers.supervisor import supervise
from dragoman.settings import Server, Settings
from waiting import until

pytestmark = pytest.mark.slow
AGENT = """
import asyncio, os
from dragoman import Agent, Turn

agent = Agent("Workers", description="Says which process it is", version="1")

@agent.skill("which", description="Which process", tags=["test"], default=True)
async def which(turn: Turn):
    return str(os.getpid())

@agent.skill("hang", description="Until it is canceled", tags=["test"])
async def hang(turn: Turn):
    await turn.say(str(os.getpid()))
    await asyncio.Event().wait()
"""


GET = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "none"}}


class Served:
    """A server with workers, in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process, self._folder = process, folder
        self.url = ""

    @property
    def output(self) -> str:
        return (self._folder / "out.txt").read_text()

    async def which(self) -> int:
        """The process that answers a new connection; nothing is tried twice."""
        async with httpx2.AsyncClient(timeout=60) as client:
            body = {
                "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "which?"}]}
            }
            answer = await client.post(
                f"{self.url}/message:send", json=body, headers={"A2A-Version": "1.0"}
            )
            assert answer.status_code == 200, answer.text
            return int(answer.json()["task"]["artifacts"][0]["parts"][0]["text"])

    async def all_workers(self, count: int = 2, besides: frozenset[int] = frozenset()) -> set[int]:
        """The workers that answer, once there are so many of them."""
        found: set[int] = set()

        async def enough() -> bool:
            found.add(await self.which())
            return len(found - besides) >= count

        await until(enough)
        return found - besides


@asynccontextmanager
async def serving(folder: Path, *flags: str, agent: str = AGENT) -> AsyncIterator[Served]:
    (folder / "agent.py").write_text(agent)
    out = folder / "out.txt"
    with out.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dragoman", "serve", "agent.py", "--port", "0", *flags),
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    served = Served(process, folder)
    try:
        await until(lambda: "listens at" in served.output or process.returncode is not None)
        assert process.returncode is None, served.output
        (line,) = [each for each in served.output.splitlines() if "listens at" in each]
        served.url = line.partition("listens at ")[2].split()[0].rstrip("/")
        yield served
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), 120)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_worker_that_dies_is_replaced_and_the_others_serve_on(tmp_path: Path) -> None:
    async with serving(tmp_path, "--workers", "2") as served:
        first = await served.all_workers()
        killed = min(first)
        os.kill(killed, signal.SIGKILL)
        # No connection is refused meanwhile: it waits for the next worker.
        now = await served.all_workers(2, besides=frozenset({killed}))
        assert first - {killed} < now
    assert served.process.returncode == 0
    assert not any(map(alive, now))


async def test_a_worker_that_is_suspended_is_ended_and_replaced(tmp_path: Path) -> None:
    """Inside a write it would hold up all others, since SQLite has one writer at a time."""
    async with serving(tmp_path, "--workers", "2") as served:
        first = await served.all_workers()
        suspended = min(first)
        os.kill(suspended, signal.SIGSTOP)
        await until(lambda: not alive(suspended))
        assert "A worker shows no sign of life" in served.output
        now = await served.all_workers(2, besides=frozenset({suspended}))
        assert first - {suspended} < now


async def test_a_reload_replaces_every_worker_and_refuses_no_call(tmp_path: Path) -> None:
    async with serving(tmp_path, "--workers", "2") as served:
        first = await served.all_workers()
        served.process.send_signal(signal.SIGHUP)
        calls = 0
        while "The workers were replaced" not in served.output:
            await served.which()
            calls += 1
        assert calls > 0
        assert not first & await served.all_workers()


async def test_workers_do_not_outlive_their_parent(tmp_path: Path) -> None:
    async with serving(tmp_path, "--workers", "2") as served:
        workers = await served.all_workers()
        served.process.kill()
        await served.process.wait()
        await until(lambda: not any(map(alive, workers)))
        port = int(served.url.rpartition(":")[2])
        socket.create_server(("127.0.0.1", port)).close()


async def test_a_task_is_watched_and_canceled_at_another_worker(tmp_path: Path) -> None:
    async with serving(tmp_path, "--workers", "2") as served:
        workers = await served.all_workers()
        async with connect(served.url) as agent:
            stream = agent.stream("x", skill="hang")
            task_id, runs_at = "", ""
            async for event in stream:
                task_id = event.task_id
                message = getattr(event.event, "message", None)
                if message is not None and message.text.isdigit():
                    runs_at = message.text
                    break
            assert int(runs_at) in workers
            # New connections reach both workers, so some of these calls reach the other one.
            for _ in range(8):
                async with connect(served.url) as another:
                    assert (await another.get(task_id)).state is State.WORKING
            async with connect(served.url) as another:
                await another.cancel(task_id)
            async for _ in stream:
                pass
            assert (await agent.get(task_id)).state is State.CANCELED


async def test_the_figures_of_all_workers_are_in_one_place(tmp_path: Path) -> None:
    async with serving(tmp_path, "--workers", "2") as served:
        for _ in range(10):
            await served.which()
        async with httpx2.AsyncClient(timeout=60) as client:
            for _ in range(4):
                text = (await client.get(f"{served.url}/metrics")).text
                counted = [each for each in text.splitlines() if "requests_total{" in each]
                assert sum(int(each.rpartition(" ")[2]) for each in counted) == 10
                assert 'dragoman_tasks{state="completed"} 10' in text


async def test_what_is_wrong_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("from dragoman import nothing_of_that_name\n")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dragoman", "serve", "agent.py", "--port", "0", "--workers", "3"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode != 0
    assert out.count(b"nothing_of_that_name") == 1


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (Server(workers=2, store="memory:"), "store that processes can share"),
        (Server(workers=2, port=0, grpc=True, grpc_port=0), "--grpc-port 8421"),
    ],
    ids=["memory", "grpc without a port"],
)
def test_what_workers_cannot_share_is_refused(server: Server, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        supervise(Settings(server=server), lambda sock: None)


def test_figures_are_added_up_but_not_those_of_the_store() -> None:
    one = b'# HELP dragoman_a A.\n# TYPE dragoman_a counter\ndragoman_a{x="1"} 2\n'
    store = b"# HELP dragoman_tasks T.\n# TYPE dragoman_tasks gauge\ndragoman_tasks 7\n"
    two = one.replace(b'"1"} 2', b'"1"} 3\ndragoman_a{x="2"} 0.5')
    assert added_up(one + store, [two + store]).decode().splitlines() == [
        "# HELP dragoman_a A.",
        "# TYPE dragoman_a counter",
        'dragoman_a{x="1"} 5',
        'dragoman_a{x="2"} 0.5',
        "# HELP dragoman_tasks T.",
        "# TYPE dragoman_tasks gauge",
        "dragoman_tasks 7",
    ]


async def test_a_rate_holds_over_all_workers(tmp_path: Path) -> None:
    """Each worker alone would admit as many."""
    (tmp_path / "dragoman.toml").write_text("[rates]\ncalls_per_minute = 100\n")
    async with serving(tmp_path, "--workers", "3") as served:
        began = time.monotonic()
        statuses: Counter[int] = Counter()
        for _ in range(240):
            # Each connection is new, so the system spreads them over the workers.
            async with httpx2.AsyncClient(timeout=60) as client:
                answer = await client.post(served.url, json=GET, headers={"A2A-Version": "1.0"})
            statuses[answer.status_code] += 1
            if answer.status_code == 429:
                assert int(answer.headers["retry-after"]) >= 1
        allowed = 100 + (time.monotonic() - began) * 100 / 60
        assert set(statuses) == {200, 429}
        assert statuses[200] == pytest.approx(allowed, rel=0.1)
