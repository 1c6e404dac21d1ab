"""What is special about the store in memory."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.core.errors import TaskNotFound
from dragoman.core.model import State
from dragoman.store.interface import Filter, Idempotency, Store
from dragoman.store.memory.records import FrozenTask
from dragoman.store.memory.store import MemoryStore
from dragoman.testing.stores import HandClock, StoreFixture
from dragoman.testing.stores.fixture import AGENT, ALICE


async def _small(folder: Path, clock: HandClock) -> Store:
    return MemoryStore(clock, limit=3)


async def test_the_oldest_finished_tasks_make_room(tmp_path: Path) -> None:
    async with StoreFixture(_small, tmp_path) as fixture:
        await fixture.open_task("live")
        for n in range(6):
            key = Idempotency(f"k{n}", b"")
            context = "shared" if n < 5 else "own"
            row = await fixture.create(fixture.draft(f"t{n}", key=key, context=context))
            await fixture.end(row)
        for n in range(3):
            with pytest.raises(TaskNotFound):
                await fixture.store.row(ALICE, f"t{n}")
        for which, left in (
            (Filter(), {"live", "t3", "t4", "t5"}),
            (Filter(context_id="shared"), {"t3", "t4"}),
            (Filter(context_id="own"), {"t5"}),
        ):
            listing = await fixture.store.find(ALICE, which, 99)
            assert {task.id for task in listing.tasks} == left
        counts = await fixture.store.count_by_state(AGENT)
        assert counts == {"working": 1, "completed": 3, "runnable": 0}
        # A key lives as long as its task.
        await fixture.create(fixture.draft("again", key=Idempotency("k0", b"other")))


async def test_the_collector_does_not_follow_finished_tasks(tmp_path: Path) -> None:
    async with StoreFixture(_small, tmp_path) as fixture:
        row = await fixture.open_task("t1")
        await fixture.end(row, State.FAILED)
        gc.collect()
        assert not any(isinstance(thing, FrozenTask) for thing in gc.get_objects())


async def test_done_is_called_before_the_method_returns(tmp_path: Path) -> None:
    async with StoreFixture(_small, tmp_path) as fixture:
        landed: list[Exception | None] = []
        fixture.store.create(fixture.draft("t1"), landed.append)
        assert landed == [None]


async def test_a_list_is_in_order_when_the_clock_is_not(tmp_path: Path) -> None:
    async with StoreFixture(_roomy, tmp_path) as fixture:
        ends: list[tuple[int, str]] = []
        for n, jump in enumerate([10, -500, 20, 30, -5, 900, -100, 7, 0, 0, -1] * 4):
            fixture.clock.tick(jump)
            row = await fixture.open_task(f"t{n:02}")
            await fixture.end(row, State.FAILED if n % 5 == 0 else State.COMPLETED)
            ends.append((fixture.clock.now, f"t{n:02}"))
        ends.sort(reverse=True)
        for since in (None, ends[20][0], ends[0][0], ends[-1][0]):
            for limit in (1, 3, 10, 99):
                seen: list[tuple[int, str]] = []
                which = Filter(since=since)
                fitting = [end for end in ends if since is None or end[0] >= since]
                while (page := await fixture.store.find(ALICE, which, limit)).places:
                    assert page.total == len(fitting)
                    seen += page.places
                    which = replace(which, before=page.places[-1])
                assert seen == fitting
        failed = await fixture.store.find(ALICE, Filter(state=State.FAILED), 3)
        assert failed.places == [end for end in ends if int(end[1][1:]) % 5 == 0][:3]
        assert failed.total == 9


async def _roomy(folder: Path, clock: HandClock) -> Store:
    return MemoryStore(clock)
