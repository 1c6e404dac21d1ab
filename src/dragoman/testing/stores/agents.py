"""Contract: several agents share a store, and the tasks of one do not exist for another."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.core.errors import Fenced, TaskNotFound
from dragoman.core.events import StateChanged
from dragoman.core.model import Hook, State
from dragoman.store.interface import (
    AdminFilter,
    Existing,
    Filter,
    Idempotency,
    Input,
    Record,
    Row,
)

from .base import StoreTests
from .fixture import AGENT, ALICE, ALICE_WITH_ANOTHER, ANOTHER, BOB, StoreFixture, said

WORKING, COMPLETED = StateChanged(state=State.WORKING), StateChanged(state=State.COMPLETED)
BOTH = (ALICE, ALICE_WITH_ANOTHER)
DAY = 86_400_000


def _hook(task_id: str) -> Hook:
    return Hook(hook_id="h", task_id=task_id, url="https://example.com/hook")


def _names(rows: list[Row]) -> list[str]:
    return [row.task_id for row in rows]


class AgentTests(StoreTests):
    """Tests of the agent in a scope, and of hidden tasks."""

    async def test_the_task_of_one_agent_does_not_exist_for_another(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            waiting = await fixture.open_task("waiting")
            await fixture.ask(waiting)
            await fixture.end(await fixture.open_task("ended"))
            store, scope, message = fixture.store, ALICE_WITH_ANOTHER, Input(message=said("x"))
            for task_id in ("waiting", "ended"):
                await store.set_hook(ALICE, _hook(task_id))
                for attempt in (
                    store.row(scope, task_id),
                    store.load(scope, task_id),
                    store.read(scope, task_id, 0, 9),
                    store.add_input(scope, task_id, message, None),
                    store.add_input(scope, task_id, message, "q1"),
                    store.ask_cancel(scope, task_id),
                    store.hooks(scope, task_id),
                    store.set_hook(scope, _hook(task_id)),
                ):
                    with pytest.raises(TaskNotFound):
                        await attempt
                await store.delete_hook(scope, task_id, "h")
                assert len(await store.hooks(ALICE, task_id)) == 1
            listing = await store.find(scope, Filter(), 9)
            assert (listing.tasks, listing.total) == ([], 0)
            assert await store.count_unfinished(scope) == 0
            assert await store.count_by_state(ANOTHER) == {"runnable": 0}
            assert await store.row(ALICE, "waiting") == replace(
                waiting, state=State.INPUT_REQUIRED, last_seq=3, question="q1", asking="input"
            )

    async def test_agents_have_lists_contexts_and_counts_of_their_own(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            for scope in BOTH:
                for task_id in ("live", "ended"):
                    end = State.COMPLETED if task_id == "ended" else None
                    name = f"{scope.agent}-{task_id}"
                    await fixture.create(fixture.draft(name, scope=scope, context="c", end=end))

            async def check() -> None:
                for scope in BOTH:
                    own = {f"{scope.agent}-live", f"{scope.agent}-ended"}
                    for which in (Filter(), Filter(context_id="c"), Filter(since=1)):
                        listing = await fixture.store.find(scope, which, 9)
                        assert {task.id for task in listing.tasks} == own
                        assert listing.total == 2
                    assert await fixture.store.count_unfinished(scope) == 1
                    expected = {"working": 1, "completed": 1, "runnable": 0}
                    assert await fixture.store.count_by_state(scope.agent) == expected
                    owned = await fixture.store.find_in_all_scopes(
                        AdminFilter(agent=scope.agent), 9
                    )
                    assert set(_names(owned)) == own
                    assert {row.scope for row in owned} == {scope}
                assert (
                    len(await fixture.store.find_in_all_scopes(AdminFilter(context_id="c"), 9)) == 4
                )

            await check()
            if self.durable:
                await fixture.reopen()
                await check()

    async def test_agents_have_idempotency_keys_of_their_own(self, tmp_path: Path) -> None:
        opens, answers = Idempotency("opens", b"1"), Idempotency("answers", b"2")
        async with self.fixture(tmp_path) as fixture:
            for scope in BOTH:
                assert await fixture.store.find_key(scope, "opens") is None
                name = f"{scope.agent}-task"
                row = await fixture.create(fixture.draft(name, scope=scope, key=opens))
                await fixture.ask(row)
                said_so = Input(message=said("Kyoto"), key=answers)
                await fixture.store.add_input(scope, name, said_so, "q1")
            if self.durable:
                await fixture.reopen()
            for scope in BOTH:
                name = f"{scope.agent}-task"
                assert await fixture.store.find_key(scope, "opens") == (name, b"1")
                assert await fixture.store.find_key(scope, "answers") == (name, b"2")
                with pytest.raises(Existing) as caught:
                    await fixture.create(fixture.draft("again", scope=scope, key=opens))
                assert caught.value.task_id == name
            await fixture.store.erase([f"{AGENT}-task"])
            assert await fixture.store.find_key(ALICE, "opens") is None
            assert await fixture.store.find_key(ALICE_WITH_ANOTHER, "opens") is not None

    async def test_agents_claim_only_their_own_tasks(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            for scope in BOTH:
                await fixture.open_task(f"{scope.agent}-due", worker="", scope=scope)
                row = await fixture.open_task(f"{scope.agent}-late", scope=scope)
                await fixture.ask(row, expires_at=fixture.clock.now + 1)
                await fixture.open_task(f"{scope.agent}-lost", worker="dead", scope=scope)
            fixture.clock.tick(10)
            # Any agent takes the tasks of dead workers from them; only their own agent claims them.
            assert set(await fixture.store.reap()) == {f"{AGENT}-lost", f"{ANOTHER}-lost"}
            fixture.clock.tick(1_000)
            for agent in (AGENT, ANOTHER):
                assert _names(await fixture.store.list_expired_tasks(agent, 9)) == [f"{agent}-late"]
                claimed = await fixture.store.claim("w1", agent, 9)
                assert _names(claimed) == [f"{agent}-due", f"{agent}-lost"]
                assert await fixture.store.claim("w1", agent, 9) == []

    async def test_one_question_tells_which_agents_have_something_to_do(
        self, tmp_path: Path
    ) -> None:
        async with self.fixture(tmp_path) as fixture:
            store, scope = fixture.store, ALICE_WITH_ANOTHER
            assert await store.agents_due() == set()
            for number in range(3):
                await fixture.open_task(f"due-{number}", worker="", scope=ALICE)
            assert await store.agents_due() == {AGENT}
            waiting = await fixture.open_task("waiting", scope=scope)
            await fixture.ask(waiting, expires_at=fixture.clock.now + 5)
            assert await store.agents_due() == {AGENT}
            fixture.clock.tick(10)
            assert await store.agents_due() == {AGENT, ANOTHER}
            await store.claim("w1", AGENT, 9)
            assert await store.agents_due() == {ANOTHER}
            await fixture.end(waiting)
            assert await store.agents_due() == set()
            told = await fixture.open_task("told", scope=scope)
            await store.set_hook(scope, _hook("told"))
            assert await store.agents_due() == set()
            await fixture.append(fixture.write(told.claim, WORKING))
            assert await store.agents_due() == {ANOTHER}
            await store.claim_deliveries(ANOTHER, 9, 1_000)
            assert await store.agents_due() == set()

    async def test_agents_drop_only_their_own_old_tasks(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            for scope in BOTH:
                row = await fixture.open_task(f"{scope.agent}-ended", scope=scope)
                await fixture.end(row)
            fixture.clock.tick(DAY)
            assert await fixture.store.sweep(AGENT, DAY, 9 * DAY, 9) == 1
            assert await fixture.log(f"{AGENT}-ended") == []
            assert len(await fixture.log(f"{ANOTHER}-ended", ALICE_WITH_ANOTHER)) == 3
            assert await fixture.store.sweep(AGENT, DAY, DAY, 9) == 1
            assert await fixture.store.sweep(AGENT, DAY, DAY, 9) == 0
            assert _names(await fixture.store.find_in_all_scopes(AdminFilter(), 9)) == [
                f"{ANOTHER}-ended"
            ]

    async def test_an_operator_finds_what_is_unfinished_or_ended_lately(
        self, tmp_path: Path
    ) -> None:
        async with self.fixture(tmp_path) as fixture:

            async def found(**which: Any) -> list[str]:
                rows = await fixture.store.find_in_all_scopes(AdminFilter(**which), 99)
                return sorted(row.task_id for row in rows)

            early = await fixture.open_task("ended-early")
            await fixture.end(early)
            await fixture.create(fixture.draft("brief-early", end=State.COMPLETED))
            await fixture.open_task("held")
            forever = await fixture.open_task("waits-forever")
            await fixture.ask(forever)
            await fixture.store.release(forever.claim, runnable=False)
            waiting = await fixture.open_task("waits")
            await fixture.ask(waiting, expires_at=fixture.clock.now + DAY)
            await fixture.store.release(waiting.claim, runnable=False)
            due = await fixture.open_task("due")
            await fixture.store.release(due.claim, runnable=True)
            await self._hide(fixture, "hidden", end=None)
            fixture.clock.tick(1_000)
            since = fixture.clock.now
            other = await fixture.open_task("other-late", scope=ALICE_WITH_ANOTHER)
            await fixture.end(other)
            late = await fixture.open_task("ended-late")
            await fixture.end(late)
            await fixture.create(fixture.draft("brief-late", end=State.COMPLETED))
            if self.durable:
                await fixture.reopen()
            unfinished = ["due", "held", "hidden", "waits", "waits-forever"]
            lately = ["brief-late", "ended-late"]
            assert await found(agent=AGENT, active_since=since) == sorted(unfinished + lately)
            assert await found(agent=AGENT, active_since=since + 1) == unfinished
            assert await found(active_since=since) == sorted([*unfinished, *lately, "other-late"])
            window = {"active_since": since, "ended_before": since + 1}
            assert await found(agent=AGENT, **window) == lately
            assert await found(agent=AGENT, active_since=since, dialect="none") == []
            dialect = (await fixture.store.row(ALICE, "held")).dialect
            assert "held" in await found(agent=AGENT, active_since=since, dialect=dialect)

    async def test_agents_deliver_only_their_own_webhooks(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            for scope in BOTH:
                name = f"{scope.agent}-task"
                row = await fixture.open_task(name, scope=scope)
                await fixture.store.set_hook(scope, _hook(name))
                await fixture.append(fixture.write(row.claim, WORKING))
            first = fixture.draft(f"{ANOTHER}-born", scope=ALICE_WITH_ANOTHER)
            await fixture.create(replace(first, hook=_hook(f"{ANOTHER}-born")))
            if self.durable:
                await fixture.reopen()
            waiting = await fixture.store.outbox(dead=False, limit=9, agent=AGENT)
            assert [one.hook.task_id for one in waiting] == [f"{AGENT}-task"]
            assert len(await fixture.store.outbox(dead=False, limit=9)) == 4
            (own,) = await fixture.store.claim_deliveries(AGENT, 9, 1_000)
            assert (own.hook.task_id, own.scope) == (f"{AGENT}-task", ALICE)
            await fixture.store.mark_dead(own.id, 500, "")
            others = await fixture.store.claim_deliveries(ANOTHER, 9, 1_000)
            assert {one.hook.task_id for one in others} == {f"{ANOTHER}-task", f"{ANOTHER}-born"}
            assert {one.scope for one in others} == {ALICE_WITH_ANOTHER}
            for agent, dead in ((AGENT, 1), (ANOTHER, 0), (None, 1)):
                assert len(await fixture.store.outbox(dead=True, limit=9, agent=agent)) == dead

    # Tasks that no list shows.

    async def test_an_operator_finds_the_old_tasks_of_a_tenant(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.end(await fixture.open_task("ended"))
            await fixture.create(fixture.draft("brief", end=State.FAILED))
            await self._hide(fixture, "hidden", end=State.COMPLETED)
            await self._hide(fixture, "hidden-live", end=None)
            await fixture.open_task("live")
            await fixture.end(await fixture.open_task("of-another", scope=ALICE_WITH_ANOTHER))
            before = fixture.clock.now + 1
            fixture.clock.tick(1_000)
            await fixture.create(fixture.draft("late", end=State.COMPLETED))
            which = AdminFilter(tenant=ALICE.tenant, agent=AGENT, ended_before=before)
            found = await fixture.store.find_in_all_scopes(which, 9)
            assert sorted(_names(found)) == ["brief", "ended", "hidden"]
            other = AdminFilter(tenant="elsewhere", agent=AGENT, ended_before=before)
            assert await fixture.store.find_in_all_scopes(other, 9) == []

    async def _hide(self, fixture: StoreFixture, task_id: str, *, end: State | None) -> None:
        key = Idempotency(task_id, b"d")
        draft = fixture.draft(task_id, context="c", key=key, end=end)
        await fixture.create(replace(draft, row=replace(draft.row, hidden=True)))

    async def test_a_hidden_task_is_found_and_stands_on_no_list(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await self._hide(fixture, "hidden-live", end=None)
            await self._hide(fixture, "hidden-ended", end=State.COMPLETED)
            await fixture.create(fixture.draft("shown", context="c", end=State.COMPLETED))

            async def check() -> None:
                for which in (Filter(), Filter(context_id="c"), Filter(state=State.COMPLETED)):
                    listing = await fixture.store.find(ALICE, which, 9)
                    assert [task.id for task in listing.tasks] == ["shown"]
                    assert listing.total == 1
                assert await fixture.store.count_unfinished(ALICE) == 0
                assert await fixture.store.count_by_state(AGENT) == {"completed": 1, "runnable": 0}
                for name in ("hidden-live", "hidden-ended"):
                    row, task = await fixture.store.load(ALICE, name)
                    assert (row.hidden, task) == (True, fixture.folds[name].task())
                    assert await fixture.store.find_key(ALICE, name) == (name, b"d")
                    assert await fixture.store.find_key(BOB, name) is None
                    assert await fixture.store.find_key(ALICE_WITH_ANOTHER, name) is None

            await check()
            if self.durable:
                await fixture.reopen()
                await check()

    async def test_a_hidden_task_that_is_shown_is_one_like_any_other(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await self._hide(fixture, "goes-on", end=None)
            await self._hide(fixture, "ends", end=None)
            for name, *events in (("goes-on",), ("ends", COMPLETED)):
                row = await fixture.store.row(ALICE, name)
                # A record alone leaves it hidden.
                record = Record(key=name, value=b"1", seq=2)
                await fixture.append(fixture.write(row.claim, records=(record,)))
                assert (await fixture.store.row(ALICE, name)).hidden
                await fixture.append(replace(fixture.write(row.claim, *events), shown=True))

            async def check() -> None:
                listing = await fixture.store.find(ALICE, Filter(), 9)
                assert {task.id for task in listing.tasks} == {"goes-on", "ends"}
                assert listing.total == 2
                assert not (await fixture.store.row(ALICE, "goes-on")).hidden
                assert await fixture.store.count_unfinished(ALICE) == 1
                counted = {"completed": 1, "working": 1, "runnable": 0}
                assert await fixture.store.count_by_state(AGENT) == counted

            await check()
            if self.durable:
                await fixture.reopen()
                await check()

    async def test_a_task_that_is_discarded_leaves_nothing(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await self._hide(fixture, "hidden", end=None)
            await fixture.open_task("shown")
            for name in ("hidden", "shown"):
                row = await fixture.store.row(ALICE, name)
                await fixture.store.discard(replace(row.claim, epoch=7))
                assert (await fixture.store.row(ALICE, name)).claim == row.claim
                await fixture.store.discard(row.claim)
                with pytest.raises(TaskNotFound):
                    await fixture.store.row(ALICE, name)
                with pytest.raises(Fenced):
                    await fixture.append(fixture.write(row.claim, WORKING))
            if self.durable:
                await fixture.reopen()
            assert await fixture.store.find_key(ALICE, "hidden") is None
            counted = await fixture.store.count_by_state(AGENT)
            assert not any(counted.values())
            await self._hide(fixture, "hidden", end=None)  # the id and the key are free again

    async def test_a_hidden_task_lives_and_goes_like_any_other(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await self._hide(fixture, "hidden", end=None)
            await self._hide(fixture, "brief", end=State.COMPLETED)
            row = await fixture.store.row(ALICE, "hidden")
            await fixture.append(fixture.write(row.claim, WORKING))
            await fixture.end(row)
            assert await fixture.store.count_by_state(AGENT) == {"runnable": 0}
            assert _names(
                await fixture.store.find_in_all_scopes(AdminFilter(context_id="c"), 9)
            ) == [
                "brief",
                "hidden",
            ]
            assert await fixture.store.erase(["brief"]) == 1
            fixture.clock.tick(DAY)
            assert await fixture.store.sweep(AGENT, DAY, DAY, 9) == 1
            assert await fixture.store.count_by_state(AGENT) == {"runnable": 0}
            for name in ("hidden", "brief"):
                assert await fixture.store.find_key(ALICE, name) is None
