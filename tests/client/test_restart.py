"""A stream outlives the server it began on: killed without warning, started again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from client.our_server import QUICK
from dragoman import State, connect
from dragoman.core.events import Stamped
from ports import own_port
from waiting import until

AGENT = """
import asyncio
from dragoman import Agent

agent = Agent("Counter")


@agent.skill("count")
async def count(turn):
    for number in range(20):
        await turn.step(f"step {number}", lambda: None)
        yield f"{number} "
        await asyncio.sleep(0.1)  # its work
"""


class Server:
    """`dragoman serve` on one port, as often as it takes."""

    def __init__(self, folder: Path) -> None:
        (folder / "agent.py").write_text(AGENT, "utf-8")
        self.folder, self.port, self.grpc = folder, own_port(), own_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        store = f"sqlite:///{self.folder / 'tasks.db'}"
        command = [sys.executable, "-m", "dragoman", "serve", "agent.py", "--store", store]
        ports = ["--port", str(self.port), "--grpc-port", str(self.grpc)]
        return subprocess.Popen(
            [*command, *ports],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill_and_start(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = self._start()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    async def ready(self) -> None:
        await until(self._up)

    async def _up(self) -> bool:
        assert self._process.poll() is None, "the server did not start"
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["a2a-1.0", "a2a-1.0-grpc"])
async def test_a_stream_outlives_its_server(tmp_path: Path, dialect: str) -> None:
    server = Server(tmp_path)
    try:
        await server.ready()
        async with connect(server.url, dialect=dialect, limits=QUICK) as agent:
            events = agent.stream("go")
            numbers: list[int] = []
            async for event in events:
                assert isinstance(event, Stamped)
                numbers.append(event.seq)
                if len(numbers) == 8:
                    await asyncio.to_thread(server.kill_and_start)
            assert numbers == list(range(1, len(numbers) + 1))
            assert events.connections == 2
            assert events.task is not None
            assert events.task.state is State.COMPLETED
            assert events.task == await agent.get(events.task)
    finally:
        await asyncio.to_thread(server.stop)
