"""A process that works on a store until it is killed, and prints what was acknowledged.

Usage: python -m dragoman.testing.stores.crash_worker FILE CLASS FOLDER
"""

from __future__ import annotations

import asyncio
import runpy
import sys
from pathlib import Path
from uuid import uuid4

from dragoman.core.events import StateChanged
from dragoman.core.model import State

from .contract import StoreContract
from .fixture import StoreFixture


async def work(contract: StoreContract, folder: Path) -> None:
    """Works on ten tasks at a time. About every fifth one ends."""
    async with contract.fixture(folder) as fixture, asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(_tasks(fixture))


async def _tasks(fixture: StoreFixture) -> None:
    while True:
        task_id = str(uuid4())
        row = await fixture.open_task(task_id)
        _say(task_id, 2)
        for seq in range(3, 8):
            await fixture.append(fixture.write(row.claim, StateChanged(state=State.WORKING)))
            _say(task_id, seq)
        if task_id.endswith(("0", "1", "2")):
            await fixture.end(row)
            _say(task_id, 8)


def _say(task_id: str, seq: int) -> None:
    sys.stdout.write(f"{task_id} {seq}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    file, name, folder = sys.argv[1:]
    asyncio.run(work(runpy.run_path(file)[name](), Path(folder)))
