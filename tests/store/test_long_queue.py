"""What a claim costs does not depend on the length of the queue."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from counts import count
from dragoman.store import open_store
from dragoman.store.clock import wall_clock
from dragoman.store.limits.run_limits import FIRST, LANES, NO_LIMITS, RunLimits
from dragoman.store.postgres import statements as sql
from dragoman.store.postgres.address import parse_address
from dragoman.store.postgres.pool import DatabasePool
from dragoman.store.sqlite.claims import SqliteQueue
from dragoman.testing.stores import HandClock
from postgres import store_url
from store.long_queue import AGENT, fill

SHORT, LONG = 3_000, count(9_000, 15_000, 100_000)
LIMITS = {
    "no limits": NO_LIMITS,
    "a full tenant": RunLimits(per_tenant=1),
    "a full skill": RunLimits(skills={"plan": 1}),
}


async def _made(url: str, length: int) -> None:
    clock = HandClock()
    store = open_store(url, clock=clock)
    await store.open()
    await store.close()
    await fill(url, length, clock.now - length)


def _steps(path: Path, limits: RunLimits) -> int:
    """Returns the number of steps of SQLite's virtual machine for one claim."""
    db = sqlite3.connect(path)
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    db.set_progress_handler(step, 1)
    chosen = SqliteQueue(db).pick(AGENT, 64, limits, HandClock().now)
    db.close()
    assert chosen
    return steps


async def test_a_claim_takes_as_many_steps_from_a_long_queue_of_sqlite(tmp_path: Path) -> None:
    paths = {length: tmp_path / f"{length}.db" for length in (SHORT, LONG)}
    for length, path in paths.items():
        await _made(f"sqlite:///{path}", length)
        # One task of the tenant and the skill with the longest queue runs.
        with sqlite3.connect(path) as db:
            db.execute("UPDATE task SET runnable = 0, worker = 'w' WHERE task_id = 't000000001'")
        db.close()
    for name, limits in LIMITS.items():
        short, long = (_steps(path, limits) for path in paths.values())
        assert long == pytest.approx(short, rel=0.1), name


async def _explained(pool: DatabasePool, text: str, *arguments: Any) -> int:
    """Returns how many pages PostgreSQL reads for a statement, and checks that it sorts nothing
    that grows with the queue."""
    explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
    found = await pool.read(lambda db: db.fetchval(explain + text, *arguments))
    (plan,) = json.loads(found)
    return int(plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"])


@pytest.mark.slow  # starts PostgreSQL
async def test_a_claim_reads_as_many_pages_of_a_long_queue_of_postgresql(tmp_path: Path) -> None:
    now = HandClock().now
    pages: dict[int, list[int]] = {}
    for length in (SHORT, LONG):
        folder = tmp_path / str(length)
        url = store_url(folder)
        await _made(url, length)
        pool = DatabasePool(parse_address(url), wall_clock)
        await pool.open()
        lanes = (["big", "tenant0"], ["plan", "draw"], [60, 4])
        pages[length] = [
            await _explained(pool, sql.LANES, AGENT, *FIRST, LANES, 64, now),
            await _explained(pool, sql.CLAIMABLE, AGENT, *lanes, now),
        ]
        await pool.close()
    # The index of a long queue has one level more.
    for short, long in zip(pages[SHORT], pages[LONG], strict=True):
        assert long <= 2 * short + 20, pages
