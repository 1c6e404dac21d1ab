"""No file descriptors left: the server goes on, and does not spin."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from net.served_peer import open_server
from waiting import until

AGENT = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (140, 140))
from dragoman import Agent, Turn

agent = Agent("Greedy", description="Opens files.")
opened = []

@agent.skill("open")
async def open_files(turn: Turn) -> str:
    try:
        while True:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return str(len(opened))
"""
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, int]]:
    file = folder / "greedy.py"
    file.write_text(AGENT)
    command = [sys.executable, "-m", "dragoman", "serve", str(file), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--store", "memory:"], stderr=subprocess.PIPE, cwd=folder, text=True
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "url=" in line:
                yield line.partition("url=")[2].split()[0], process.pid
                break
        else:
            pytest.fail("it did not start")
    finally:
        process.terminate()
        process.communicate(timeout=60)


def spent_in(pid: int, seconds: float) -> float:
    before = cpu(pid)
    time.sleep(seconds)  # what is measured: the CPU time spent in it
    spent = cpu(pid) - before
    print(f"{spent:.2f} s of CPU in {seconds} s")
    return spent


@pytest.mark.slow
def test_a_server_without_free_descriptors_does_not_spin(tmp_path: Path) -> None:
    with served(tmp_path) as (url, pid), ExitStack() as stack:
        port = int(url.rpartition(":")[2])
        for _ in range(150):  # more than it may ever have
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            sock.sendall(GET)
        assert spent_in(pid, 4) < 0.5
        stack.close()
        assert httpx2.get(f"{url}/healthz", timeout=60).status_code == 200


@pytest.mark.slow
def test_an_agent_that_takes_all_descriptors_leaves_the_server_alive(tmp_path: Path) -> None:
    send = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}
    said = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
    with served(tmp_path) as (url, pid), ExitStack() as stack:
        port = int(url.rpartition(":")[2])
        for _ in range(40):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            sock.sendall(GET)
            assert sock.recv(1000)
        with httpx2.Client(base_url=url, headers={"A2A-Version": "1.0"}, timeout=60) as client:
            answer = client.post("/", json={**send, "params": {"message": said}})
            assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
            # Idle connections make room for new ones.
            assert httpx2.get(f"{url}/healthz", timeout=60).status_code == 200
        assert spent_in(pid, 4) < 0.5


async def test_looking_works_without_a_free_descriptor() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with open_server(hello_time=0.4) as home:
        reader, writer = await asyncio.open_connection("127.0.0.1", home.port)
        writer.write(b"P")
        await until(lambda: home.listener.connections._open)
        # A little above what this process has open already, so that the connection is below it.
        limit = max(int(each) for each in os.listdir("/proc/self/fd")) + 32
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, limit), hard))
        taken = []
        try:
            while True:
                try:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
                except OSError:
                    break
            async with asyncio.timeout(60):
                with suppress(ConnectionError):
                    assert await reader.read() == b""
        finally:
            for fd in taken:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            writer.close()
