"""The edge under attack: an honest client is served throughout, nothing is lost, nothing stays.

The server has its default limits. The attacker comes from 127.0.0.2, the honest client from
127.0.0.1. `make test` attacks for a moment each and looks at the memory once all attacks are over;
`make test-full` attacks for a minute each and looks after each. Both print what the honest client
saw.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

import warm_start
from hostile.attacks import ATTACKS
from waiting import wait_until

FULL = bool(os.environ.get("DRAGOMAN_FULL"))
SECONDS = 60.0 if FULL else 0.8
HANG = 120.0
MOST = 1.2
"""What a server may hold after an attack, by what it held before."""
BUSY, PATIENT = 0.005, 0.1
"""The pace of an honest client: seconds between two calls, measured and while it only waits."""
HERE = Path(__file__).parent
V1 = {"A2A-Version": "1.0"}

pytestmark = pytest.mark.slow


class Besieged:
    """A server in a process of its own."""

    def __init__(self, url: str, pid: int) -> None:
        self.url, self.pid = url, pid
        self.port = int(url.rpartition(":")[2])
        self.headers = dict(V1)
        """What honest calls carry."""
        self.quiet: list[float] = []
        """How long honest calls took before any attack."""
        self.at_first = 0.0
        """Megabytes before any attack."""

    def rss(self) -> float:
        """Megabytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Besieged]:
    """A server with its default limits and these options."""
    command = [sys.executable, "-m", "dragoman", "serve", str(HERE / "agent.py"), "--port", "0"]
    log = folder / "log"
    with log.open("w") as out, warm_start.suspended():
        process = subprocess.Popen([*command, *options], cwd=folder, stderr=out, stdout=out)
    try:
        wait_until(lambda: " started " in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield Besieged(log.read_text().partition("url=")[2].split()[0], process.pid)
    finally:
        process.terminate()
        process.wait(HANG)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    with serving(tmp_path_factory.mktemp("besieged"), "--no-grpc") as besieged:
        asyncio.run(warm_up(besieged))
        besieged.quiet = asyncio.run(honest_for(besieged, 5.0 if FULL else 2.0))
        besieged.at_first = besieged.rss()
        yield besieged


def send(text: str, skill: str = "echo") -> dict[str, Any]:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    params = {"message": {**message, "metadata": {"skillId": skill}}}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}


def text_of(answer: httpx2.Response) -> str:
    task = answer.json()["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
    return str(task["artifacts"][0]["parts"][0]["text"])


async def honest(server: Besieged, stop: asyncio.Event, pace: float = BUSY) -> list[float]:
    """Works until it is told to stop; how long each call took, those of new connections too."""
    took = []
    async with httpx2.AsyncClient(
        base_url=server.url, headers=server.headers, timeout=HANG
    ) as kept:
        while not stop.is_set():
            for number in range(10):
                began = time.perf_counter()
                if number:
                    answer = await kept.post("/", json=send(f"hello {number}"))
                else:
                    async with httpx2.AsyncClient(headers=server.headers, timeout=HANG) as fresh:
                        answer = await fresh.post(server.url, json=send("hello 0"))
                took.append(time.perf_counter() - began)
                assert text_of(answer) == f"hello {number}"
                await asyncio.sleep(pace)  # as an honest client would
    return took


async def honest_for(server: Besieged, seconds: float, pace: float = BUSY) -> list[float]:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, stop.set)
    return await honest(server, stop, pace)


