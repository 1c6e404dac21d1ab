"""The power goes while SQLite writes: what is left of its log is cut anywhere.

One life under load gives a database, a log, and for every acknowledgement how far the log had got.
Then images are made with the log cut at random places, some with rubbish behind the cut, and each
is opened: it must be whole, hold a beginning of every task's log, and all that was acknowledged
before the cut."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crash import wal
from crash.check import Kept, integrity, read_sqlite
from crash.client import Client
from crash.fire import FULL
from crash.load import Load, Memory
from crash.server import Server
from dragoman.core.lifecycle import FINAL
from dragoman.store import open_store
from waiting import until

IMAGES = 1000 if FULL else 50


class Watchful(Memory):
    """Remembers with each acknowledged task how far the database's log had got by then."""

    def __init__(self, db: Path) -> None:
        super().__init__()
        self.db = db
        self.safe: dict[str, wal.Place] = {}

    def ack(self, task: Any, kind: str) -> str:
        task_id = super().ack(task, kind)
        self.safe[task_id] = wal.place(self.db)
        return task_id


async def one_life(server: Server, memory: Watchful, enough: Callable[[wal.Place], bool]) -> None:
    server.start()
    await server.ready()
    load = Load([Client(server.url)], memory, seed=3)
    loading = asyncio.create_task(load.run())
    await until(lambda: enough(wal.place(memory.db)))
    server.kill()
    loading.cancel()
    await asyncio.wait([loading])


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [False, True])
async def test_every_cut_leaves_a_beginning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], restarted: bool
) -> None:
    """`restarted`: the log was copied into the database once and began anew, over its old self."""
    db = tmp_path / "tasks.db"
    memory = Watchful(db)
    first: list[bytes] = []

    def enough(place: wal.Place) -> bool:
        first.append(place.generation)
        return place.frames > 600 and (place.generation != first[0] or not restarted)

    with Server(tmp_path, f"sqlite:///{db}") as server:
        await one_life(server, memory, enough)

    log = db.with_name("tasks.db-wal").read_bytes()
    commits, now = wal.commits(log), wal.generation(log)
    assert len(commits) > 20
    whole = image(tmp_path / "whole", db, log)
    assert integrity(whole) == "ok"
    full = read_sqlite(whole)
    assert all(task_id in full for task_id in memory.safe)

    dice, before, kinds = random.Random(7), wal.offset(log, 0), {"cut": 0, "rubbish": 0}
    end = wal.offset(log, commits[-1])
    seen: set[int] = set()
    checked = 0
    for n in range(IMAGES // 2):
        cut = dice.randrange(before, end + 1) if n else before
        kind = dice.choice(("cut", "rubbish"))
        kinds[kind] += 1
        rubbish = dice.randbytes(dice.randrange(1, 20_000)) if kind == "rubbish" else b""
        path = image(tmp_path / f"image{n}", db, log[:cut] + rubbish)
        there = sum(1 for frames in commits if wal.offset(log, frames) <= cut)
        safe = commits[there - 1] if there else 0
        seen.add(safe)
        assert integrity(path) == "ok", f"cut at {cut}"
        left = read_sqlite(path)
        for one in left.values():
            check_beginning(one, full[one.task_id])
        for task_id, place in memory.safe.items():
            if place.generation != now or place.frames <= safe:
                assert task_id in left, f"{task_id} was acknowledged at {place}, cut at {cut}"
                checked += 1
        if n % 5 == 0:
            await opens(path, left)
        shutil.rmtree(path.parent)
    with capsys.disabled():
        print(
            f"\n  power cut{', log restarted' if restarted else ''}: {kinds} commits={len(commits)}"
            f" different={len(seen)} tasks={len(full)} acks-checked={checked}"
        )
    assert len(seen) > min(IMAGES // 2, len(commits)) / 4
    assert checked > 0


def image(folder: Path, db: Path, log: bytes) -> Path:
    """A database as the disk might show it after the power is back."""
    folder.mkdir()
    path = folder / db.name
    shutil.copyfile(db, path)
    path.with_name(db.name + "-wal").write_bytes(log)
    shutil.copytree(db.with_name(db.name + "-workers"), folder / f"{db.name}-workers")
    return path


def check_beginning(one: Kept, full: Kept) -> None:
    """The log is the first part of what it once was, and the row tells the same."""
    assert one.entries == full.entries[: one.last_seq]
    assert [entry.seq for entry in one.entries] == list(range(1, one.last_seq + 1))
    assert one.fold().status.state is one.state
    assert (one.state in FINAL) == (one.frozen is not None or one.brief)
    assert one.records == full.records[: len(one.records)]


async def opens(path: Path, left: dict[str, Kept]) -> None:
    """Our own store takes it up: what was running can run again."""
    store = open_store(f"sqlite:///{path}")
    await store.open()
    try:
        await store.enlist("after", 60_000)
        taken = await store.reap()
        counts = await store.count_by_state("Crash")
    finally:
        await store.close()
    running = [one for one in left.values() if one.worker]
    assert sorted(taken) == sorted(one.task_id for one in running)
    assert sum(counts.values()) - counts["runnable"] == len(left)
