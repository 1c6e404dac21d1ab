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
from ports import own_port
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
HONEST_SECONDS = 8.0
"""Less than a connection may be held with half of its request."""
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[str, int]]:
    file = folder / "greedy.py"
    file.write_text(AGENT)
    command = [sys.executable, "-m", "dragoman", "serve", str(file), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--store", "memory:", *options], stderr=subprocess.PIPE, cwd=folder, text=True
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


HELD = {
    "half bodies": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"A2A-Version: 1.0\r\nContent-Length: 1000\r\n\r\n[",
    "half headers": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    "idle": GET,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HELD)
async def test_one_address_holds_all_descriptors_and_another_is_served(
    kind: str, tmp_path: Path
) -> None:
    """The hostile address holds what it gets, and dials again where it is cut off."""
    grpc_port = own_port()
    with served(tmp_path, "--grpc-port", str(grpc_port)) as (url, _):
        port = int(url.rpartition(":")[2])
        held = 0

        async def hold(to: int) -> None:
            nonlocal held
            while True:
                with suppress(OSError):
                    there = asyncio.open_connection("127.0.0.1", to, local_addr=("127.0.0.2", 0))
                    reader, writer = await there
                    try:
                        writer.write(HELD[kind])
                        held += 1
                        while await reader.read(1000):
                            pass
                    finally:
                        writer.transport.abort()
                await asyncio.sleep(0.2)  # and dials again

        hostile = [asyncio.create_task(hold(to)) for to in (port, grpc_port) for _ in range(150)]
        try:
            await until(lambda: held >= len(hostile))
            async with httpx2.AsyncClient(base_url=url, timeout=HONEST_SECONDS) as client:
                for _ in range(3):
                    assert (await client.get("/healthz")).status_code == 200
            async with httpx2.AsyncClient(base_url=url, timeout=HONEST_SECONDS) as client:
                assert (await client.get("/healthz")).status_code == 200
        finally:
            for each in hostile:
                each.cancel()
            await asyncio.gather(*hostile, return_exceptions=True)


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
