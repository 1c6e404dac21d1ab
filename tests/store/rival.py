"""A process that claims and ends tasks of a SQLite file, beside others doing the same.

Usage: python rival.py FILE WORKER [hold]
Prints each task it ended; with `hold` it claims one, says so, and waits to be killed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dragoman.core.events import StateChanged
from dragoman.core.lifecycle import Fold
from dragoman.core.model import State
from dragoman.store import Store, open_store
from dragoman.testing.stores import HandClock, StoreFixture
from dragoman.testing.stores.fixture import AGENT, ALICE


async def main(file: str, worker: str, hold: bool) -> None:
    async with StoreFixture(make, Path(file), worker) as fixture:
        while rows := await fixture.store.claim(worker, AGENT, 3):
            for row in rows:
                if hold:
                    print(row.task_id, flush=True)
                    await asyncio.sleep(600)  # until it is killed
                _, task = await fixture.store.load(ALICE, row.task_id)
                fixture.folds[row.task_id] = Fold.of(task, row.last_seq)
                for state in (State.WORKING, State.WORKING, State.COMPLETED):
                    await fixture.append(fixture.write(row.claim, StateChanged(state=state)))
                print(row.task_id, flush=True)
        await fixture.store.retire(worker)


async def make(file: Path, clock: HandClock) -> Store:
    return open_store(f"sqlite:///{file}", clock=clock)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], "hold" in sys.argv))
