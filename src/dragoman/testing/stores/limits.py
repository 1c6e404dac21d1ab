"""Contract: limits that several processes share. The order in which tasks of several tenants are
claimed, how many may run, and the budgets of callers."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from dragoman.store.interface import NO_LIMITS, RunLimits, Scope, Store
from dragoman.store.limits.budgets import PART, BudgetAsk, BudgetGrant
from dragoman.store.limits.run_limits import LANES
from dragoman.store.task_row import HIGH

from .base import StoreTests
from .fixture import AGENT, ALICE, ANOTHER, LEASE, StoreFixture

_CALLS = BudgetAsk(kind="calls", owner="alice", size=80, per_minute=60, want=100)
_STREAMS = BudgetAsk(kind="streams", owner="alice", size=4, want=1)


async def queue(
    fixture: StoreFixture,
    task_id: str,
    tenant: str = "",
    skill: str = "plan",
    *,
    agent: str = AGENT,
    priority: int = 0,
) -> None:
    """Adds a task that waits for a worker."""
    draft = fixture.draft(task_id, worker="", scope=Scope(tenant, "alice", agent))
    row = replace(draft.row, skill=skill, priority=priority)
    await fixture.create(replace(draft, row=row))
    fixture.clock.tick(1)


class FairClaimTests(StoreTests):
    """Tests of `claim` with several tenants and with limits, and of `count_queued`."""

    async def _claim(
        self, fixture: StoreFixture, limit: int, limits: RunLimits = NO_LIMITS, **by: str
    ) -> list[str]:
        worker, agent = by.get("worker", "w1"), by.get("agent", AGENT)
        rows = await fixture.store.claim(worker, agent, limit, limits)
        return [row.task_id for row in rows]

    async def test_a_tenant_with_a_long_queue_does_not_delay_others(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            for n in range(20):
                await queue(fixture, f"a{n:02}", "acme")
            await queue(fixture, "b1", "bell")
            await queue(fixture, "c1", "corp")
            await queue(fixture, "c2", "corp")
            first = await self._claim(fixture, 4)
            assert sorted(first) == ["a00", "a01", "b1", "c1"]
            assert sorted(await self._claim(fixture, 3)) == ["a02", "a03", "c2"]

    async def test_tenants_take_turns_when_one_place_is_free_at_a_time(
        self, tmp_path: Path
    ) -> None:
        async with self.fixture(tmp_path) as fixture:
            for n in range(9):
                await queue(fixture, f"a{n}", "acme")
            for n in range(3):
                await queue(fixture, f"b{n}", "bell")
            claimed = [(await self._claim(fixture, 1))[0] for _ in range(8)]
            assert claimed == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "a4"]

    async def test_priorities_count_among_the_skills_of_a_tenant(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await queue(fixture, "t1", skill="write")
            await queue(fixture, "t2", skill="plan")
            await queue(fixture, "t3", skill="write")
            await queue(fixture, "t4", skill="plan", priority=HIGH)
            assert await self._claim(fixture, 9) == ["t4", "t1", "t2", "t3"]

    async def test_a_tenant_has_as_many_runs_as_its_limit_allows(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            two = RunLimits(per_tenant=2)
            await fixture.store.enlist("w2", LEASE)
            for n in range(4):
                await queue(fixture, f"a{n}", "acme")
            await queue(fixture, "b0", "bell")
            await queue(fixture, "other", "acme", agent=ANOTHER)
            assert await self._claim(fixture, 2, two) == ["a0", "b0"]
            assert await self._claim(fixture, 9, two, worker="w2") == ["a1"]
            assert await self._claim(fixture, 9, two, worker="w2", agent=ANOTHER) == []
            (held,) = await fixture.store.list_held_tasks("w2")
            row = await fixture.store.row(Scope("acme", "alice", AGENT), held.claim.task_id)
            # A task that waits for its caller needs no place.
            await fixture.ask(row)
            assert await self._claim(fixture, 9, two) == ["a2"]
            await fixture.end(row)
            assert await self._claim(fixture, 9, two) == []
            assert await self._claim(fixture, 1) == ["a3"]
            assert await self._claim(fixture, 9, agent=ANOTHER) == ["other"]

    async def test_a_skill_has_as_many_runs_as_its_limit_allows(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            limits = RunLimits(per_skill=2, skills={"draw": 1})
            for n in range(3):
                await queue(fixture, f"d{n}", "acme" if n else "bell", "draw")
            for n in range(3):
                await queue(fixture, f"p{n}", "acme", "plan")
            await queue(fixture, "other", "acme", "draw", agent=ANOTHER)
            assert sorted(await self._claim(fixture, 9, limits)) == ["d1", "p0", "p1"]
            assert await self._claim(fixture, 9, limits) == []
            # The skills of another agent are other skills, even if they have the same id.
            assert await self._claim(fixture, 9, limits, agent=ANOTHER) == ["other"]

    async def test_limits_hold_for_claims_at_the_same_time(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            workers = await fixture.enlist(5)
            for n in range(30):
                await queue(fixture, f"t{n:02}", "ab"[n % 2], "pq"[n % 3 % 2])
            limits = RunLimits(per_tenant=6, skills={"p": 4})
            claims = await asyncio.gather(
                *(
                    self._claim(fixture, 3, limits, worker=worker)
                    for worker in workers
                    for _ in range(4)
                )
            )
            taken = [task_id for ids in claims for task_id in ids]
            assert len(taken) == len(set(taken)) == 12
            rows = [
                await fixture.store.row(Scope("ab"[int(name[1:]) % 2], "alice", AGENT), name)
                for name in taken
            ]
            assert sum(row.skill == "p" for row in rows) == 4
            assert sum(row.tenant == "a" for row in rows) == 6

    async def test_full_tenants_do_not_hide_those_after_them(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            one = RunLimits(per_tenant=1)
            for n in range(LANES + 2):
                await queue(fixture, f"a{n:03}", f"tenant{n:03}")
                await queue(fixture, f"b{n:03}", f"tenant{n:03}")
            taken: list[str] = []
            while claimed := await self._claim(fixture, 50, one):
                taken += claimed
            assert sorted(taken) == [f"a{n:03}" for n in range(LANES + 2)]
            await queue(fixture, "last", "zoo")
            assert await self._claim(fixture, 1, one) == ["last"]

    async def test_queued_tasks_are_counted_up_to_a_number(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            assert await fixture.store.count_queued(AGENT, 9) == 0
            for n in range(5):
                await queue(fixture, f"t{n}", "ab"[n % 2])
            await queue(fixture, "other", agent=ANOTHER)
            await fixture.open_task("held")
            assert await fixture.store.count_queued(AGENT, 9) == 5
            assert await fixture.store.count_queued(AGENT, 3) == 3
            await self._claim(fixture, 4)
            assert await fixture.store.count_queued(AGENT, 9) == 1


async def _ask(store: Store, ask: BudgetAsk, worker: str = "w1") -> BudgetGrant:
    (grant,) = await store.budgets.exchange(worker, [ask])
    return grant


class BudgetTests(StoreTests):
    """Tests of `Store.budgets`."""

    async def test_a_worker_knows_whether_it_is_alone(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            store = fixture.store
            assert await store.budgets.alone()
            await store.enlist("w2", LEASE)
            assert not await store.budgets.alone()
            await store.retire("w2")
            assert await store.budgets.alone()

    async def test_a_rate_is_given_out_in_parts_until_nothing_is_left(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            store = fixture.store
            assert await _ask(store, _CALLS) == BudgetGrant(80 // PART)
            assert await _ask(store, replace(_CALLS, want=2), "w2") == BudgetGrant(2)
            given = 12
            while units := (await _ask(store, _CALLS, "w2")).units:
                assert units <= max(1, (80 - given) // PART)
                given += units
            assert given == 80
            refused = await _ask(store, _CALLS)
            assert refused.units == 0
            assert 0.9 < refused.wait <= 1.0
            # Another caller has a budget of its own, and so has another kind.
            others = [replace(_CALLS, owner="bob"), replace(_CALLS, kind="policy")]
            assert await store.budgets.exchange("w1", others) == [BudgetGrant(10)] * 2

    async def test_a_rate_fills_evenly_and_takes_back_what_was_not_used(
        self, tmp_path: Path
    ) -> None:
        async with self.fixture(tmp_path) as fixture:
            store = fixture.store
            await _ask(store, replace(_CALLS, want=0, back=-100.0))
            nothing = await _ask(store, _CALLS)
            assert nothing.units == 0
            assert 20.9 < nothing.wait <= 21.1
            fixture.clock.tick(21_500)
            assert (await _ask(store, _CALLS)).units == 1
            assert (await _ask(store, _CALLS)).units == 0
            assert (await _ask(store, replace(_CALLS, back=1.0))).units == 1
            # It never holds more than its size, and a clock that is set back adds nothing.
            fixture.clock.tick(3_600_000)
            await _ask(store, replace(_CALLS, want=0, back=50.0))
            fixture.clock.set(-60_000)
            assert await _ask(store, _CALLS) == BudgetGrant(80 // PART)

    async def test_a_quota_counts_what_all_workers_hold(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            store = fixture.store
            await store.enlist("w2", 2 * LEASE)
            assert (await _ask(store, _STREAMS)).units == 1
            assert (await _ask(store, replace(_STREAMS, held=1))).units == 1
            assert (await _ask(store, _STREAMS, "w2")).units == 1
            assert (await _ask(store, replace(_STREAMS, held=1), "w2")).units == 1
            for worker in ("w1", "w2"):
                refused = await _ask(store, replace(_STREAMS, held=2), worker)
                assert refused == BudgetGrant(0, 1.0)
            await _ask(store, replace(_STREAMS, held=1, want=0))
            assert (await _ask(store, replace(_STREAMS, held=2), "w2")).units == 1
            # A dead worker holds nothing.
            fixture.clock.tick(LEASE)
            await store.reap()
            assert (await _ask(store, replace(_STREAMS, held=3), "w2")).units == 1
            assert (await _ask(store, replace(_STREAMS, held=4), "w2")).units == 0

    async def test_unfinished_tasks_take_places_of_a_quota(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            store = fixture.store
            live = replace(_STREAMS, kind="tasks", scope=ALICE)
            row = await fixture.open_task("t1")
            await fixture.open_task("t2", worker="")
            assert (await _ask(store, live)).units == 1
            assert (await _ask(store, replace(live, held=1))).units == 1
            assert (await _ask(store, replace(live, held=2))).units == 0
            await fixture.end(row)
            assert (await _ask(store, replace(live, held=2))).units == 1

    async def test_budgets_hold_for_workers_that_ask_at_the_same_time(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            store = fixture.store
            workers = [f"w{n}" for n in range(1, 5)]
            for worker in workers:
                await store.enlist(worker, LEASE)
            both = [replace(_CALLS, size=8), _STREAMS]
            asks = (
                store.budgets.exchange(worker, both[::step])
                for worker in workers
                for step in (1, -1)
            )
            granted = [grant for answer in await asyncio.gather(*asks) for grant in answer]
            assert sum(grant.units for grant in granted) <= 8 + 2 * 4
            calls = await asyncio.gather(*(_ask(store, both[0], worker) for worker in workers))
            assert sum(grant.units for grant in calls) == 0
