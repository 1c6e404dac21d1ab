"""Workers: claims, leases, attempts, and the dead."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.core.errors import Fenced
from dragoman.core.events import StateChanged
from dragoman.core.model import State
from dragoman.store.interface import Claim, HeldTask, Row
from dragoman.store.rules import backoff

from .base import Chapter
from .fixture import AGENT, ALICE, ALICE_WITH_ANOTHER, LEASE, Bench

WORKING = StateChanged(state=State.WORKING)


class WorkerChapter(Chapter):
    """`enlist`, `beat`, `retire`, `reap`, `claim`, `seize` and `release`."""

    async def _fenced(self, bench: Bench, old: Row) -> None:
        """A claim that was taken away can change nothing."""
        log = await bench.log(old.task_id)
        base = (await bench.store.row(ALICE, old.task_id)).last_seq
        seq = bench.folds[old.task_id].seq
        late = bench.write(old.claim, WORKING, heard=0)
        late = replace(late, base=base, entries=(replace(late.entries[0], seq=base + 1),))
        bench.folds[old.task_id].seq = seq
        with pytest.raises(Fenced):
            await bench.append(late)
        assert await bench.log(old.task_id) == log
        for look in (bench.store.inputs(old.claim), bench.store.records(old.claim)):
            with pytest.raises(Fenced):
                await look

    # Claiming.

    async def test_the_oldest_due_task_is_claimed_first(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            for task_id, delay in (("t1", 300), ("t2", 100), ("t3", 200), ("t4", 9_000)):
                draft = bench.draft(task_id, worker="")
                later = replace(draft.row, run_at=bench.clock.now + delay)
                await bench.create(replace(draft, row=later))
            await bench.create(bench.draft("other", worker="", scope=ALICE_WITH_ANOTHER))
            await bench.open_task("held")
            assert await bench.store.claim("w1", AGENT, 9) == []
            bench.clock.tick(300)
            first = await bench.store.claim("w1", AGENT, 2)
            assert [row.task_id for row in first] == ["t2", "t3"]
            assert [row.task_id for row in await bench.store.claim("w1", AGENT, 9)] == ["t1"]
            assert await bench.store.claim("w1", AGENT, 9) == []

    async def test_a_claim_is_new(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            before = await bench.open_task("t1", worker="")
            (row,) = await bench.store.claim("w1", AGENT, 1)
            assert row == replace(
                before, worker="w1", token=row.token, epoch=1, attempt=1, runnable=False
            )
            assert row.token
            assert await bench.store.row(ALICE, "t1") == row
            await bench.append(bench.write(row.claim, WORKING))
            await bench.store.release(row.claim, runnable=True)
            (again,) = await bench.store.claim("w1", AGENT, 1)
            assert (again.epoch, again.attempt) == (2, 1)
            assert again.token not in ("", row.token)
            await self._fenced(bench, row)

    async def test_no_task_is_claimed_twice(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            workers = [f"w{n}" for n in range(1, 6)]
            for worker in workers:
                await bench.store.enlist(worker, LEASE)
            for n in range(40):
                await bench.open_task(f"t{n:02}", worker="")
            claims = await asyncio.gather(
                *(bench.store.claim(worker, AGENT, 3) for worker in workers * 4)
            )
            taken = [row.task_id for rows in claims for row in rows]
            assert sorted(taken) == [f"t{n:02}" for n in range(40)]

    async def test_a_worker_nobody_knows_gets_nothing(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            row = await bench.open_task("t1", worker="")
            assert await bench.store.claim("ghost", AGENT, 9) == []
            assert await bench.store.seize("ghost", "t1", row.epoch) is None
            assert await bench.store.row(ALICE, "t1") == row

    # Seizing.

    async def test_a_task_is_seized_from_its_holder(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            await bench.store.enlist("w2", LEASE)
            row = await bench.open_task("t1")
            for epoch in (row.epoch - 1, row.epoch + 1):
                assert await bench.store.seize("w2", "t1", epoch) is None
            taken = await bench.store.seize("w2", "t1", row.epoch)
            assert taken == replace(
                row, worker="w2", token=taken.token if taken else "", epoch=2, attempt=2
            )
            assert await bench.store.seize("w1", "t1", row.epoch) is None
            await self._fenced(bench, row)
            assert taken is not None
            await bench.append(bench.write(taken.claim, WORKING))

    async def test_only_what_lives_can_be_seized(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            row = await bench.open_task("t1")
            await bench.end(row)
            assert await bench.store.seize("w1", "t1", row.epoch) is None
            assert await bench.store.seize("w1", "nowhere", 0) is None
            unheld = await bench.open_task("t2", worker="")
            taken = await bench.store.seize("w1", "t2", unheld.epoch)
            assert taken is not None
            assert (taken.worker, taken.runnable, taken.attempt) == ("w1", False, 1)

    # Giving back.

    async def test_a_task_is_given_back_without_counting(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            row = await bench.open_task("t1")
            bench.clock.tick(50)
            await bench.store.release(row.claim, runnable=True)
            after = await bench.store.row(ALICE, "t1")
            assert (after.worker, after.token, after.attempt) == ("", "", 0)
            assert (after.runnable, after.run_at) == (True, bench.clock.now)
            await self._fenced(bench, row)
            # Once more, without the claim: nothing happens.
            (again,) = await bench.store.claim("w1", AGENT, 1)
            for claim in (row.claim, after.claim, Claim("nowhere", "w1", "x", 1)):
                await bench.store.release(claim, runnable=True)
            assert await bench.store.row(ALICE, "t1") == again

    async def test_a_waiting_task_is_put_aside(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            row = await bench.open_task("t1")
            await bench.ask(row)
            await bench.store.release(row.claim, runnable=False)
            after = await bench.store.row(ALICE, "t1")
            assert (after.worker, after.runnable, after.question) == ("", False, "q1")

    async def test_what_came_meanwhile_is_not_put_aside(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            answered = await bench.open_task("t1")
            await bench.ask(answered)
            await bench.add_input("t1")
            canceled = await bench.open_task("t2")
            await bench.ask(canceled)
            await bench.store.ask_cancel(ALICE, "t2")
            for row in (answered, canceled):
                await bench.store.release(row.claim, runnable=False)
            claimed = await bench.store.claim("w1", AGENT, 9)
            assert {row.task_id for row in claimed} == {"t1", "t2"}

    async def test_who_retires_holds_nothing(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            await bench.store.enlist("w2", LEASE)
            running = await bench.open_task("t1")
            waiting = await bench.open_task("t2")
            await bench.ask(waiting)
            await bench.open_task("t3", worker="w2")
            await bench.store.retire("w1")
            assert await bench.store.held("w1") == []
            assert not await bench.store.beat("w1", LEASE)
            rows = [await bench.store.row(ALICE, f"t{n}") for n in (1, 2, 3)]
            assert [row.worker for row in rows] == ["", "", "w2"]
            assert [row.runnable for row in rows] == [True, False, False]
            assert [row.attempt for row in rows] == [0, 0, 1]
            await self._fenced(bench, running)
            await bench.store.retire("w1")

    # Leases.

    async def test_a_worker_lives_while_it_beats(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            row = await bench.open_task("t1")
            for _ in range(5):
                bench.clock.tick(LEASE - 1)
                assert await bench.store.beat("w1", LEASE)
                assert await bench.store.reap() == []
            assert await bench.store.row(ALICE, "t1") == row
            bench.clock.tick(LEASE)
            assert await bench.store.reap() == ["t1"]
            assert not await bench.store.beat("w1", LEASE)
            assert await bench.store.reap() == []
            await self._fenced(bench, row)

    async def test_the_dead_lose_their_tasks(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            await bench.store.enlist("w2", 2 * LEASE)
            rows = {name: await bench.open_task(name) for name in ("run", "wait", "told", "stop")}
            safe = await bench.open_task("safe", worker="w2")
            await bench.open_task("free", worker="")
            for name in ("wait", "told", "stop"):
                await bench.ask(rows[name])
            await bench.add_input("told")
            await bench.store.ask_cancel(ALICE, "stop")
            ended = await bench.open_task("ended")
            await bench.end(ended)

            bench.clock.tick(LEASE)
            now = bench.clock.now
            assert set(await bench.store.reap()) == {"run", "wait", "told", "stop"}
            found = {name: await bench.store.row(ALICE, name) for name in rows}
            assert {(row.worker, row.token) for row in found.values()} == {("", "")}
            assert {name: row.runnable for name, row in found.items()} == {
                "run": True,
                "wait": False,
                "told": True,
                "stop": True,
            }
            for name, pause in (("run", backoff(1)), ("told", backoff(1)), ("stop", 0)):
                assert found[name].run_at == now + pause
            assert await bench.store.row(ALICE, "safe") == safe
            for row in rows.values():
                await self._fenced(bench, row)

    async def test_every_lost_attempt_counts_and_the_pause_grows(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            await bench.open_task("t1", worker="")
            for attempt in range(1, 9):
                await bench.store.enlist(f"x{attempt}", LEASE)
                (row,) = await bench.store.claim(f"x{attempt}", AGENT, 1)
                assert (row.attempt, row.epoch) == (attempt, attempt)
                bench.clock.tick(LEASE)
                assert await bench.store.reap() == ["t1"]
                row = await bench.store.row(ALICE, "t1")
                assert row.run_at - bench.clock.now == backoff(attempt)
                bench.clock.tick(backoff(attempt))
            assert backoff(8) == 30_000

    async def test_an_answer_makes_the_attempts_count_anew(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            row = await bench.open_task("t1")
            for _ in range(3):
                taken = await bench.store.seize("w1", "t1", row.epoch)
                assert taken is not None
                row = taken
            assert row.attempt == 4
            await bench.append(bench.write(row.claim, WORKING, fresh=True))
            assert (await bench.store.row(ALICE, "t1")).attempt == 1

    async def test_a_holder_nobody_knows_is_dead(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            await bench.open_task("t1", worker="never enlisted")
            assert await bench.store.reap() == ["t1"]

    async def test_what_a_worker_holds(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            assert await bench.store.held("w1") == []
            rows = [await bench.open_task(f"t{n}") for n in range(3)]
            await bench.open_task("other", worker="w2")
            await bench.add_input("t1")
            await bench.store.ask_cancel(ALICE, "t2")
            held = await bench.store.held("w1")
            assert sorted(held, key=lambda it: it.claim.task_id) == [
                HeldTask(rows[0].claim, 0, False),
                HeldTask(rows[1].claim, 1, False),
                HeldTask(rows[2].claim, 0, True),
            ]
            await bench.end(rows[0])
            assert len(await bench.store.held("w1")) == 2

    # Clocks.

    async def test_a_clock_set_forward_takes_nothing_from_the_living(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            await bench.store.enlist("w2", LEASE)
            await bench.open_task("t1")
            bench.clock.set(100 * LEASE)
            assert await bench.store.reap() == []
            assert await bench.store.beat("w1", LEASE)
            assert (await bench.store.row(ALICE, "t1")).worker == "w1"

    async def test_a_clock_set_back_does_not_keep_the_dead_alive(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            await bench.store.enlist("w2", LEASE)
            await bench.open_task("t1")
            bench.clock.set(-100 * LEASE)
            bench.clock.tick(LEASE - 1)
            assert await bench.store.reap() == []
            await bench.store.beat("w2", LEASE)
            bench.clock.tick(1)
            assert await bench.store.reap() == ["t1"]

    async def test_a_clock_set_back_keeps_no_task_waiting(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            await bench.store.reap()
            await bench.open_task("due", worker="")
            await bench.open_task("lost", worker="gone")
            assert await bench.store.reap() == ["lost"]
            bench.clock.set(-3_600_000)
            await bench.store.reap()
            assert [row.task_id for row in await bench.store.claim("w1", AGENT, 9)] == ["due"]
            bench.clock.tick(backoff(1))
            assert [row.task_id for row in await bench.store.claim("w1", AGENT, 9)] == ["lost"]

    async def test_a_clock_set_back_before_a_restart_keeps_no_task_waiting(
        self, tmp_path: Path
    ) -> None:
        if not self.durable:
            pytest.skip("this store keeps nothing")
        async with self.bench(tmp_path) as bench:
            await bench.store.reap()
            row = await bench.open_task("t1")
            await bench.store.release(row.claim, runnable=True)
            await bench.store.retire("w1")
            bench.clock.set(-3_600_000)
            await bench.reopen()
            await bench.store.enlist("w2", LEASE)
            await bench.store.reap()
            assert [row.task_id for row in await bench.store.claim("w2", AGENT, 9)] == ["t1"]
