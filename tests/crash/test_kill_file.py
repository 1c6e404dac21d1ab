"""`kill -9` on a folder of logs, with lines torn in the middle."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from crash.check import read_folder, summary
from crash.fire import FULL, under_fire, verdict
from crash.load import Memory
from crash.server import Server

KILLS = 20 if FULL else 3


class Tearing:
    """What a crash leaves of a line that was being written: its beginning."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.tasks = folder / "tasks"
        self.torn = 0
        self._dice = random.Random(seed)

    def __call__(self) -> None:
        live = 0
        for path in self.tasks.glob("*.jsonl"):
            data = path.read_bytes()
            whole, _, torn = data.rpartition(b"\n")
            last = whole.rpartition(b"\n")[2]
            if torn or not last or b'"task":{' in last:
                continue  # torn already; never begun; or ended: nothing more is ever written
            live += 1
            if self._dice.random() < 0.6:
                with path.open("ab") as file:
                    file.write(last[: self._dice.randrange(1, len(last))])
                self.torn += 1
        if live:
            half = self.tasks / f"01900000-0000-7000-8000-{self._dice.getrandbits(48):012x}.jsonl"
            half.write_bytes(b'{"at":"2026-01-01T00:00:00.000+00:00","what":"opened: h')
            self.torn += 1


@pytest.mark.slow
async def test_kill_9_on_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, memory = tmp_path / "store", Memory()
    tearing = Tearing(folder, 5)

    def unsettled() -> int:
        return sum(1 for one in read_folder(folder).values() if not one.resting)

    with Server(tmp_path, f"file://{folder}") as server:
        await under_fire(server, memory, KILLS, 5, unsettled, after_kill=tearing)
        counts = await verdict(server, memory, lambda: read_folder(folder), KILLS)
    with capsys.disabled():
        print(f"\n  kill -9, file: torn={tearing.torn} {summary(counts, memory)}")
    assert not memory.faults, f"{memory.faults}\n{server.logged()}"
    assert tearing.torn >= KILLS
    assert not list(folder.glob("tasks/*.torn")), "nothing but the half lines was cut off"
    assert counts.acked >= 20 * KILLS
    assert counts.streams_resumed >= KILLS
    assert counts.reruns >= KILLS
    assert counts.steps_recorded >= 5 * KILLS
