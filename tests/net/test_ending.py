"""A process that leaves right behind its listener leaves in good order.

Granian's threads want the interpreter once more before they end. One that is closing by then ends
them in a way that Rust answers with an abort. The scripts here make that likely: nobody is made to
hand over the interpreter, and nothing is left to do between the end of the listener and the exit.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # starts processes

TIMES = 30 if os.environ.get("DRAGOMAN_FULL") else 5
LEAVES = """
import asyncio, os, sys
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.settings import Limits

sys.setswitchinterval(5)
kind = sys.argv[1]

async def main():
    done = asyncio.Event()

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        if kind == "stream":
            await done.wait()
        await send({"type": "http.response.body", "body": b"over"})

    sock = bind("127.0.0.1", 0)
    port = sock.getsockname()[1]
    listener = GranianServer(app, sock, Limits())
    listener.begin()
    if kind != "unused":
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n")
        await reader.readuntil(b"begun" if kind == "stream" else b"over")
    listener.refuse()
    done.set()
    await listener.end(10.0)
    tasks = "/proc/self/task"
    if os.path.isdir(tasks):
        names = [open(f"{tasks}/{each}/comm").read() for each in os.listdir(tasks)]
        print([name for name in names if "listener" in name])

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["unused", "answered", "stream"])
def test_no_thread_of_the_listener_meets_an_interpreter_that_closes(kind: str) -> None:
    for _ in range(TIMES):
        left = subprocess.run(
            [sys.executable, "-c", LEAVES, kind], capture_output=True, text=True, timeout=120
        )
        assert (left.returncode, left.stderr) == (0, "")
        assert left.stdout in ("[]\n", "")
