"""Keeping house: what expires, what is old, what is counted, and what a restart shows."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

import asyncio
import inspect
import sys
from pathlib import Path

import pytest

from dragoman.core.errors import StoreUnavailable, TaskNotFound
from dragoman.core.events import StateChanged
from dragoman.core.model import State
from dragoman.store.interface import Existing, Filter, Idempotency, Record

from .base import Chapter
from .fixture import AGENT, ALICE, ALICE_ELSEWHERE, ALICE_WITH_ANOTHER, BOB, LEASE, Bench

WORKING = StateChanged(state=State.WORKING)
DAY = 86_400_000


class KeepingChapter(Chapter):
    """`expired`, `sweep`, `counts`, `changed`, `open` and `close`."""

    async def test_who_waits_too_long_expires(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            start = bench.clock.now
            for n in (3, 1, 2):
                row = await bench.open_task(f"t{n}")
                await bench.ask(row, expires_at=start + n * 100)
            for name in ("heard", "forever", "ended"):
                row = await bench.open_task(name)
                await bench.ask(row, expires_at=0 if name == "forever" else start + 1)
            await bench.add_input("heard")
            await bench.end(row)
            await bench.create(bench.draft("other", scope=ALICE_WITH_ANOTHER))
            running = await bench.open_task("running")
            await bench.append(bench.write(running.claim, WORKING, expires_at=start + 1))

            async def names(limit: int) -> list[str]:
                return [row.task_id for row in await bench.store.expired(AGENT, limit)]

            assert await names(9) == []
            bench.clock.tick(100)
            assert await names(9) == ["t1"]
            bench.clock.tick(1000)
            assert await names(9) == ["t1", "t2", "t3"]
            assert await names(2) == ["t1", "t2"]
            found = (await bench.store.expired(AGENT, 1))[0]
            assert found == await bench.store.row(ALICE, "t1")

    async def _ended(self, bench: Bench, *names: str) -> None:
        for name in names:
            row = await bench.create(bench.draft(name, key=Idempotency(name, b"d")))
            await bench.end(row)

    async def test_old_logs_go_first(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            await self._ended(bench, "t1", "t2")
            await bench.open_task("live")
            tasks = {name: (await bench.store.load(ALICE, name))[1] for name in ("t1", "t2")}
            bench.clock.tick(DAY)
            await self._ended(bench, "t3")
            assert await bench.store.sweep(AGENT, DAY + 1, 9 * DAY, 9) == 0
            assert await bench.store.sweep(AGENT, DAY, 9 * DAY, 9) == 2
            assert await bench.store.sweep(AGENT, DAY, 9 * DAY, 9) == 0
            for name, task in tasks.items():
                row, loaded = await bench.store.load(ALICE, name)
                assert (row.state, row.last_seq, loaded) == (State.COMPLETED, 3, task)
                page = await bench.store.read(ALICE, name, 0, 9)
                assert (page.row, page.entries) == (row, [])
                with pytest.raises(Existing):
                    await bench.create(bench.draft("again", key=Idempotency(name, b"d")))
            assert len(await bench.log("t3")) == 3
            assert len(await bench.log("live")) == 2
            assert (await bench.store.find(ALICE, Filter(), 9)).total == 4

    async def test_a_task_that_ended_at_once_is_kept_without_its_log(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            await bench.create(bench.draft("t1", end=State.COMPLETED))
            task = (await bench.store.load(ALICE, "t1"))[1]
            assert task == bench.folds["t1"].task()
            bench.clock.tick(DAY)
            assert await bench.store.sweep(AGENT, DAY, 9 * DAY, 9) == 1
            row, loaded = await bench.store.load(ALICE, "t1")
            assert (row.state, loaded) == (State.COMPLETED, task)
            assert (await bench.store.read(ALICE, "t1", 0, 9)).entries == []

    async def test_then_old_tasks_go(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            await self._ended(bench, "t1", "t2")
            await bench.open_task("live")
            bench.clock.tick(DAY)
            await self._ended(bench, "t3")
            assert await bench.store.sweep(AGENT, 1, DAY, 9) == 2
            assert await bench.store.sweep(AGENT, DAY, DAY, 9) == 0
            for name in ("t1", "t2"):
                for look in (
                    bench.store.row(ALICE, name),
                    bench.store.load(ALICE, name),
                    bench.store.read(ALICE, name, 0, 9),
                ):
                    with pytest.raises(TaskNotFound):
                        await look
            # The key lived as long as the task did.
            await bench.create(bench.draft("new", key=Idempotency("t1", b"other")))
            listing = await bench.store.find(ALICE, Filter(), 9)
            assert {task.id for task in listing.tasks} == {"live", "t3", "new"}
            bench.clock.tick(100 * DAY)
            assert await bench.store.sweep(AGENT, DAY, DAY, 9) == 1
            assert (await bench.store.row(ALICE, "live")).state is State.WORKING

    async def test_a_sweep_goes_in_batches(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            await self._ended(bench, *(f"t{n}" for n in range(7)))
            bench.clock.tick(DAY)
            for tasks_ms in (9 * DAY, DAY):
                swept = [await bench.store.sweep(AGENT, DAY, tasks_ms, 3) for _ in range(4)]
                assert swept == [3, 3, 1, 0]

    async def test_tasks_are_counted(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            assert await bench.store.counts(AGENT) == {"runnable": 0}
            await self._ended(bench, "t1", "t2")
            for n, worker in enumerate(("", "", "w1")):
                await bench.open_task(f"r{n}", worker=worker)
            waiting = await bench.open_task("w")
            await bench.ask(waiting)
            await bench.create(bench.draft("failed", end=State.FAILED))
            await bench.create(bench.draft("other", scope=ALICE_WITH_ANOTHER))
            expected = {
                "completed": 2,
                "failed": 1,
                "working": 3,
                "input-required": 1,
                "runnable": 2,
            }
            assert await bench.store.counts(AGENT) == expected
            assert await bench.store.counts("another") == {"working": 1, "runnable": 0}
            if self.durable:
                await bench.reopen()
                assert await bench.store.counts(AGENT) == expected
            bench.clock.tick(DAY)
            assert await bench.store.sweep(AGENT, 1, 1, 9) == 3
            left = {"working": 3, "input-required": 1, "runnable": 2}
            assert await bench.store.counts(AGENT) == left

    async def test_the_live_tasks_of_a_caller_are_counted(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            assert await bench.store.live(ALICE) == 0
            await self._ended(bench, "t1", "t2")
            for name in ("r1", "r2"):
                row = await bench.open_task(name)
            await bench.ask(row)
            await bench.open_task("hers", scope=BOB)
            await bench.create(bench.draft("other", scope=ALICE_WITH_ANOTHER))
            for _ in range(2):
                assert await bench.store.live(ALICE) == 2
                assert await bench.store.live(BOB) == 1
                assert await bench.store.live(ALICE_ELSEWHERE) == 0
                if self.durable:
                    await bench.reopen()
            await bench.store.erase(["r1"])
            assert await bench.store.live(ALICE) == 1

    async def test_whether_one_can_write_is_no_task(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            await bench.store.probe()
            await bench.store.probe()
            assert await bench.store.counts(AGENT) == {"runnable": 0}
            if self.durable:
                await bench.reopen()
                assert (await bench.store.find(ALICE, Filter(), 9)).total == 0

    async def test_our_own_changes_are_no_news(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            before = await bench.store.changed()
            row = await bench.open_task("t1")
            assert await bench.store.changed() == before
            await bench.end(row)
            await bench.store.reap()
            assert await bench.store.changed() == before

    # Restarts.

    async def test_a_restart_shows_the_same(self, tmp_path: Path) -> None:
        if not self.durable:
            pytest.skip("this store keeps nothing")
        async with self.bench(tmp_path) as bench:
            key = Idempotency("k", b"\x00\xff")
            live = await bench.create(bench.draft("live", key=key))
            record = Record(key="step", value=b"\x00\xff", seq=2)
            await bench.append(bench.write(live.claim, WORKING, records=(record,)))
            await bench.add_input("live", "hear me")
            waiting = await bench.open_task("waiting")
            await bench.ask(waiting, "q1", expires_at=bench.clock.now + 5)
            await bench.store.ask_cancel(ALICE, "waiting")
            await bench.open_task("free", worker="")
            await self._ended(bench, "ended", "old")
            bench.clock.tick(DAY)
            names = ("live", "waiting", "free", "ended", "old")
            loaded = [await bench.store.load(ALICE, name) for name in names]
            logs = [await bench.log(name) for name in names]
            listing = await bench.store.find(ALICE, Filter(), 9)
            inputs = await bench.store.inputs(live.claim)
            records = await bench.store.records(live.claim)

            await bench.reopen()
            assert [await bench.store.load(ALICE, name) for name in names] == loaded
            assert [await bench.log(name) for name in names] == logs
            assert await bench.store.find(ALICE, Filter(), 9) == listing
            with pytest.raises(Existing) as caught:
                await bench.create(bench.draft("again", key=key))
            assert (caught.value.task_id, caught.value.same) == ("live", True)
            with pytest.raises(Existing):
                await bench.create(bench.draft("again", key=Idempotency("ended", b"d")))

            # Whoever held a task is gone.
            await bench.store.enlist("w2", LEASE)
            assert set(await bench.store.reap()) == {"live", "waiting"}
            row = await bench.store.row(ALICE, "live")
            taken = await bench.store.seize("w2", "live", row.epoch)
            assert taken is not None
            assert await bench.store.inputs(taken.claim) == inputs
            assert await bench.store.records(taken.claim) == records

    async def test_a_closed_store_says_so(self, tmp_path: Path) -> None:
        if not self.durable:
            pytest.skip("there is nothing to close")
        async with self.bench(tmp_path) as bench:
            row = await bench.open_task("t1")
            landed: list[Exception | None] = []
            bench.store.append(bench.write(row.claim, WORKING), landed.append)
            await bench.store.close()
            # What was handed over before is finished.
            assert landed == [None]
            with pytest.raises(StoreUnavailable):
                await bench.open_task("t2")
            await bench.reopen()
            assert len(await bench.log("t1")) == 3
            with pytest.raises(TaskNotFound):
                await bench.store.row(ALICE, "t2")

    async def _doomed(self, folder: Path) -> dict[str, int]:
        """Another process works on the store and is killed; how far each task was acknowledged."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dragoman.testing.stores.crash_worker"),
            *(inspect.getfile(type(self)), type(self).__name__, str(folder)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        lines = [await process.stdout.readline() for _ in range(150)]
        process.kill()
        rest, _ = await process.communicate()
        lines += rest.splitlines(keepends=True)
        whole = [line.split() for line in lines if line.endswith(b"\n")]
        return {task_id.decode(): int(seq) for task_id, seq in whole}

    async def test_a_kill_loses_nothing_acknowledged(self, tmp_path: Path) -> None:
        if not self.durable:
            pytest.skip("this store keeps nothing")
        acknowledged = await self._doomed(tmp_path)
        assert len(acknowledged) >= 10
        async with self.bench(tmp_path) as bench:
            bench.clock.tick(LEASE * 1000)
            for task_id, seq in acknowledged.items():
                page = await bench.store.read(ALICE, task_id, 0, 1000)
                assert page.row.last_seq >= seq
                assert [e.seq for e in page.entries] == list(range(1, page.row.last_seq + 1))
                _, task = await bench.store.load(ALICE, task_id)
                assert task.state is page.row.state
            lost = await bench.store.reap()
            for task_id in lost:
                row = await bench.store.row(ALICE, task_id)
                assert (row.worker, row.runnable, row.final) == ("", True, False)
