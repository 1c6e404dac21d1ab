"""A stream outlives the server it began on: killed without warning, started again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from client.our_server import QUICK, SECRET
from dragoman import State, connect
from dragoman.client import SharedSecret
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
        ports = ["--port", str(self.port), "--grpc", "--grpc-port", str(self.grpc)]
        return subprocess.Popen(
            [*command, *ports],
            cwd=self.folder,
            env={**os.environ, "IAT_SECRET": SECRET},
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
@pytest.mark.parametrize("way", ["http", "a2a+grpc", "iat+http", "iat+ws"])
async def test_a_stream_outlives_its_server(tmp_path: Path, way: str) -> None:
    server = Server(tmp_path)
    try:
        await server.ready()
        url = f"{way}://127.0.0.1:{server.grpc if way == 'a2a+grpc' else server.port}"
        auth = SharedSecret(SECRET, to="Counter") if way.startswith("iat") else None
        async with connect(url, auth=auth, limits=QUICK) as agent:
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
