"""Contract: housekeeping, and what a restart or a crash leaves."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from pathlib import Path

import pytest

from dragoman.core.errors import StoreUnavailable, TaskNotFound
from dragoman.core.events import StateChanged
from dragoman.core.model import State
from dragoman.store.interface import Existing, Filter, Idempotency, Record

from .base import StoreTests
from .fixture import AGENT, ALICE, ALICE_ELSEWHERE, ALICE_WITH_ANOTHER, BOB, LEASE, StoreFixture

WORKING = StateChanged(state=State.WORKING)
DAY = 86_400_000


class DurabilityTests(StoreTests):
    """Tests of `list_expired_tasks`, `sweep`, `count_by_state`, `count_unfinished`,
    `data_version`, `open` and `close`."""

    async def test_who_waits_too_long_expires(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            start = fixture.clock.now
            for n in (3, 1, 2):
                row = await fixture.open_task(f"t{n}")
                await fixture.ask(row, expires_at=start + n * 100)
            for name in ("heard", "forever", "ended"):
                row = await fixture.open_task(name)
                await fixture.ask(row, expires_at=0 if name == "forever" else start + 1)
            await fixture.add_input("heard")
            await fixture.end(row)
            await fixture.create(fixture.draft("other", scope=ALICE_WITH_ANOTHER))
            running = await fixture.open_task("running")
            await fixture.append(fixture.write(running.claim, WORKING, expires_at=start + 1))

            async def names(limit: int) -> list[str]:
                return [row.task_id for row in await fixture.store.list_expired_tasks(AGENT, limit)]

            assert await names(9) == []
            fixture.clock.tick(100)
            assert await names(9) == ["t1"]
            fixture.clock.tick(1000)
            assert await names(9) == ["t1", "t2", "t3"]
            assert await names(2) == ["t1", "t2"]
            found = (await fixture.store.list_expired_tasks(AGENT, 1))[0]
            assert found == await fixture.store.row(ALICE, "t1")

    async def _ended(self, fixture: StoreFixture, *names: str) -> None:
        for name in names:
            row = await fixture.create(fixture.draft(name, key=Idempotency(name, b"d")))
            await fixture.end(row)

    async def test_old_logs_go_first(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await self._ended(fixture, "t1", "t2")
            await fixture.open_task("live")
            tasks = {name: (await fixture.store.load(ALICE, name))[1] for name in ("t1", "t2")}
            fixture.clock.tick(DAY)
            await self._ended(fixture, "t3")
            assert await fixture.store.sweep(AGENT, DAY + 1, 9 * DAY, 9) == 0
            assert await fixture.store.sweep(AGENT, DAY, 9 * DAY, 9) == 2
            assert await fixture.store.sweep(AGENT, DAY, 9 * DAY, 9) == 0
            for name, task in tasks.items():
                row, loaded = await fixture.store.load(ALICE, name)
                assert (row.state, row.last_seq, loaded) == (State.COMPLETED, 3, task)
                page = await fixture.store.read(ALICE, name, 0, 9)
                assert (page.row, page.entries) == (row, [])
                with pytest.raises(Existing):
                    await fixture.create(fixture.draft("again", key=Idempotency(name, b"d")))
            assert len(await fixture.log("t3")) == 3
            assert len(await fixture.log("live")) == 2
            assert (await fixture.store.find(ALICE, Filter(), 9)).total == 4

    async def test_a_task_that_ended_at_once_is_kept_without_its_log(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.create(fixture.draft("t1", end=State.COMPLETED))
            task = (await fixture.store.load(ALICE, "t1"))[1]
            assert task == fixture.folds["t1"].task()
            fixture.clock.tick(DAY)
            assert await fixture.store.sweep(AGENT, DAY, 9 * DAY, 9) == 1
            row, loaded = await fixture.store.load(ALICE, "t1")
            assert (row.state, loaded) == (State.COMPLETED, task)
            assert (await fixture.store.read(ALICE, "t1", 0, 9)).entries == []

    async def test_then_old_tasks_go(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await self._ended(fixture, "t1", "t2")
            await fixture.open_task("live")
            fixture.clock.tick(DAY)
            await self._ended(fixture, "t3")
            assert await fixture.store.sweep(AGENT, 1, DAY, 9) == 2
            assert await fixture.store.sweep(AGENT, DAY, DAY, 9) == 0
            for name in ("t1", "t2"):
                for look in (
                    fixture.store.row(ALICE, name),
                    fixture.store.load(ALICE, name),
                    fixture.store.read(ALICE, name, 0, 9),
                ):
                    with pytest.raises(TaskNotFound):
                        await look
            # The key lived as long as the task did.
            await fixture.create(fixture.draft("new", key=Idempotency("t1", b"other")))
            listing = await fixture.store.find(ALICE, Filter(), 9)
            assert {task.id for task in listing.tasks} == {"live", "t3", "new"}
            fixture.clock.tick(100 * DAY)
            assert await fixture.store.sweep(AGENT, DAY, DAY, 9) == 1
            assert (await fixture.store.row(ALICE, "live")).state is State.WORKING

    async def test_a_sweep_goes_in_batches(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await self._ended(fixture, *(f"t{n}" for n in range(7)))
            fixture.clock.tick(DAY)
            for tasks_ms in (9 * DAY, DAY):
                swept = [await fixture.store.sweep(AGENT, DAY, tasks_ms, 3) for _ in range(4)]
                assert swept == [3, 3, 1, 0]

    async def test_tasks_are_counted(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            assert await fixture.store.count_by_state(AGENT) == {"runnable": 0}
            await self._ended(fixture, "t1", "t2")
            for n, worker in enumerate(("", "", "w1")):
                await fixture.open_task(f"r{n}", worker=worker)
            waiting = await fixture.open_task("w")
            await fixture.ask(waiting)
            await fixture.create(fixture.draft("failed", end=State.FAILED))
            await fixture.create(fixture.draft("other", scope=ALICE_WITH_ANOTHER))
            expected = {
                "completed": 2,
                "failed": 1,
                "working": 3,
                "input-required": 1,
                "runnable": 2,
            }
            assert await fixture.store.count_by_state(AGENT) == expected
            assert await fixture.store.count_by_state("another") == {"working": 1, "runnable": 0}
            if self.durable:
                await fixture.reopen()
                assert await fixture.store.count_by_state(AGENT) == expected
            fixture.clock.tick(DAY)
            assert await fixture.store.sweep(AGENT, 1, 1, 9) == 3
            left = {"working": 3, "input-required": 1, "runnable": 2}
            assert await fixture.store.count_by_state(AGENT) == left

    async def test_the_live_tasks_of_a_caller_are_counted(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            assert await fixture.store.count_unfinished(ALICE) == 0
            await self._ended(fixture, "t1", "t2")
            for name in ("r1", "r2"):
                row = await fixture.open_task(name)
            await fixture.ask(row)
            await fixture.open_task("hers", scope=BOB)
            await fixture.create(fixture.draft("other", scope=ALICE_WITH_ANOTHER))
            for _ in range(2):
                assert await fixture.store.count_unfinished(ALICE) == 2
                assert await fixture.store.count_unfinished(BOB) == 1
                assert await fixture.store.count_unfinished(ALICE_ELSEWHERE) == 0
                if self.durable:
                    await fixture.reopen()
            await fixture.store.erase(["r1"])
            assert await fixture.store.count_unfinished(ALICE) == 1

    async def test_whether_one_can_write_is_no_task(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.store.probe()
            await fixture.store.probe()
            assert await fixture.store.count_by_state(AGENT) == {"runnable": 0}
            if self.durable:
                await fixture.reopen()
                assert (await fixture.store.find(ALICE, Filter(), 9)).total == 0

    async def test_our_own_changes_are_no_news(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            before = await fixture.store.data_version()
            row = await fixture.open_task("t1")
            assert await fixture.store.data_version() == before
            await fixture.end(row)
            await fixture.store.reap()
            assert await fixture.store.data_version() == before

    # Restarts.

    async def test_a_restart_shows_the_same(self, tmp_path: Path) -> None:
        if not self.durable:
            pytest.skip("this store keeps nothing")
        async with self.fixture(tmp_path) as fixture:
            key = Idempotency("k", b"\x00\xff")
            live = await fixture.create(fixture.draft("live", key=key))
            record = Record(key="step", value=b"\x00\xff", seq=2)
            await fixture.append(fixture.write(live.claim, WORKING, records=(record,)))
            await fixture.add_input("live", "hear me")
            waiting = await fixture.open_task("waiting")
            await fixture.ask(waiting, "q1", expires_at=fixture.clock.now + 5)
            await fixture.store.ask_cancel(ALICE, "waiting")
            await fixture.open_task("free", worker="")
            await self._ended(fixture, "ended", "old")
            called = await fixture.open_task("called")
            await fixture.append(fixture.write(called.claim, WORKING, records=(record,)))
            await fixture.end(called)
            fixture.clock.tick(DAY)
            names = ("live", "waiting", "free", "ended", "old")
            loaded = [await fixture.store.load(ALICE, name) for name in names]
            logs = [await fixture.log(name) for name in names]
            listing = await fixture.store.find(ALICE, Filter(), 9)
            inputs = await fixture.store.inputs(live.claim)
            records = await fixture.store.records(live.claim)

            await fixture.reopen()
            assert [await fixture.store.load(ALICE, name) for name in names] == loaded
            assert [await fixture.log(name) for name in names] == logs
            for name in ("live", "called"):
                assert await fixture.store.records_of(ALICE, name) == [record]
                with pytest.raises(TaskNotFound):
                    await fixture.store.records_of(BOB, name)
            assert await fixture.store.find(ALICE, Filter(), 9) == listing
            with pytest.raises(Existing) as caught:
                await fixture.create(fixture.draft("again", key=key))
            assert (caught.value.task_id, caught.value.same) == ("live", True)
            with pytest.raises(Existing):
                await fixture.create(fixture.draft("again", key=Idempotency("ended", b"d")))

            # The workers that held tasks are gone.
            await fixture.store.enlist("w2", LEASE)
            assert set(await fixture.store.reap()) == {"live", "waiting"}
            row = await fixture.store.row(ALICE, "live")
            taken = await fixture.store.seize("w2", "live", row.epoch)
            assert taken is not None
            assert await fixture.store.inputs(taken.claim) == inputs
            assert await fixture.store.records(taken.claim) == records

    async def test_a_closed_store_says_so(self, tmp_path: Path) -> None:
        if not self.durable:
            pytest.skip("there is nothing to close")
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            landed: list[Exception | None] = []
            fixture.store.append(fixture.write(row.claim, WORKING), landed.append)
            await fixture.store.close()
            # A change that was handed over before is finished.
            assert landed == [None]
            with pytest.raises(StoreUnavailable):
                await fixture.open_task("t2")
            await fixture.reopen()
            assert len(await fixture.log("t1")) == 3
            with pytest.raises(TaskNotFound):
                await fixture.store.row(ALICE, "t2")

    async def _run_and_kill(self, folder: Path) -> dict[str, int]:
        """Starts another process that works on the store, and kills it. Returns up to which seq the
        log of each task was acknowledged."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dragoman.testing.stores.crash_worker"),
            *(inspect.getfile(type(self)), type(self).__name__, str(folder)),
            stdout=asyncio.subprocess.PIPE,
            # The file may import modules that pytest finds for us.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
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
        acknowledged = await self._run_and_kill(tmp_path)
        assert len(acknowledged) >= 10
        async with self.fixture(tmp_path) as fixture:
            fixture.clock.tick(LEASE * 1000)
            for task_id, seq in acknowledged.items():
                page = await fixture.store.read(ALICE, task_id, 0, 1000)
                assert page.row.last_seq >= seq
                assert [e.seq for e in page.entries] == list(range(1, page.row.last_seq + 1))
                _, task = await fixture.store.load(ALICE, task_id)
                assert task.state is page.row.state
            lost = await fixture.store.reap()
            for task_id in lost:
                row = await fixture.store.row(ALICE, task_id)
                assert (row.worker, row.runnable, row.final) == ("", True, False)
