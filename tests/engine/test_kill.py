"""`kill -9` in the middle of the work, for real: the next process ends every acknowledged task."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from dragoman import State
from engine.harness import EngineHarness, checked, ended, terminals, until
from engine.victim import STEPS, agent_in

TESTS = Path(__file__).parent.parent


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("after", [3, 7])
async def test_every_acknowledged_task_ends(
    durable: EngineHarness, tmp_path: Path, after: int
) -> None:
    did = tmp_path / "did"
    victim = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "engine.victim", durable.url, str(tmp_path)),
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    try:
        await until(lambda: (tmp_path / "pid").exists() and _count(did) >= after, 60)
    finally:
        victim.send_signal(signal.SIGKILL)
        await victim.wait()
    waiting, *working = (tmp_path / "acked").read_text().split()
    before = did.read_text().split()

    # No lease to wait for: the lock of a dead process tells.
    async with durable.client(agent_in(tmp_path, 0)) as client:
        await durable.later(client, 5)
        for task_id, name in zip(working, "ab", strict=True):
            task = await ended(client, task_id)
            assert task.state is State.COMPLETED
            assert task.text == "".join(f"{name}{n} " for n in range(STEPS)) + "end"
            said = [m.text for m in task.history]
            assert said == [name, *(f"say {n}" for n in range(STEPS))]
            assert terminals(await checked(client, task_id)) == [State.COMPLETED]
        assert (await client.get(waiting)).state is State.INPUT_REQUIRED
        task = await client.send("yes", task=waiting)
        assert task.text == "looked yes"
        assert [m.text for m in task.history].count("hello") == 1
        await checked(client, waiting)
    counted = Counter(did.read_text().split())
    assert len(before) >= after
    assert counted["looked"] == 1
    # Done twice is only what was done and not yet recorded when the end came: one step a task.
    for name in "ab":
        again = [n for n in range(STEPS) if counted[f"{name}{n}"] != 1]
        assert len(again) <= 1
        assert all(counted[f"{name}{n}"] == 2 for n in again)


def _count(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0
