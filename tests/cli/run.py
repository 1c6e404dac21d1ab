"""The command line in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ENVIRON = {k: v for k, v in os.environ.items() if not k.startswith("DRAGOMAN_")}
AGENT = """
import asyncio
from dragoman import Agent, Turn

agent = Agent("Tester", description="For tests.")

@agent.skill("echo", default=True)
async def echo(turn: Turn) -> str:
    return turn.text.upper()

@agent.skill("long")
async def long(turn: Turn):
    for number in range(600):
        await asyncio.sleep(0.1)  # its work
        yield f"{number} "
"""


def dragoman(*args: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "dragoman", *args],
        cwd=cwd,
        env={**ENVIRON, **environ},
        capture_output=True,
        text=True,
        timeout=120,
    )


class Served:
    """A server that runs."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.url = process, url
        self.port = int(url.rpartition(":")[2])

    def end(self, *signals: int) -> tuple[int, float, str]:
        """Exit code, seconds to the end and what it logged."""
        began = time.monotonic()
        *before, last = signals or (signal.SIGTERM,)
        for number in before:
            self.process.send_signal(number)
            assert self.process.stderr is not None
            while "stopping" not in self.process.stderr.readline():
                assert self.process.poll() is None
        self.process.send_signal(last)
        _, logged = self.process.communicate(timeout=120)
        return self.process.returncode, time.monotonic() - began, logged


@contextmanager
def serving(*args: str, cwd: Path, command: str = "serve", **environ: str) -> Iterator[Served]:
    """`dragoman serve ARGS`, or another command, on a free port, ready for requests."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dragoman", command, *args, "--port", "0"],
        cwd=cwd,
        env={**ENVIRON, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"https?://[^\s/]+", line)
        assert found, line + process.communicate(timeout=120)[1]
        yield Served(process, found[0])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
