"""Contract: budgets that several processes share."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from dragoman.store.budgets import PART, BudgetAsk, BudgetGrant
from dragoman.store.interface import Store

from .base import StoreTests
from .fixture import ALICE, LEASE

_CALLS = BudgetAsk(kind="calls", owner="alice", size=80, per_minute=60, want=100)
_STREAMS = BudgetAsk(kind="streams", owner="alice", size=4, want=1)


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
