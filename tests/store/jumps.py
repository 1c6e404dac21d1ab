"""A store in a process whose wall clock jumps (libfaketime). Prints what became of its tasks.

Usage: LD_PRELOAD=libfaketime.so.1 FAKETIME_TIMESTAMP_FILE=FILE python jumps.py URL
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from dragoman.store import Store, open_store
from dragoman.store.clock import wall_clock
from dragoman.testing.stores import HandClock, StoreFixture
from dragoman.testing.stores.fixture import AGENT, ALICE, LEASE

REAL = time.time() - time.monotonic()


def jump(seconds: int) -> None:
    """Sets the wall clock to so many seconds from the real time."""
    path = Path(os.environ["FAKETIME_TIMESTAMP_FILE"])
    spare = path.with_suffix(".new")
    spare.write_text(f"{seconds:+d}\n")
    spare.replace(path)
    until = time.monotonic() + 60
    while abs(time.time() - time.monotonic() - REAL - seconds) > 5:
        assert time.monotonic() < until, "the clock does not jump"


async def _taken(store: Store) -> list[str]:
    """Claims what there is, as an engine that looks again and again."""
    until = time.monotonic() + 60
    taken: set[str] = set()
    while len(taken) < 2 and time.monotonic() < until:
        taken |= {row.task_id for row in await store.claim("w2", AGENT, 9)}
        await asyncio.sleep(0.05)  # and looks again
    return sorted(taken)


async def main(url: str) -> None:
    async def make(folder: Path, clock: HandClock) -> Store:
        return open_store(url)

    found: dict[str, object] = {}
    async with StoreFixture(make, Path()) as fixture:
        fixture.clock.now = wall_clock()
        row = await fixture.open_task("running")
        await fixture.store.release((await fixture.open_task("free")).claim, runnable=True)
        jump(120)
        found["reaped after +120 s"] = await fixture.store.reap()
        found["beats after +120 s"] = await fixture.store.beat("w1", LEASE)
        found["holder after +120 s"] = (await fixture.store.row(ALICE, "running")).worker
        jump(-3600)
        found["reaped after -3600 s"] = await fixture.store.reap()
        found["claimed after -3600 s"] = [
            row.task_id for row in await fixture.store.claim("w1", AGENT, 9)
        ]
        await fixture.store.release(row.claim, runnable=True)
    if url != "memory:":
        async with StoreFixture(make, Path(), "w2") as fixture:
            # As after a restart: whoever held a task is gone.
            jump(-7200)
            await fixture.store.reap()
            found["taken after a restart at -7200 s"] = await _taken(fixture.store)
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
