"""Contract: claims, leases and attempts of workers, and the tasks of a dead worker."""
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
from dragoman.store.rules import HEAD_START, backoff
from dragoman.store.task_row import HIGH, LOW, NORMAL

from .base import StoreTests
from .fixture import AGENT, ALICE, ALICE_WITH_ANOTHER, LEASE, StoreFixture

WORKING = StateChanged(state=State.WORKING)


class WorkerTests(StoreTests):
    """Tests of `enlist`, `beat`, `retire`, `reap`, `claim`, `seize` and `release`."""

    async def _fenced(self, fixture: StoreFixture, old: Row) -> None:
        """Asserts that a claim that was taken away can change nothing."""
        log = await fixture.log(old.task_id)
        base = (await fixture.store.row(ALICE, old.task_id)).last_seq
        seq = fixture.folds[old.task_id].seq
        late = fixture.write(old.claim, WORKING, heard=0)
        late = replace(late, base=base, entries=(replace(late.entries[0], seq=base + 1),))
        fixture.folds[old.task_id].seq = seq
        with pytest.raises(Fenced):
            await fixture.append(late)
        assert await fixture.log(old.task_id) == log
        for look in (fixture.store.inputs(old.claim), fixture.store.records(old.claim)):
            with pytest.raises(Fenced):
                await look

    # Claiming.

    async def test_the_oldest_due_task_is_claimed_first(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            for task_id, delay in (("t1", 300), ("t2", 100), ("t3", 200), ("t4", 9_000)):
                draft = fixture.draft(task_id, worker="")
                later = replace(draft.row, run_at=fixture.clock.now + delay)
                await fixture.create(replace(draft, row=later))
            await fixture.create(fixture.draft("other", worker="", scope=ALICE_WITH_ANOTHER))
            await fixture.open_task("held")
            assert await fixture.store.claim("w1", AGENT, 9) == []
            fixture.clock.tick(300)
            first = await fixture.store.claim("w1", AGENT, 2)
            assert [row.task_id for row in first] == ["t2", "t3"]
            assert [row.task_id for row in await fixture.store.claim("w1", AGENT, 9)] == ["t1"]
            assert await fixture.store.claim("w1", AGENT, 9) == []

    async def test_a_task_of_a_higher_priority_is_claimed_first(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            for task_id, priority in (("t1", LOW), ("t2", NORMAL), ("t3", HIGH), ("t4", HIGH)):
                draft = fixture.draft(task_id, worker="")
                await fixture.create(replace(draft, row=replace(draft.row, priority=priority)))
                fixture.clock.tick(1)
            taken = [*await fixture.store.claim("w1", AGENT, 3)]
            taken += await fixture.store.claim("w1", AGENT, 3)
            assert [row.task_id for row in taken] == ["t3", "t4", "t2", "t1"]
            assert [row.priority for row in taken] == [HIGH, HIGH, NORMAL, LOW]
            # It keeps its priority when it is run again.
            for row in taken:
                await fixture.store.release(row.claim, runnable=True)
            (first,) = await fixture.store.claim("w1", AGENT, 1)
            assert first.priority == HIGH

    async def test_a_task_that_has_waited_long_is_not_overtaken(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            for task_id, priority, waits in (
                ("low", LOW, 2 * HEAD_START + 1),
                ("normal", NORMAL, HEAD_START - 1),
                ("high", HIGH, 0),
                # One that is not due yet is not claimed, whatever its priority.
                ("later", HIGH, -60_000),
            ):
                draft = fixture.draft(task_id, worker="")
                run_at = fixture.clock.now - waits
                row = replace(draft.row, priority=priority, run_at=run_at)
                await fixture.create(replace(draft, row=row))
            taken = await fixture.store.claim("w1", AGENT, 9)
            assert [row.task_id for row in taken] == ["low", "high", "normal"]

    async def test_a_claim_is_new(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            before = await fixture.open_task("t1", worker="")
            (row,) = await fixture.store.claim("w1", AGENT, 1)
            assert row == replace(
                before, worker="w1", token=row.token, epoch=1, attempt=1, runnable=False
            )
            assert row.token
            assert await fixture.store.row(ALICE, "t1") == row
            await fixture.append(fixture.write(row.claim, WORKING))
            await fixture.store.release(row.claim, runnable=True)
            (again,) = await fixture.store.claim("w1", AGENT, 1)
            assert (again.epoch, again.attempt) == (2, 1)
            assert again.token not in ("", row.token)
            await self._fenced(fixture, row)

    async def test_no_task_is_claimed_twice(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            workers = await fixture.enlist(5)
            for n in range(40):
                await fixture.open_task(f"t{n:02}", worker="")
            claims = await asyncio.gather(
                *(fixture.store.claim(worker, AGENT, 3) for worker in workers * 4)
            )
            taken = [row.task_id for rows in claims for row in rows]
            assert sorted(taken) == [f"t{n:02}" for n in range(40)]

    async def test_a_worker_nobody_knows_gets_nothing(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1", worker="")
            assert await fixture.store.claim("ghost", AGENT, 9) == []
            assert await fixture.store.seize("ghost", "t1", row.epoch) is None
            assert await fixture.store.row(ALICE, "t1") == row

    # Seizing.

    async def test_a_task_is_seized_from_its_holder(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.store.enlist("w2", LEASE)
            row = await fixture.open_task("t1")
            for epoch in (row.epoch - 1, row.epoch + 1):
                assert await fixture.store.seize("w2", "t1", epoch) is None
            taken = await fixture.store.seize("w2", "t1", row.epoch)
            assert taken == replace(
                row, worker="w2", token=taken.token if taken else "", epoch=2, attempt=2
            )
            assert await fixture.store.seize("w1", "t1", row.epoch) is None
            await self._fenced(fixture, row)
            assert taken is not None
            await fixture.append(fixture.write(taken.claim, WORKING))

    async def test_only_what_lives_can_be_seized(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            await fixture.end(row)
            assert await fixture.store.seize("w1", "t1", row.epoch) is None
            assert await fixture.store.seize("w1", "nowhere", 0) is None
            unheld = await fixture.open_task("t2", worker="")
            taken = await fixture.store.seize("w1", "t2", unheld.epoch)
            assert taken is not None
            assert (taken.worker, taken.runnable, taken.attempt) == ("w1", False, 1)

    # Giving back.

    async def test_a_task_is_given_back_without_counting(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            fixture.clock.tick(50)
            await fixture.store.release(row.claim, runnable=True)
            after = await fixture.store.row(ALICE, "t1")
            assert (after.worker, after.token, after.attempt) == ("", "", 0)
            assert (after.runnable, after.run_at) == (True, fixture.clock.now)
            await self._fenced(fixture, row)
            # Once more, without the claim: nothing happens.
            (again,) = await fixture.store.claim("w1", AGENT, 1)
            for claim in (row.claim, after.claim, Claim("nowhere", "w1", "x", 1)):
                await fixture.store.release(claim, runnable=True)
            assert await fixture.store.row(ALICE, "t1") == again

    async def test_a_waiting_task_is_put_aside(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            await fixture.ask(row)
            await fixture.store.release(row.claim, runnable=False)
            after = await fixture.store.row(ALICE, "t1")
            assert (after.worker, after.runnable, after.question) == ("", False, "q1")

    async def test_what_came_meanwhile_is_not_put_aside(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            answered = await fixture.open_task("t1")
            await fixture.ask(answered)
            await fixture.add_input("t1")
            canceled = await fixture.open_task("t2")
            await fixture.ask(canceled)
            await fixture.store.ask_cancel(ALICE, "t2")
            for row in (answered, canceled):
                await fixture.store.release(row.claim, runnable=False)
            claimed = await fixture.store.claim("w1", AGENT, 9)
            assert {row.task_id for row in claimed} == {"t1", "t2"}

    async def test_who_retires_holds_nothing(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.store.enlist("w2", LEASE)
            running = await fixture.open_task("t1")
            waiting = await fixture.open_task("t2")
            await fixture.ask(waiting)
            await fixture.open_task("t3", worker="w2")
            await fixture.store.retire("w1")
            assert await fixture.store.list_held_tasks("w1") == []
            assert not await fixture.store.beat("w1", LEASE)
            rows = [await fixture.store.row(ALICE, f"t{n}") for n in (1, 2, 3)]
            assert [row.worker for row in rows] == ["", "", "w2"]
            assert [row.runnable for row in rows] == [True, False, False]
            assert [row.attempt for row in rows] == [0, 0, 1]
            await self._fenced(fixture, running)
            await fixture.store.retire("w1")

    # Leases.

    async def test_a_worker_lives_while_it_beats(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            for _ in range(5):
                fixture.clock.tick(LEASE - 1)
                assert await fixture.store.beat("w1", LEASE)
                assert await fixture.store.reap() == []
            assert await fixture.store.row(ALICE, "t1") == row
            fixture.clock.tick(LEASE)
            assert await fixture.store.reap() == ["t1"]
            assert not await fixture.store.beat("w1", LEASE)
            assert await fixture.store.reap() == []
            await self._fenced(fixture, row)

    async def test_the_dead_lose_their_tasks(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.store.enlist("w2", 2 * LEASE)
            rows = {name: await fixture.open_task(name) for name in ("run", "wait", "told", "stop")}
            safe = await fixture.open_task("safe", worker="w2")
            await fixture.open_task("free", worker="")
            for name in ("wait", "told", "stop"):
                await fixture.ask(rows[name])
            await fixture.add_input("told")
            await fixture.store.ask_cancel(ALICE, "stop")
            ended = await fixture.open_task("ended")
            await fixture.end(ended)

            fixture.clock.tick(LEASE)
            now = fixture.clock.now
            assert set(await fixture.store.reap()) == {"run", "wait", "told", "stop"}
            found = {name: await fixture.store.row(ALICE, name) for name in rows}
            assert {(row.worker, row.token) for row in found.values()} == {("", "")}
            assert {name: row.runnable for name, row in found.items()} == {
                "run": True,
                "wait": False,
                "told": True,
                "stop": True,
            }
            for name, pause in (("run", backoff(1)), ("told", backoff(1)), ("stop", 0)):
                assert found[name].run_at == now + pause
            assert await fixture.store.row(ALICE, "safe") == safe
            for row in rows.values():
                await self._fenced(fixture, row)

    async def test_every_lost_attempt_counts_and_the_pause_grows(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.open_task("t1", worker="")
            for attempt in range(1, 9):
                await fixture.store.enlist(f"x{attempt}", LEASE)
                (row,) = await fixture.store.claim(f"x{attempt}", AGENT, 1)
                assert (row.attempt, row.epoch) == (attempt, attempt)
                fixture.clock.tick(LEASE)
                assert await fixture.store.reap() == ["t1"]
                row = await fixture.store.row(ALICE, "t1")
                assert row.run_at - fixture.clock.now == backoff(attempt)
                fixture.clock.tick(backoff(attempt))
            assert backoff(8) == 30_000

    async def test_an_answer_makes_the_attempts_count_anew(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            for _ in range(3):
                taken = await fixture.store.seize("w1", "t1", row.epoch)
                assert taken is not None
                row = taken
            assert row.attempt == 4
            await fixture.append(fixture.write(row.claim, WORKING, fresh=True))
            assert (await fixture.store.row(ALICE, "t1")).attempt == 1

    async def test_a_holder_nobody_knows_is_dead(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.open_task("t1", worker="never enlisted")
            assert await fixture.store.reap() == ["t1"]

    async def test_what_a_worker_holds(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            assert await fixture.store.list_held_tasks("w1") == []
            rows = [await fixture.open_task(f"t{n}") for n in range(3)]
            await fixture.open_task("other", worker="w2")
            await fixture.add_input("t1")
            await fixture.store.ask_cancel(ALICE, "t2")
            held = await fixture.store.list_held_tasks("w1")
            assert sorted(held, key=lambda it: it.claim.task_id) == [
                HeldTask(rows[0].claim, 0, False),
                HeldTask(rows[1].claim, 1, False),
                HeldTask(rows[2].claim, 0, True),
            ]
            await fixture.end(rows[0])
            assert len(await fixture.store.list_held_tasks("w1")) == 2

    # Clocks.

    async def test_a_clock_set_forward_takes_nothing_from_the_living(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.store.enlist("w2", LEASE)
            await fixture.open_task("t1")
            fixture.clock.set(100 * LEASE)
            assert await fixture.store.reap() == []
            assert await fixture.store.beat("w1", LEASE)
            assert (await fixture.store.row(ALICE, "t1")).worker == "w1"

    async def test_a_clock_set_back_does_not_keep_the_dead_alive(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.store.enlist("w2", LEASE)
            await fixture.open_task("t1")
            fixture.clock.set(-100 * LEASE)
            fixture.clock.tick(LEASE - 1)
            assert await fixture.store.reap() == []
            await fixture.store.beat("w2", LEASE)
            fixture.clock.tick(1)
            assert await fixture.store.reap() == ["t1"]

    async def test_a_clock_set_back_keeps_no_task_waiting(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.store.reap()
            await fixture.open_task("due", worker="")
            await fixture.open_task("lost", worker="gone")
            assert await fixture.store.reap() == ["lost"]
            fixture.clock.set(-3_600_000)
            await fixture.store.reap()
            assert [row.task_id for row in await fixture.store.claim("w1", AGENT, 9)] == ["due"]
            fixture.clock.tick(backoff(1))
            assert [row.task_id for row in await fixture.store.claim("w1", AGENT, 9)] == ["lost"]

    async def test_a_clock_set_back_before_a_restart_keeps_no_task_waiting(
        self, tmp_path: Path
    ) -> None:
        if not self.durable:
            pytest.skip("this store keeps nothing")
        async with self.fixture(tmp_path) as fixture:
            await fixture.store.reap()
            row = await fixture.open_task("t1")
            await fixture.store.release(row.claim, runnable=True)
            await fixture.store.retire("w1")
            fixture.clock.set(-3_600_000)
            await fixture.reopen()
            await fixture.store.enlist("w2", LEASE)
            await fixture.store.reap()
            assert [row.task_id for row in await fixture.store.claim("w2", AGENT, 9)] == ["t1"]
