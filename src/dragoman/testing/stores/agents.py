"""Several agents in one store: what belongs to one does not exist for another."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.core.errors import TaskNotFound
from dragoman.core.events import StateChanged
from dragoman.core.model import Hook, State
from dragoman.store.interface import AdminFilter, Existing, Filter, Idempotency, Input, Row

from .base import Chapter
from .fixture import AGENT, ALICE, ALICE_WITH_ANOTHER, ANOTHER, BOB, Bench, said

WORKING = StateChanged(state=State.WORKING)
BOTH = (ALICE, ALICE_WITH_ANOTHER)
DAY = 86_400_000


def _hook(task_id: str) -> Hook:
    return Hook(hook_id="h", task_id=task_id, url="https://example.com/hook")


def _names(rows: list[Row]) -> list[str]:
    return [row.task_id for row in rows]


class AgentChapter(Chapter):
    """The agent in the scope, and tasks that no list shows."""

    async def test_the_task_of_one_agent_does_not_exist_for_another(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            waiting = await bench.open_task("waiting")
            await bench.ask(waiting)
            await bench.end(await bench.open_task("ended"))
            store, scope, message = bench.store, ALICE_WITH_ANOTHER, Input(message=said("x"))
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
            assert await store.live(scope) == 0
            assert await store.counts(ANOTHER) == {"runnable": 0}
            assert await store.row(ALICE, "waiting") == replace(
                waiting, state=State.INPUT_REQUIRED, last_seq=3, question="q1", asking="input"
            )

    async def test_agents_have_lists_contexts_and_counts_of_their_own(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            for scope in BOTH:
                for task_id in ("live", "ended"):
                    end = State.COMPLETED if task_id == "ended" else None
                    name = f"{scope.agent}-{task_id}"
                    await bench.create(bench.draft(name, scope=scope, context="c", end=end))

            async def check() -> None:
                for scope in BOTH:
                    own = {f"{scope.agent}-live", f"{scope.agent}-ended"}
                    for which in (Filter(), Filter(context_id="c"), Filter(since=1)):
                        listing = await bench.store.find(scope, which, 9)
                        assert {task.id for task in listing.tasks} == own
                        assert listing.total == 2
                    assert await bench.store.live(scope) == 1
                    expected = {"working": 1, "completed": 1, "runnable": 0}
                    assert await bench.store.counts(scope.agent) == expected
                    owned = await bench.store.owned(AdminFilter(agent=scope.agent), 9)
                    assert set(_names(owned)) == own
                    assert {row.scope for row in owned} == {scope}
                assert len(await bench.store.owned(AdminFilter(context_id="c"), 9)) == 4

            await check()
            if self.durable:
                await bench.reopen()
                await check()

    async def test_agents_have_idempotency_keys_of_their_own(self, tmp_path: Path) -> None:
        opens, answers = Idempotency("opens", b"1"), Idempotency("answers", b"2")
        async with self.bench(tmp_path) as bench:
            for scope in BOTH:
                assert await bench.store.find_key(scope, "opens") is None
                name = f"{scope.agent}-task"
                row = await bench.create(bench.draft(name, scope=scope, key=opens))
                await bench.ask(row)
                said_so = Input(message=said("Kyoto"), key=answers)
                await bench.store.add_input(scope, name, said_so, "q1")
            if self.durable:
                await bench.reopen()
            for scope in BOTH:
                name = f"{scope.agent}-task"
                assert await bench.store.find_key(scope, "opens") == (name, b"1")
                assert await bench.store.find_key(scope, "answers") == (name, b"2")
                with pytest.raises(Existing) as caught:
                    await bench.create(bench.draft("again", scope=scope, key=opens))
                assert caught.value.task_id == name
            await bench.store.erase([f"{AGENT}-task"])
            assert await bench.store.find_key(ALICE, "opens") is None
            assert await bench.store.find_key(ALICE_WITH_ANOTHER, "opens") is not None

    async def test_agents_claim_only_their_own_tasks(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            for scope in BOTH:
                await bench.open_task(f"{scope.agent}-due", worker="", scope=scope)
                row = await bench.open_task(f"{scope.agent}-late", scope=scope)
                await bench.ask(row, expires_at=bench.clock.now + 1)
                await bench.open_task(f"{scope.agent}-lost", worker="dead", scope=scope)
            bench.clock.tick(10)
            # Whoever looks takes the tasks of the dead from them; only their own agent claims them.
            assert set(await bench.store.reap()) == {f"{AGENT}-lost", f"{ANOTHER}-lost"}
            bench.clock.tick(1_000)
            for agent in (AGENT, ANOTHER):
                assert _names(await bench.store.expired(agent, 9)) == [f"{agent}-late"]
                claimed = await bench.store.claim("w1", agent, 9)
                assert _names(claimed) == [f"{agent}-due", f"{agent}-lost"]
                assert await bench.store.claim("w1", agent, 9) == []

    async def test_agents_drop_only_their_own_old_tasks(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            for scope in BOTH:
                row = await bench.open_task(f"{scope.agent}-ended", scope=scope)
                await bench.end(row)
            bench.clock.tick(DAY)
            assert await bench.store.sweep(AGENT, DAY, 9 * DAY, 9) == 1
            assert await bench.log(f"{AGENT}-ended") == []
            assert len(await bench.log(f"{ANOTHER}-ended", ALICE_WITH_ANOTHER)) == 3
            assert await bench.store.sweep(AGENT, DAY, DAY, 9) == 1
            assert await bench.store.sweep(AGENT, DAY, DAY, 9) == 0
            assert _names(await bench.store.owned(AdminFilter(), 9)) == [f"{ANOTHER}-ended"]

    async def test_agents_deliver_only_their_own_webhooks(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            for scope in BOTH:
                name = f"{scope.agent}-task"
                row = await bench.open_task(name, scope=scope)
                await bench.store.set_hook(scope, _hook(name))
                await bench.append(bench.write(row.claim, WORKING))
            first = bench.draft(f"{ANOTHER}-born", scope=ALICE_WITH_ANOTHER)
            await bench.create(replace(first, hook=_hook(f"{ANOTHER}-born")))
            if self.durable:
                await bench.reopen()
            waiting = await bench.store.outbox(dead=False, limit=9, agent=AGENT)
            assert [one.hook.task_id for one in waiting] == [f"{AGENT}-task"]
            assert len(await bench.store.outbox(dead=False, limit=9)) == 4
            (own,) = await bench.store.due(AGENT, 9, 1_000)
            assert (own.hook.task_id, own.scope) == (f"{AGENT}-task", ALICE)
            await bench.store.mark_dead(own.id, 500, "")
            others = await bench.store.due(ANOTHER, 9, 1_000)
            assert {one.hook.task_id for one in others} == {f"{ANOTHER}-task", f"{ANOTHER}-born"}
            assert {one.scope for one in others} == {ALICE_WITH_ANOTHER}
            for agent, dead in ((AGENT, 1), (ANOTHER, 0), (None, 1)):
                assert len(await bench.store.outbox(dead=True, limit=9, agent=agent)) == dead

    # Tasks that no list shows.

    async def _hide(self, bench: Bench, task_id: str, *, end: State | None) -> None:
        key = Idempotency(task_id, b"d")
        draft = bench.draft(task_id, context="c", key=key, end=end)
        await bench.create(replace(draft, row=replace(draft.row, hidden=True)))

    async def test_a_hidden_task_is_found_and_stands_on_no_list(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            await self._hide(bench, "hidden-live", end=None)
            await self._hide(bench, "hidden-ended", end=State.COMPLETED)
            await bench.create(bench.draft("shown", context="c", end=State.COMPLETED))

            async def check() -> None:
                for which in (Filter(), Filter(context_id="c"), Filter(state=State.COMPLETED)):
                    listing = await bench.store.find(ALICE, which, 9)
                    assert [task.id for task in listing.tasks] == ["shown"]
                    assert listing.total == 1
                assert await bench.store.live(ALICE) == 0
                assert await bench.store.counts(AGENT) == {"completed": 1, "runnable": 0}
                for name in ("hidden-live", "hidden-ended"):
                    row, task = await bench.store.load(ALICE, name)
                    assert (row.hidden, task) == (True, bench.folds[name].task())
                    assert await bench.store.find_key(ALICE, name) == (name, b"d")
                    assert await bench.store.find_key(BOB, name) is None
                    assert await bench.store.find_key(ALICE_WITH_ANOTHER, name) is None

            await check()
            if self.durable:
                await bench.reopen()
                await check()

    async def test_a_hidden_task_lives_and_goes_like_any_other(self, tmp_path: Path) -> None:
        async with self.bench(tmp_path) as bench:
            await self._hide(bench, "hidden", end=None)
            await self._hide(bench, "brief", end=State.COMPLETED)
            row = await bench.store.row(ALICE, "hidden")
            await bench.append(bench.write(row.claim, WORKING))
            await bench.end(row)
            assert await bench.store.counts(AGENT) == {"runnable": 0}
            assert _names(await bench.store.owned(AdminFilter(context_id="c"), 9)) == [
                "brief",
                "hidden",
            ]
            assert await bench.store.erase(["brief"]) == 1
            bench.clock.tick(DAY)
            assert await bench.store.sweep(AGENT, DAY, DAY, 9) == 1
            assert await bench.store.counts(AGENT) == {"runnable": 0}
            for name in ("hidden", "brief"):
                assert await bench.store.find_key(ALICE, name) is None
