"""Contract: the operations of callers on tasks, and that the tasks of other callers do not exist
for them."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.core.errors import Conflict, TaskFinished, TaskNotFound
from dragoman.core.events import StateChanged
from dragoman.core.model import Role, State
from dragoman.store.interface import AdminFilter, Existing, Filter, Idempotency, Input, Row

from .base import StoreTests
from .fixture import AGENT, ALICE, ALICE_ELSEWHERE, ALICE_WITH_ANOTHER, BOB, StoreFixture, said

WORKING = StateChanged(state=State.WORKING)
ALL = Filter()


class CallerTests(StoreTests):
    """Tests of `add_input`, `ask_cancel`, `row`, `load`, `read` and `find`."""

    # Messages.

    async def test_a_message_answers_the_open_question(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            await fixture.ask(row, "q1")
            for question in ("q0", "q2", ""):
                with pytest.raises(Conflict):
                    await fixture.add_input("t1", question=question)
            told = await fixture.add_input("t1", "Kyoto", "q1")
            assert (told.inputs, told.heard, told.resting) == (1, 0, False)
            assert await fixture.store.inputs(row.claim) == [
                Input(message=said("Kyoto"), question="q1", n=1)
            ]

    async def test_a_message_without_a_question_answers_the_open_one(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            await fixture.ask(row, "q1")
            said_too = Input(message=said("Kyoto"), question="made up", value={"a": 1}, n=99)
            await fixture.store.add_input(ALICE, "t1", said_too, None)
            (kept,) = await fixture.store.inputs(row.claim)
            assert kept == replace(said_too, question="q1", n=1)

    async def test_a_question_is_answered_once(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            await fixture.ask(row, "q1")
            await fixture.add_input("t1", "first", "q1")
            with pytest.raises(Conflict):
                await fixture.add_input("t1", "second", "q1")
            # One more message is accepted, and waits for the next question.
            await fixture.add_input("t1", "third")
            answers = [(kept.n, kept.question) for kept in await fixture.store.inputs(row.claim)]
            assert answers == [(1, "q1"), (2, "")]

    async def test_a_running_task_hears_too(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            told = await fixture.add_input("t1", "by the way")
            assert told == replace(row, inputs=1)
            with pytest.raises(Conflict):
                await fixture.add_input("t1", "to what?", "q1")
            assert (await fixture.store.row(ALICE, "t1")).inputs == 1

    async def test_a_finished_task_hears_nothing(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            await fixture.ask(row, "q1")
            await fixture.end(row)
            for question in (None, "q1", "q2"):
                with pytest.raises(TaskFinished):
                    await fixture.add_input("t1", "late", question)

    async def test_a_message_wakes_a_task_nobody_holds(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            await fixture.ask(row)
            await fixture.store.release(row.claim, runnable=False)
            assert await fixture.store.claim("w1", AGENT, 9) == []
            fixture.clock.tick(10)
            told = await fixture.add_input("t1")
            assert (told.runnable, told.run_at) == (True, fixture.clock.now)
            assert [row.task_id for row in await fixture.store.claim("w1", AGENT, 9)] == ["t1"]

    async def test_a_message_does_not_hurry_a_task_that_pauses(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await fixture.open_task("t1", worker="dead")
            await fixture.store.reap()
            before = await fixture.store.row(ALICE, "t1")
            assert before.run_at > fixture.clock.now
            told = await fixture.add_input("t1")
            assert (told.runnable, told.run_at) == (True, before.run_at)

    # Canceling.

    async def test_a_cancel_is_a_mark(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            assert await fixture.store.ask_cancel(ALICE, "t1") == replace(row, cancel=True)
            assert await fixture.store.ask_cancel(ALICE, "t1") == replace(row, cancel=True)
            # The run still holds the task, and decides.
            await fixture.append(fixture.write(row.claim, WORKING))
            assert (await fixture.store.row(ALICE, "t1")).cancel

    async def test_a_finished_task_cannot_be_marked(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            await fixture.end(row)
            found = await fixture.store.ask_cancel(ALICE, "t1")
            assert (found.state, found.cancel) == (State.COMPLETED, False)

    # What belongs to someone else does not exist.

    async def test_others_see_nothing(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("live")
            ended = await fixture.open_task("ended")
            await fixture.end(ended)
            await fixture.ask(row)
            store = fixture.store
            for scope in (BOB, ALICE_ELSEWHERE, ALICE_WITH_ANOTHER):
                for task_id in ("live", "ended", "nowhere"):
                    for look in (
                        store.row(scope, task_id),
                        store.load(scope, task_id),
                        store.read(scope, task_id, 0, 9),
                        store.add_input(scope, task_id, Input(message=said("x")), None),
                        store.add_input(scope, task_id, Input(message=said("x")), "q1"),
                        store.ask_cancel(scope, task_id),
                    ):
                        with pytest.raises(TaskNotFound):
                            await look
                listing = await store.find(scope, ALL, 9)
                assert (listing.tasks, listing.places, listing.total) == ([], [], 0)
            after = await store.row(ALICE, "live")
            assert (after.inputs, after.cancel) == (0, False)

    # Reading.

    async def test_a_task_is_loaded_whole(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            for text in ("one", "two", "three"):
                told = StateChanged(state=State.WORKING, message=said(text, Role.AGENT))
                await fixture.append(fixture.write(row.claim, told))
                loaded, task = await fixture.store.load(ALICE, "t1")
                assert task == fixture.folds["t1"].task()
                assert loaded == await fixture.store.row(ALICE, "t1")
            await fixture.end(row)
            loaded, task = await fixture.store.load(ALICE, "t1")
            assert task == fixture.folds["t1"].task()
            assert (loaded.state, len(task.history)) == (State.COMPLETED, 4)

    # Lists.

    async def _several(self, fixture: StoreFixture) -> dict[str, Row]:
        """Makes six tasks with three status times. Their ids are in another order."""
        rows: dict[str, Row] = {}
        for n, (task_id, context) in enumerate(
            [("t5", "x"), ("t1", "x"), ("t4", "y"), ("t2", "x"), ("t6", "y"), ("t3", "x")]
        ):
            if n % 2 == 0:
                fixture.clock.tick(100)
            rows[task_id] = await fixture.create(fixture.draft(task_id, context=context))
        fixture.clock.tick(100)
        await fixture.end(rows["t5"])
        await fixture.ask(rows["t4"])
        await fixture.create(fixture.draft("b1", scope=BOB))
        await fixture.create(fixture.draft("z1", scope=ALICE_WITH_ANOTHER))
        return rows

    async def test_a_list_is_in_order(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await self._several(fixture)
            listing = await fixture.store.find(ALICE, ALL, 99)
            now = fixture.clock.now
            assert listing.places == [
                (now, "t5"),
                (now, "t4"),
                (now - 100, "t6"),
                (now - 100, "t3"),
                (now - 200, "t2"),
                (now - 300, "t1"),
            ]
            assert [task.id for task in listing.tasks] == ["t5", "t4", "t6", "t3", "t2", "t1"]
            assert listing.tasks == [fixture.folds[task.id].task() for task in listing.tasks]
            assert listing.total == 6

    async def test_a_list_is_filtered(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await self._several(fixture)
            now = fixture.clock.now
            cases = {
                "t5 t3 t2 t1": Filter(context_id="x"),
                "t4 t6": Filter(context_id="y"),
                "": Filter(context_id="nowhere"),
                "t5": Filter(state=State.COMPLETED),
                "t4": Filter(state=State.INPUT_REQUIRED),
                "t6 t3 t2 t1": Filter(state=State.WORKING),
                "t5 t4 t6 t3": Filter(since=now - 100),
                "t5 t4": Filter(since=now),
                "t3": Filter(context_id="x", state=State.WORKING, since=now - 100),
            }
            for expected, which in cases.items():
                listing = await fixture.store.find(ALICE, which, 99)
                assert " ".join(task.id for task in listing.tasks) == expected
                assert listing.total == len(expected.split())

    async def test_a_context_may_have_the_id_of_a_task(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:

            async def names(context: str) -> list[str]:
                which = Filter(context_id=context)
                found = [task.id for task in (await fixture.store.find(ALICE, which, 99)).tasks]
                owned = await fixture.store.find_in_all_scopes(AdminFilter(context_id=context), 99)
                assert sorted(found) == sorted(row.task_id for row in owned)
                return found

            await fixture.create(fixture.draft("t1", context="t1"))
            await fixture.create(fixture.draft("t2", context="t1", end=State.COMPLETED))
            await fixture.create(fixture.draft("t3", context="t3", end=State.COMPLETED))
            await fixture.create(fixture.draft("t4", context="t2"))
            assert await names("t1") == ["t2", "t1"]
            assert await names("t2") == ["t4"]
            assert await names("t3") == ["t3"]
            await fixture.store.erase(["t1", "t3"])
            assert await names("t1") == ["t2"]
            assert await names("t3") == []
            await fixture.store.erase(["t2"])
            assert await names("t1") == []

    async def test_pages_hold_every_task_once(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            await self._several(fixture)
            for base in (ALL, Filter(context_id="x")):
                whole = (await fixture.store.find(ALICE, base, 99)).places
                for size in (1, 2, 4):
                    seen: list[tuple[int, str]] = []
                    which = base
                    while (page := await fixture.store.find(ALICE, which, size)).places:
                        assert len(page.places) <= size
                        assert page.total == len(whole)
                        seen += page.places
                        which = replace(base, before=page.places[-1])
                    assert seen == whole

    # Idempotency keys of messages.

    async def test_what_is_said_twice_under_a_key_is_kept_once(self, tmp_path: Path) -> None:
        key = Idempotency("k", b"digest")
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            await fixture.open_task("t2")
            await fixture.ask(row, "q1")
            store, answer = fixture.store, Input(message=said("Kyoto"), key=key)
            assert await store.find_key(ALICE, "k") is None
            await store.add_input(ALICE, "t1", answer, None)
            other = replace(answer, key=Idempotency("k", b"other"))
            for task_id, again, same in (
                ("t1", answer, True),
                ("t1", other, False),
                ("t2", other, False),
            ):
                with pytest.raises(Existing) as caught:
                    await store.add_input(ALICE, task_id, again, None)
                assert (caught.value.task_id, caught.value.same) == ("t1", same)
            assert [kept.n for kept in await store.inputs(row.claim)] == [1]
            assert (await store.row(ALICE, "t2")).inputs == 0
            assert await store.find_key(ALICE, "k") == ("t1", b"digest")
            assert await store.find_key(BOB, "k") is None
            assert await store.find_key(ALICE_ELSEWHERE, "k") is None

    async def test_keys_that_open_and_keys_that_answer_are_the_same(self, tmp_path: Path) -> None:
        opens, answers = Idempotency("o", b"1"), Idempotency("a", b"2")
        async with self.fixture(tmp_path) as fixture:
            await fixture.create(fixture.draft("t1", key=opens))
            assert await fixture.store.find_key(ALICE, "o") == ("t1", b"1")
            with pytest.raises(Existing):
                await fixture.store.add_input(
                    ALICE, "t1", Input(message=said("x"), key=opens), None
                )
            await fixture.store.add_input(ALICE, "t1", Input(message=said("x"), key=answers), None)
            with pytest.raises(Existing) as caught:
                await fixture.create(fixture.draft("t2", key=answers))
            assert (caught.value.task_id, caught.value.same) == ("t1", True)

    async def test_the_key_of_an_answer_lives_as_long_as_its_task(self, tmp_path: Path) -> None:
        keys = [Idempotency(name, name.encode()) for name in ("a", "b")]
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            for key in keys:
                await fixture.store.add_input(ALICE, "t1", Input(message=said("x"), key=key), None)
            if self.durable:
                await fixture.reopen()
                assert await fixture.store.find_key(ALICE, "a") == ("t1", b"a")
            await fixture.end(row, heard=2)
            if self.durable:
                await fixture.reopen()
            for key in keys:
                # It repeats a message that was heard long ago, and says nothing new to the task.
                with pytest.raises(Existing):
                    await fixture.store.add_input(
                        ALICE, "t1", Input(message=said("x"), key=key), None
                    )
            await fixture.store.erase(["t1"])
            assert [await fixture.store.find_key(ALICE, key.key) for key in keys] == [None, None]
