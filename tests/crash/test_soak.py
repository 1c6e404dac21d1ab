"""A server that works on and on with a short retention: nothing of it grows."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from counts import count
from crash.client import Client, message, sending
from crash.server import Server
from waiting import before_again, until

SECONDS = count(2, 3, 180)
KEPT = 2
"""Seconds for which finished tasks are kept."""
CALLERS = 4


def size_of(pid: int) -> tuple[float, int]:
    """The memory of a process in MiB, and how many descriptors it has open."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir(f"/proc/{pid}/fd"))


def tasks_in(db: Path) -> int:
    with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT count(*) FROM task").fetchone()[0])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
async def test_a_server_that_works_on_does_not_grow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db, done = tmp_path / "tasks.db", 0
    with Server(tmp_path, f"sqlite:///{db}") as server:
        server.environ |= {
            "DRAGOMAN_LIMITS_KEEP_EVENTS": "1",
            "DRAGOMAN_LIMITS_KEEP_TASKS": str(KEPT),
        }
        server.start()
        await server.ready()
        client = Client(server.url)

        async def call(end: float) -> None:
            nonlocal done
            while time.monotonic() < end:
                await client.call("SendMessage", sending(message("hello", f"m{done}", "echo")))
                done += 1
                await before_again()

        async def work(seconds: float) -> tuple[float, int]:
            end = time.monotonic() + seconds
            await asyncio.gather(*(call(end) for _ in range(CALLERS)))
            return size_of(server.process.pid)

        memory, descriptors = await work(SECONDS / 3)
        later, still = await work(2 * SECONDS / 3)
        await until(lambda: tasks_in(db) == 0)
        with capsys.disabled():
            print(
                f"\n  {done} tasks in {SECONDS} s: {memory:.1f} MiB, later {later:.1f} MiB, "
                f"{descriptors} descriptors, later {still}"
            )
        assert done > 10 * SECONDS / 3
        assert later < memory + 16
        assert still < descriptors + CALLERS + 8
        code, _ = await server.stop()
        assert code == 0, server.logged()
