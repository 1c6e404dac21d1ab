"""Contract: webhooks get every event, in order, and none is lost when a delivery fails."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.core.errors import TaskNotFound
from dragoman.core.events import StateChanged
from dragoman.core.model import Hook, State
from dragoman.store.bulkheads import Bulkheads, Principal, host_of
from dragoman.store.interface import Delivery, Existing, Idempotency, Row, Scope

from .base import StoreTests
from .fixture import AGENT, ALICE, ALICE_ELSEWHERE, BOB, LEASE, StoreFixture

WORKING = StateChanged(state=State.WORKING)
HOLD = 20_000
DAY = 86_400_000


def hook(task_id: str, hook_id: str = "h1", url: str = "https://example.com/hook") -> Hook:
    """Makes a webhook with all fields set."""
    return Hook(
        hook_id=hook_id,
        task_id=task_id,
        url=url,
        token="sealed token",  # noqa: S106
        scheme="Bearer",
        credentials="sealed credentials",
        dialect="a2a-1.0",
    )


async def due(fixture: StoreFixture, limit: int = 99) -> list[Delivery]:
    """Takes the deliveries that are due now."""
    return await fixture.store.claim_deliveries(AGENT, limit, HOLD)


def places(deliveries: list[Delivery]) -> list[tuple[str, str, int]]:
    """Returns the task, the webhook and the seq of each delivery."""
    return [(one.hook.task_id, one.hook.hook_id, one.seq) for one in deliveries]


def _place(one: Delivery) -> tuple[Principal, str]:
    return (one.scope.tenant, one.scope.principal), host_of(one.hook.url)


async def open_with_hook(fixture: StoreFixture, events: int = 0) -> Row:
    """Opens a task, sets a webhook, and then appends events that are due to it."""
    row = await fixture.open_task("t1")
    await fixture.store.set_hook(ALICE, hook("t1"))
    if events:
        await fixture.append(fixture.write(row.claim, *[WORKING] * events))
    return row


class HookTests(StoreTests):
    """Tests of `set_hook`, `hooks`, `delete_hook`, `claim_deliveries`, `mark_delivered`, `retry`,
    `mark_dead`, `outbox` and `redeliver`."""

    async def test_hooks_are_kept(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.open_task("t1")
            assert await fixture.store.hooks(ALICE, "t1") == []
            for name in ("h2", "h1"):
                await fixture.store.set_hook(ALICE, hook("t1", name))
            await fixture.store.set_hook(ALICE, hook("t1", "h2", "https://example.com/new"))
            expected = [hook("t1", "h2", "https://example.com/new"), hook("t1", "h1")]
            assert await fixture.store.hooks(ALICE, "t1") == expected
            if self.durable:
                await fixture.reopen()
                assert await fixture.store.hooks(ALICE, "t1") == expected
            await fixture.store.delete_hook(ALICE, "t1", "h2")
            await fixture.store.delete_hook(ALICE, "t1", "h2")
            assert await fixture.store.hooks(ALICE, "t1") == expected[1:]

    async def test_hooks_of_others_do_not_exist(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await open_with_hook(fixture)
            for other in (BOB, ALICE_ELSEWHERE):
                with pytest.raises(TaskNotFound):
                    await fixture.store.hooks(other, "t1")
                with pytest.raises(TaskNotFound):
                    await fixture.store.set_hook(other, hook("t1", "mine"))
                await fixture.store.delete_hook(other, "t1", "h1")
            with pytest.raises(TaskNotFound):
                await fixture.store.set_hook(ALICE, hook("nowhere"))
            assert await fixture.store.hooks(ALICE, "t1") == [hook("t1")]

    async def test_events_after_the_hook_are_due_in_order(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await open_with_hook(fixture)
            assert await due(fixture) == []
            await fixture.append(fixture.write(row.claim, WORKING, WORKING))
            (first,) = await due(fixture)
            assert (first.seq, first.attempt, first.hook) == (3, 1, hook("t1"))
            assert first.scope == ALICE
            # The next one waits for the first, and the first is hidden.
            assert await due(fixture) == []
            await fixture.append(fixture.write(row.claim, StateChanged(state=State.COMPLETED)))
            assert await due(fixture) == []
            for seq in (4, 5):
                await fixture.store.mark_delivered(first.id)
                (first,) = await due(fixture)
                assert first.seq == seq
            await fixture.store.mark_delivered(first.id)
            await fixture.store.mark_delivered(first.id)
            fixture.clock.tick(DAY)
            assert await due(fixture) == []
            assert await fixture.store.outbox(dead=False, limit=9) == []

    async def test_a_hook_set_with_the_task_hears_it_all(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.create(replace(fixture.draft("t1"), hook=hook("t1")))
            born = fixture.draft("t2", end=State.COMPLETED)
            await fixture.create(replace(born, hook=hook("t2")))
            await fixture.open_task("t3")
            assert await fixture.store.hooks(ALICE, "t1") == [hook("t1")]
            told = []
            while found := await due(fixture):
                told += places(found)
                for one in found:
                    await fixture.store.mark_delivered(one.id)
            assert sorted(told) == [(t, "h1", n) for t in ("t1", "t2") for n in (1, 2)]

    async def test_a_refused_task_leaves_no_hook(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            key = Idempotency("k", b"d")
            await fixture.create(fixture.draft("t1", key=key))
            with pytest.raises(Existing):
                await fixture.create(replace(fixture.draft("t2", key=key), hook=hook("t2")))
            assert await due(fixture) == []
            with pytest.raises(TaskNotFound):
                await fixture.store.hooks(ALICE, "t2")

    async def test_a_late_hook_hears_the_end_once(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.end(await fixture.open_task("t1"))
            await fixture.store.set_hook(ALICE, hook("t1"))
            (last,) = await due(fixture)
            assert last.seq == 3
            await fixture.store.mark_delivered(last.id)
            await fixture.store.set_hook(ALICE, hook("t1"))
            assert await due(fixture) == []

    async def test_hooks_do_not_wait_for_each_other(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            for task_id in ("t1", "t2"):
                row = await fixture.open_task(task_id)
                for name in ("h1", "h2"):
                    await fixture.store.set_hook(ALICE, hook(task_id, name))
                await fixture.append(fixture.write(row.claim, WORKING, WORKING))
                fixture.clock.tick(1)
            assert len(await due(fixture, 1)) == 1
            rest = await due(fixture)
            assert len(rest) == 3
            assert places(rest)[-2:] == [("t2", "h1", 3), ("t2", "h2", 3)]

    async def test_full_bulkheads_are_passed_over(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            for n in range(40):  # of one principal, each at a host of its own
                await self._due_soon(fixture, f"slow{n}", ALICE, f"https://h{n}.example.com/")
            for n in range(3):  # of another principal, all at one host
                scope = Scope("", "crowd", AGENT)
                await self._due_soon(fixture, f"same{n}", scope, "https://one.example.com:8443/")
            await self._due_soon(fixture, "other", scope, "https://two.example.com/")
            # A host that is full for one principal is not full for others.
            await self._due_soon(fixture, "quick", BOB, "https://one.example.com/")
            taken = await fixture.store.claim_deliveries(AGENT, 20, HOLD, Bulkheads(4, 2))
            names = [one.hook.task_id for one in taken]
            assert names == ["slow0", "slow1", "slow2", "slow3", "same0", "same1", "other", "quick"]
            held = [_place(one) for one in taken]
            assert (
                await fixture.store.claim_deliveries(AGENT, 20, HOLD, Bulkheads(4, 2, held)) == []
            )
            # Places that are free again are filled, oldest first, and never more than asked for.
            (more,) = await fixture.store.claim_deliveries(
                AGENT, 1, HOLD, Bulkheads(4, 2, held[2:])
            )
            assert more.hook.task_id == "slow4"
            assert (
                len(await fixture.store.claim_deliveries(AGENT, 99, HOLD, Bulkheads(99, 99))) == 36
            )

    async def test_bulkheads_without_a_place_admit_nobody(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await self._due_soon(fixture, "t1", ALICE, "https://one.example.com/")
            await self._due_soon(fixture, "t2", BOB, "https:///")
            for nobody in (Bulkheads(0, 9), Bulkheads(9, 0)):
                async with asyncio.timeout(60):
                    assert await fixture.store.claim_deliveries(AGENT, 9, HOLD, nobody) == []
            assert len(await fixture.store.claim_deliveries(AGENT, 9, HOLD, Bulkheads(1, 1))) == 2

    async def _due_soon(self, fixture: StoreFixture, task_id: str, scope: Scope, url: str) -> None:
        row = await fixture.open_task(task_id, scope=scope)
        await fixture.store.set_hook(scope, hook(task_id, url=url))
        await fixture.append(fixture.write(row.claim, WORKING))
        fixture.clock.tick(1)

    async def test_one_call_may_tell_all_that_waits(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await open_with_hook(fixture, 3)
            (one,) = await due(fixture)
            assert (one.seq, one.last) == (3, 5)
            await fixture.append(fixture.write(row.claim, WORKING))
            await fixture.store.mark_delivered(one.id, 5)
            (two,) = await due(fixture)
            assert (two.seq, two.last, two.attempt) == (6, 6, 1)
            # It cannot deliver more than there is.
            await fixture.store.mark_delivered(two.id, 99)
            assert await fixture.store.outbox(dead=False, limit=9) == []
            await fixture.append(fixture.write(row.claim, WORKING, WORKING))
            (three,) = await due(fixture)
            assert (three.seq, three.last) == (7, 8)
            await fixture.store.mark_dead(three.id, 500, "", 8)
            assert await due(fixture) == []
            if self.durable:
                await fixture.reopen()
            (dead,) = await fixture.store.outbox(dead=True, limit=9)
            assert (dead.seq, dead.status) == (8, 500)
            assert await fixture.store.redeliver(dead.id)
            await fixture.append(fixture.write(row.claim, WORKING))
            (again,) = await due(fixture)
            assert (again.seq, again.last) == (8, 0)
            await fixture.store.mark_delivered(again.id, 9)
            assert [(one.seq, one.last) for one in await due(fixture)] == [(9, 9)]

    async def test_what_failed_is_tried_later(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await open_with_hook(fixture, 2)
            (one,) = await due(fixture)
            await fixture.store.retry(one.id, 5_000, 503, "")
            assert await due(fixture) == []
            shown = await fixture.store.outbox(dead=False, limit=9)
            assert [(d.seq, d.attempt, d.status) for d in shown] == [(3, 1, 503), (4, 0, 0)]
            assert shown[0].due_at == fixture.clock.now + 5_000
            fixture.clock.tick(4_999)
            assert await due(fixture) == []
            if self.durable:
                await fixture.reopen()
                assert await due(fixture) == []
            fixture.clock.tick(1)
            (again,) = await due(fixture)
            assert (again.id, again.attempt) == (one.id, 2)
            # A delivery that was put off without a try costs no attempt.
            await fixture.store.retry(again.id, 0, 0, "put off", tried=False)
            (again,) = await due(fixture)
            assert (again.id, again.attempt, again.error) == (one.id, 2, "put off")

    async def test_who_dies_holding_one_loses_nothing(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await open_with_hook(fixture, 1)
            (one,) = await due(fixture)
            if self.durable:
                await fixture.reopen()
            fixture.clock.tick(HOLD)
            (again,) = await due(fixture)
            assert again.id == one.id

    async def test_a_clock_set_back_gives_nothing_away_that_is_taken(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.store.reap()
            await self._due_soon(fixture, "before", ALICE, "https://one.example.com/")
            assert places(await due(fixture)) == [("before", "h1", 3)]
            fixture.clock.set(-3_600_000)
            # It is taken before the store notices that the clock was set.
            await self._due_soon(fixture, "after", ALICE, "https://two.example.com/")
            assert places(await due(fixture)) == [("after", "h1", 3)]
            await fixture.store.reap()
            assert await due(fixture) == []
            fixture.clock.tick(HOLD - 2)
            assert await due(fixture) == []
            # Nothing is held for much longer than that either.
            fixture.clock.tick(9)
            assert sorted(places(await due(fixture))) == [("after", "h1", 3), ("before", "h1", 3)]

    async def test_who_takes_a_task_over_tells_its_hooks(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await open_with_hook(fixture)
            await fixture.store.release(row.claim, runnable=True)
            if self.durable:
                await fixture.reopen()
                await fixture.store.enlist("w1", LEASE)
            (taken,) = await fixture.store.claim("w1", AGENT, 9)
            await fixture.append(fixture.write(taken.claim, WORKING))
            assert [one.seq for one in await due(fixture)] == [3]

    async def test_dead_letters_make_way_and_come_back(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await open_with_hook(fixture, 3)
            (one,) = await due(fixture)
            assert await fixture.store.redeliver(one.id) is False
            await fixture.store.mark_dead(one.id, 500, "why")
            fixture.clock.tick(1)
            if self.durable:
                await fixture.reopen()
            (dead,) = await fixture.store.outbox(dead=True, limit=9)
            assert (dead.id, dead.status, dead.error) == (one.id, 500, "why")
            assert dead.dead_at == fixture.clock.now - 1
            (two,) = await due(fixture)
            assert two.seq == 4
            # While one is on its way the other waits; then it comes first.
            assert await fixture.store.redeliver(one.id) is True
            assert await fixture.store.redeliver(one.id) is False
            assert await due(fixture) == []
            assert await fixture.store.outbox(dead=True, limit=9) == []
            await fixture.store.mark_delivered(two.id)
            (again,) = await due(fixture)
            assert (again.id, again.attempt) == (one.id, 1)
            await fixture.store.mark_delivered(again.id)
            assert [d.seq for d in await due(fixture)] == [5]

    async def test_a_deleted_hook_hears_nothing_more(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await open_with_hook(fixture, 2)
            (one,) = await due(fixture)
            await fixture.store.mark_dead(one.id, 0, "x")
            (two,) = await due(fixture)
            await fixture.store.delete_hook(ALICE, "t1", "h1")
            # A delivery that was on its way may still report.
            await fixture.store.retry(two.id, 0, 0, "late")
            await fixture.store.mark_dead(two.id, 0, "late")
            await fixture.store.mark_delivered(two.id)
            await fixture.append(fixture.write(row.claim, WORKING))
            assert await due(fixture) == []
            assert await fixture.store.outbox(dead=True, limit=9) == []
            assert await fixture.store.redeliver(one.id) is False

    async def test_another_address_gets_what_is_due(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await open_with_hook(fixture, 1)
            (one,) = await due(fixture)
            await fixture.store.retry(one.id, DAY, 404, "")
            moved = hook("t1", url="https://example.com/elsewhere")
            await fixture.store.set_hook(ALICE, moved)
            (again,) = await due(fixture)
            assert (again.seq, again.attempt, again.hook) == (3, 1, moved)

    async def test_a_refused_write_tells_nobody(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await open_with_hook(fixture)
            stale = replace(row.claim, token="stale")  # noqa: S106
            with pytest.raises(Exception, match="holds the task"):
                await fixture.append(fixture.write(stale, WORKING))
            assert await due(fixture) == []

    async def test_undelivered_events_are_not_swept(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            for task_id in ("told", "due", "dead"):
                row = await fixture.open_task(task_id)
                await fixture.store.set_hook(ALICE, hook(task_id))
                await fixture.end(row)
            for one in await due(fixture):
                if one.hook.task_id == "told":
                    await fixture.store.mark_delivered(one.id)
                elif one.hook.task_id == "dead":
                    await fixture.store.mark_dead(one.id, 0, "x")
                else:
                    await fixture.store.retry(one.id, 99 * DAY, 0, "x")
            fixture.clock.tick(8 * DAY)
            assert await fixture.store.sweep(AGENT, 7 * DAY, 30 * DAY, 9) == 1
            assert [len(await fixture.log(name)) for name in ("told", "due", "dead")] == [0, 3, 3]
            fixture.clock.tick(30 * DAY)
            # A dead letter keeps its events, but does not keep a task forever.
            assert await fixture.store.sweep(AGENT, 7 * DAY, 30 * DAY, 9) == 2
            assert len(await fixture.log("due")) == 3
            assert await fixture.store.outbox(dead=True, limit=9) == []
            (last,) = await fixture.store.outbox(dead=False, limit=9)
            await fixture.store.mark_delivered(last.id)
            assert await fixture.store.sweep(AGENT, 7 * DAY, 30 * DAY, 9) == 1
            if self.durable:
                await fixture.reopen()
            assert await fixture.store.outbox(dead=False, limit=9) == []
