"""Contract: the order in which tasks of several tenants are claimed, and how many may run."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from dragoman.store.interface import RunLimits, Scope
from dragoman.store.run_limits import LANES
from dragoman.store.task_row import HIGH

from .base import StoreTests
from .fixture import AGENT, ANOTHER, LEASE, StoreFixture


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
        self,
        fixture: StoreFixture,
        limit: int,
        limits: RunLimits | None = None,
        *,
        worker: str = "w1",
        agent: str = AGENT,
    ) -> list[str]:
        rows = await fixture.store.claim(worker, agent, limit, limits or RunLimits())
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
            workers = [f"w{n}" for n in range(1, 6)]
            for worker in workers:
                await fixture.store.enlist(worker, LEASE)
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
