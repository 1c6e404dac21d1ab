"""`kill -9` under load, again and again: nothing that was told is ever taken back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crash.check import integrity, read_sqlite, summary, unsettled_sqlite
from crash.fire import FULL, under_fire, verdict
from crash.load import Memory
from crash.server import Server

KILLS = 50 if FULL else 6


@pytest.mark.slow
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
    assert counts.streams_resumed >= KILLS
    assert counts.reruns >= KILLS
    assert counts.answers >= KILLS
    assert counts.cancels >= 1
    assert counts.keys >= 1
    assert counts.steps_recorded >= 10 * KILLS
    assert counts.steps_executed > counts.steps_recorded  # some were cut down in the middle


@pytest.mark.slow
async def test_a_task_that_could_not_be_taken_up_is_taken_up_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A claim that is held by a living process which does not run it: stuck for ever, unless what
    the store says and what really runs are compared now and then."""
    db, memory = tmp_path / "tasks.db", Memory()
    with Server(tmp_path, f"sqlite:///{db}", without="flaky,lease") as server:
        await under_fire(server, memory, 2, 21, lambda: unsettled_sqlite(db), settle=30)
        counts = await verdict(server, memory, lambda: read_sqlite(db), 2)
    with capsys.disabled():
        print(f"\n  flaky store: {summary(counts, memory)}")
    assert not memory.faults, f"{memory.faults}\n{server.logged()}"
    assert counts.reruns >= 5
    assert "claimed but does not run is resumed" in server.logged()
