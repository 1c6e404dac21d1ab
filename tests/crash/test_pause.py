"""Two servers on one SQLite file, one of them asleep for longer than its lease, or killed.

When it wakes up it believes that it still runs its tasks. The other one has them by then."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from crash.check import (
    Counts,
    check_kept,
    check_told,
    count,
    integrity,
    read_sqlite,
    settled,
    summary,
    unsettled_sqlite,
)
from crash.client import Client
from crash.fire import ATTEMPTS, FULL
from crash.load import Load, Memory, nearly_done
from crash.server import Server

PAUSES = 30 if FULL else 2
NEARLY = 8
ASLEEP = 5.0
"""Seconds: the lease (1.5), a look for the dead, the pause before a second attempt, a whole run."""


async def with_pauses(
    folder: Path, without: str, memory: Memory, pauses: int, *, control: bool = False
) -> Counts:
    """Load on both, each asleep in turn and sometimes killed before; then everything comes to
    rest and is judged. A control has less time: its tasks may never rest."""
    db = folder / "tasks.db"
    store = f"sqlite:///{db}"
    with (
        Server(folder, store, without, "one") as one,
        Server(folder, store, without, "other") as other,
    ):
        for server in (one, other):
            server.start()
        for server in (one, other):
            await server.ready()
        load = Load([Client(one.url), Client(other.url)], memory, seed=pauses)
        loading = asyncio.create_task(load.run())
        try:
            for n in range(pauses):
                sleeper = (one, other)[n % 2]
                await asyncio.sleep(0.7)  # under load
                if n % 3 == 1 and not control:
                    sleeper.kill()
                    await asyncio.sleep(0.5)  # the other one alone under load
                    sleeper.start()
                    await sleeper.ready()
                    await asyncio.sleep(0.7)  # under load
                for late in range(NEARLY):
                    await nearly_done(load.clients[n % 2], memory, 0.15 + 0.05 * late)
                await sleeper.pause(db)
                await asyncio.sleep(ASLEEP)  # longer than its lease
                sleeper.go_on()
            await asyncio.sleep(0.5)  # under load
            load.enough.set()
            await settled(loading, lambda: unsettled_sqlite(db), 4 if control else 40)
        finally:
            for server in (one, other):
                server.go_on()
            loading.cancel()
            await asyncio.wait([loading])
        compared = 0
        kept = read_sqlite(db)
        for server in (one, other):
            patience = 2.0 if control else 20.0
            compared += await check_told(memory, kept, Client(server.url), patience)
        for server in (one, other):
            code, _ = await server.stop()
            assert code == 0, server.logged()
    check_kept(memory, read_sqlite(db), one.ledger, alone=False)
    assert integrity(db) == "ok"
    kills = one.lives + other.lives - 2
    return count(memory, kept, one.ledger, kills, compared)


def fenced(folder: Path) -> int:
    """How many writes were refused because their writer had lost the task."""
    path = folder / "fenced"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.slow
async def test_a_server_that_slept_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = Memory()
    counts = await with_pauses(tmp_path, "lease,count", memory, PAUSES)
    with capsys.disabled():
        print(f"\n  {PAUSES} pauses: fenced={fenced(tmp_path)} {summary(counts, memory)}")
    log = (tmp_path / "one.log").read_text() + (tmp_path / "other.log").read_text()
    assert not memory.faults, f"{memory.faults}\n{log[-4000:]}"
    assert fenced(tmp_path) >= PAUSES
    assert counts.kills >= PAUSES // 3
    assert counts.reruns >= PAUSES
    assert counts.acked >= 20 * PAUSES


@pytest.mark.slow
async def test_a_missing_fence_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a pause hits is chance, so the control is repeated until both faults were seen."""
    wanted = {"second terminal event", "event after a terminal one"}
    for attempt in range(ATTEMPTS):
        folder, memory = tmp_path / str(attempt), Memory()
        folder.mkdir()
        counts = await with_pauses(folder, "lease,fence", memory, 2, control=True)
        with capsys.disabled():
            print(f"\n  control, no fence: {summary(counts, memory)}")
        wanted -= {kind for kind, times in memory.faults.kinds.items() if times}
        if not wanted:
            return
    raise AssertionError(f"not seen: {wanted}")
