"""Agents on Node's plain `http2`, which announces no limit of concurrent streams."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dragoman import State, connect
from security.certs import Authority
from security.raw_server import client, get, on_both_loops
from waiting import LIMIT

SCRIPT = Path(__file__).parent / "node" / "http2_agent.mjs"


@contextmanager
def node_agent(*tls: str) -> Iterator[int]:
    """The port of the agent, in a process of its own."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node on PATH")
    process = subprocess.Popen([node, str(SCRIPT), *tls], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@on_both_loops
async def test_an_open_stream_does_not_hold_up_other_calls(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    with node_agent(*ours.issue("server")) as port:
        async with (
            asyncio.timeout(LIMIT),
            connect(f"https://127.0.0.1:{port}", ca=ours.ca, timeout=10) as agent,
        ):
            streams = [agent.stream("wait") for _ in range(20)]
            firsts = [await anext(aiter(stream)) for stream in streams]
            assert (await agent.send("hi")).text == "hi"
            for first in firsts:
                canceled = await agent.cancel(first.task_id)
                assert canceled.state is State.CANCELED
            for stream in streams:
                assert (await stream.result()).state is State.CANCELED


@pytest.mark.slow
@on_both_loops
async def test_a_call_is_not_held_back_by_nagle() -> None:
    """Two small writes of which the second waits for a delayed acknowledgement take 40 ms, each
    time. A loaded machine may be slow for some calls, but not for all of them."""
    with node_agent() as port:
        async with client(prior_knowledge=True) as http:
            times = []
            for _ in range(20):
                start = time.perf_counter()
                ask = json.dumps(
                    {"id": 1, "method": "SendMessage", "params": {"message": {"parts": []}}}
                )
                url = f"http://127.0.0.1:{port}/"
                reply = await http.request("POST", url, body=ask.encode(), seconds=LIMIT)
                assert reply.status == 200
                times.append(time.perf_counter() - start)
            assert min(times) < 0.03, times
            reply = await get(http, f"http://127.0.0.1:{port}/sessions")
            assert json.loads(reply.body) == {"sessions": 1}
