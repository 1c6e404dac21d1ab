"""Floods: an honest client keeps its pace, within a factor, while another address floods.

Each flood is a process of its own. The p99 of the honest client under it is compared with the
median of its p99 in quiet windows before and after; the median of three runs counts. Only
`make test-full` measures, since other work on the machine would be taken for the flood.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from counts import FULL
from hostile.attacks import FLOODS
from hostile.test_edge import Besieged, attacked, honest, honest_for, p99, serving
from ports import own_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FULL, reason="measures for minutes; make test-full does"),
]

RUNS = 3
FLOOD_SECONDS, QUIET_SECONDS = 10.0, 5.0
MAX_FACTOR = 10.0
"""How much longer the p99 may be under a flood."""
MAX_SECONDS = 8.0
"""The patience of an honest client with one call."""
TOKEN = "0123456789abcdef-honest"
SETTINGS = """
[auth.robots]
type = "bearer"
callers.honest = { secret = { env = "HONEST_TOKEN" } }
"""


@pytest.fixture
def flooded(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Besieged, int]]:
    """The server and the port that is flooded. Wrong credentials need a server with right ones."""
    name, grpc_port = request.getfixturevalue("name"), own_port()
    if name == "wrong_credentials":
        monkeypatch.setenv("HONEST_TOKEN", TOKEN)
        (tmp_path / "dragoman.toml").write_text(SETTINGS)
    with serving(tmp_path, "--grpc-port", str(grpc_port)) as server:
        if name == "wrong_credentials":
            server.headers["Authorization"] = f"Bearer {TOKEN}"
        yield server, grpc_port if name == "grpc_resets" else server.port


async def measure(server: Besieged, port: int, name: str) -> tuple[list[float], int]:
    """Returns how long honest calls took during one flood, and its connections."""
    stop = asyncio.Event()
    working = asyncio.create_task(honest(server, stop))
    dialed = await attacked(server, name, FLOOD_SECONDS, port)
    stop.set()
    return await working, dialed


@pytest.mark.parametrize("name", FLOODS)
async def test_an_honest_client_keeps_its_pace_under_a_flood(
    name: str, flooded: tuple[Besieged, int], capfd: pytest.CaptureFixture[str]
) -> None:
    server, port = flooded
    await honest_for(server, QUIET_SECONDS)  # warm
    quiet, under = [p99(await honest_for(server, QUIET_SECONDS))], []
    slowest = 0.0
    for _ in range(RUNS):
        took, dialed = await measure(server, port, name)
        under.append(p99(took))
        slowest = max(slowest, *took)
        quiet.append(p99(await honest_for(server, QUIET_SECONDS)))
    factor = statistics.median(under) / statistics.median(quiet)
    with capfd.disabled():
        print(
            f"\n{name}: p99 {[round(each, 1) for each in under]} ms, quiet"
            f" {[round(each, 1) for each in quiet]}, x{factor:.1f}; the slowest {slowest:.2f} s;"
            f" {dialed} connections"
        )
    assert slowest < MAX_SECONDS
    assert factor <= MAX_FACTOR
