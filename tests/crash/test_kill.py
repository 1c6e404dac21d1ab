"""`kill -9` under load, again and again: nothing that was told is ever taken back."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crash.check import (
    Counts,
    Kept,
    check_kept,
    check_told,
    count,
    integrity,
    read_sqlite,
    summary,
    unsettled_sqlite,
)
from crash.client import Client
from crash.load import Load, Memory
from crash.server import Server

FULL = os.environ.get("DRAGOMAN_FULL") == "1"
KILLS = 50 if FULL else 6
SETTLE = 90.0 if FULL else 40.0


async def under_fire(
    server: Server,
    memory: Memory,
    kills: int,
    seed: int,
    unsettled: Callable[[], int],
    after_kill: Callable[[], None] = lambda: None,
    settle: float = SETTLE,
) -> None:
    """Load and kills, then a last life in which everything comes to rest by itself."""
    dice = random.Random(seed)
    server.start()
    await server.ready()
    load = Load([server.url], memory, seed)
    loading = asyncio.create_task(load.run())
    try:
        for n in range(kills):
            if n % 7 == 3:
                await asyncio.sleep(dice.uniform(0.05, 0.6))  # perhaps before it is up again
            else:
                await server.ready()
                await asyncio.sleep(dice.uniform(0.3, 1.5))
            assert not loading.done(), loading.result()
            server.kill()
            after_kill()
            server.start()
        await server.ready()
        load.enough.set()
        until = time.monotonic() + settle
        while (not loading.done() or unsettled()) and time.monotonic() < until:
            await asyncio.sleep(0.2)
        if loading.done():
            loading.result()
    finally:
        loading.cancel()
        await asyncio.wait([loading])
        await load.close()


async def verdict(
    server: Server, memory: Memory, read: Callable[[], dict[str, Kept]], kills: int
) -> Counts:
    """Over HTTP while it runs, then from what lies on the disk."""
    client = Client(server.url)
    kept = read()
    compared = await check_told(memory, kept, client)
    await client.close()
    code, _ = await server.stop()
    assert code == 0, server.logged()
    kept = read()
    check_kept(memory, kept, server.ledger)
    return count(memory, kept, server.ledger, kills, compared)


@pytest.mark.slow
@pytest.mark.timeout(600 if FULL else 120)
async def test_kill_9_on_sqlite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = tmp_path / "tasks.db"
    memory, seed = Memory(), int(os.environ.get("CRASH_SEED", "1"))
    with Server(tmp_path, f"sqlite:///{db}") as server:
        await under_fire(server, memory, KILLS, seed, lambda: unsettled_sqlite(db))
        counts = await verdict(server, memory, lambda: read_sqlite(db), KILLS)
    with capsys.disabled():
        print(f"\n  kill -9, sqlite: {summary(counts, memory)}")
    assert integrity(db) == "ok"
    assert not memory.faults, f"{memory.faults}\n{server.logged()}"
    assert counts.acked >= 20 * KILLS
    assert counts.events_compared >= 100 * KILLS
    assert counts.streams_resumed >= 2 * KILLS
    assert counts.reruns >= KILLS
    assert counts.answers >= KILLS
    assert counts.cancels >= 1
    assert counts.keys >= KILLS / 2
    assert counts.steps_recorded >= 10 * KILLS
    assert counts.steps_executed > counts.steps_recorded  # some were cut down in the middle
