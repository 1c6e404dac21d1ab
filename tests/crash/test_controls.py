"""The kill test without the guarantee it tests: it must turn red, or its green means nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from crash.check import read_sqlite, summary, unsettled_sqlite
from crash.fire import under_fire, verdict
from crash.load import Memory
from crash.server import Server
from crash.wal import lose_commits

KILLS = 2
SETTLE = 5.0


@pytest.mark.slow
async def test_a_slow_disk_alone_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other half of the next control: the window is as wide, the guarantee is there."""
    db, memory = tmp_path / "tasks.db", Memory()
    with Server(tmp_path, f"sqlite:///{db}", without="slow") as server:
        await under_fire(server, memory, KILLS, 11, lambda: unsettled_sqlite(db))
        counts = await verdict(server, memory, lambda: read_sqlite(db), KILLS)
    with capsys.disabled():
        print(f"\n  slow disk: {summary(counts, memory)}")
    assert not memory.faults, f"{memory.faults}\n{server.logged()}"
    assert counts.acked >= 20
    assert counts.streams_resumed >= 3


@pytest.mark.slow
async def test_an_acknowledgement_before_the_commit_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db, memory = tmp_path / "tasks.db", Memory()
    with Server(tmp_path, f"sqlite:///{db}", without="slow,ack") as server:
        await under_fire(server, memory, KILLS, 11, lambda: unsettled_sqlite(db), settle=SETTLE)
        counts = await verdict(server, memory, lambda: read_sqlite(db), KILLS, patience=3)
    with capsys.disabled():
        print(f"\n  control, ack before commit: {summary(counts, memory)}")
    assert memory.faults.kinds["acknowledged task lost"] > 0, memory.faults
    assert memory.faults.kinds["stream is not the log"] > 0, memory.faults


@pytest.mark.slow
async def test_a_disk_that_loses_commits_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`kill -9` alone cannot show what `synchronous=OFF` risks: the system still has every write.
    So the end of the log is cut off after each kill, as a power cut would."""
    db, memory, lost = tmp_path / "tasks.db", Memory(), 0

    def cut() -> None:
        nonlocal lost
        lost += lose_commits(db, 40)

    with Server(tmp_path, f"sqlite:///{db}") as server:
        await under_fire(
            server,
            memory,
            KILLS + 1,
            12,
            lambda: unsettled_sqlite(db),
            after_kill=cut,
            settle=SETTLE,
        )
        counts = await verdict(server, memory, lambda: read_sqlite(db), KILLS + 1, patience=3)
    with capsys.disabled():
        print(f"\n  control, {lost} commits lost: {summary(counts, memory)}")
    assert lost > 0
    assert memory.faults.kinds["acknowledged task lost"] > 0, memory.faults