async def warm_up(server: Besieged) -> None:
    """As many honest calls at once as the largest attack has connections, each as large.

    So many calls at once need more small objects than a few calls one after another. Python keeps
    the arenas that they were in as soon as a single object there lives on: 12 MB more than the 69
    of a server that nobody ever called, after calls of any kind, and no more however often they
    come again. Nobody is to be accused of that, so `before` is measured after it.
    """

    async def some(calls: int) -> None:
        """Few enough for one client, which looks through all its connections for each call."""
        async with httpx2.AsyncClient(headers=V1, timeout=HANG) as client:
            sending = (client.post(server.url, json=send("x" * 30_000)) for _ in range(calls))
            for answer in await asyncio.gather(*sending):
                assert len(text_of(answer)) == 30_000

    calls = max(count for _, count in ATTACKS.values())
    await asyncio.gather(*(some(50) for _ in range(calls // 50)))
    until = time.monotonic() + HANG
    least = server.rss()
    while time.monotonic() < until:  # until what is free has been given back
        await honest_for(server, 25.0, PATIENT)
        if server.rss() > 0.95 * least:
            break
        least = server.rss()


async def attacked(server: Besieged, name: str, seconds: float, port: int = 0) -> int:
    """How many connections it took."""
    attacker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hostile.attacks", name, str(port or server.port), str(seconds)),
        cwd=HERE.parent,
        stdout=asyncio.subprocess.PIPE,
    )
    dialed = int((await attacker.communicate())[0])
    assert attacker.returncode == 0
    assert dialed > 0
    return dialed


async def settled(server: Besieged, before: float) -> float:
    """Megabytes as soon as they are about what they were before, else after a long time. Granian's
    allocator gives back what is free ten seconds later, as it is used; our own is trimmed every
    twenty."""
    until = time.monotonic() + HANG
    while (after := server.rss()) > MOST * before and time.monotonic() < until:
        await honest_for(server, 0.5, PATIENT)
    return after


def p99(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)] * 1000


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_honest_client_is_served_while_others_attack(
    server: Besieged, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = server.rss()
    stop = asyncio.Event()
    async with httpx2.AsyncClient(base_url=server.url, headers=V1, timeout=HANG + 60) as client:
        # On a run of its own: if a lease were lost, it would be failed as crashed.
        patient = asyncio.create_task(client.post("/", json=send(str(SECONDS + 1), "patient")))
        ended = asyncio.create_task(attacked(server, name, SECONDS))
        working = asyncio.create_task(honest(server, stop))
        peak = before
        while not ended.done():
            await asyncio.wait({ended, working}, timeout=0.2)
            if working.done():
                break
            peak = max(peak, server.rss())
        stop.set()
        under = await working
        dialed = await ended
        assert text_of(await patient) == "attempt 1"
    after = await settled(server, before) if FULL else server.rss()
    quiet = server.quiet
    with capfd.disabled():
        print(
            f"\n{name}: {len(under)} honest calls, p99 {p99(under):.0f} ms"
            f" ({p99(quiet):.0f} quiet, x{p99(under) / p99(quiet):.1f});"
            f" {dialed} connections; {before:.0f} MB before, {peak:.0f} at most, {after:.0f} after"
        )
    assert len(under) >= 10
    assert not FULL or after <= MOST * before


async def test_all_attacks_together_leave_nothing_in_memory(
    server: Besieged, capfd: pytest.CaptureFixture[str]
) -> None:
    """What one attack leaves and the next one leaves again is seen here too."""
    after = await settled(server, server.at_first)
    with capfd.disabled():
        print(f"\nall attacks: {server.at_first:.0f} MB before, {after:.0f} after")
    assert after <= MOST * server.at_first


@pytest.mark.parametrize("name", ["slow_readers", "slow_readers_of_little"])
async def test_bursts_one_after_another_leave_nothing_in_memory(
    server: Besieged, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The allocator learns from the first burst to keep large blocks too, so only a second one
    shows whether what is free goes back to the system."""
    await honest_for(server, 1.0)
    before = server.rss()
    figures = []
    for _ in range(3 if FULL else 2):
        await asyncio.gather(*(attacked(server, name, 1.5), honest_for(server, 1.5)))
        figures.append(await settled(server, before))
    with capfd.disabled():
        print(f"\nbursts of {name}: {before:.0f} MB before, {[round(at) for at in figures]} after")
    assert max(figures) <= MOST * before
