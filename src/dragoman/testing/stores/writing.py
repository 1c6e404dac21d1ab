"""Contract: logs have no gaps, only the claim writes, a task ends once, and keys are honoured."""
# ruff: noqa: S101, S106 (this is a test suite, only it ships)

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.core.errors import Conflict, Fenced, StoreError
from dragoman.core.events import ArtifactChunk, Opened, Stamped, StateChanged
from dragoman.core.lifecycle import Fold
from dragoman.core.model import Artifact, Blob, Data, Link, Message, Role, State, Text
from dragoman.store.interface import Claim, Draft, Existing, Idempotency, Unheard, Write

from .base import StoreTests
from .fixture import ALICE, ALICE_ELSEWHERE, BOB, said

WORKING = StateChanged(state=State.WORKING)
COMPLETED = StateChanged(state=State.COMPLETED)


class WritingTests(StoreTests):
    """Tests of `create` and `append`."""

    async def test_a_log_is_read_as_it_was_written(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            wrote = [*fixture.draft("t1").entries]
            for text in ("one", "two"):
                write = fixture.write(
                    row.claim, StateChanged(state=State.WORKING, message=said(text))
                )
                wrote += write.entries
                await fixture.append(write)
            assert await fixture.log("t1") == wrote
            assert [entry.seq for entry in wrote] == [1, 2, 3, 4]
            assert (await fixture.store.row(ALICE, "t1")).last_seq == 4

    async def test_a_page_begins_behind_the_cursor(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            for size in (1, 3, 2, 5):
                await fixture.append(fixture.write(row.claim, *[WORKING] * size))
            whole = await fixture.log("t1")
            assert [entry.seq for entry in whole] == list(range(1, 14))
            for after in range(15):
                for limit in (1, 2, 4, 100):
                    page = await fixture.store.read(ALICE, "t1", after, limit)
                    assert page.entries == whole[after : after + limit]
                    assert page.row.last_seq == 13

    async def test_a_long_log_is_whole_in_pages(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            done: list[Exception | None] = []
            for _ in range(200):
                fixture.store.append(fixture.write(row.claim, *[WORKING] * 3), done.append)
            await fixture.end(row)
            assert done == [None] * 200
            read: list[Stamped] = []
            while page := (await fixture.store.read(ALICE, "t1", len(read), 64)).entries:
                read += page
            assert [entry.seq for entry in read] == list(range(1, 604))
            assert read[-1].event == COMPLETED

    async def test_anything_json_can_say_comes_back(self, tmp_path: Path) -> None:
        message = Message(
            message_id="m1",
            role=Role.USER,
            parts=(
                Text(text="żółw 🐢 \u2028 \x00", metadata={"deep": [{"a": [None, True, 1.5]}]}),
                Blob(content=bytes(range(256)), filename="f.bin", media_type="x/y"),
                Link(url="https://example.com/?q=1"),
                Data(value=None),
                Data(value={"big": 10**30, "small": -(2**63) - 1, "list": [1, "2", {}]}),
            ),
            metadata={"n": 2**64},
            extensions=("urn:x",),
            references=("t0",),
        )
        chunk = ArtifactChunk(artifact=Artifact(artifact_id="r", parts=message.parts), last=True)
        async with self.fixture(tmp_path) as fixture:
            opened = Opened(message=message, context=({"huge": 10**40},), trace="00-1-2-00")
            draft = fixture.draft("t1")
            draft = replace(
                draft, entries=(replace(draft.entries[0], event=opened), *draft.entries[1:])
            )
            row = await fixture.create(draft)
            at = fixture.clock.now
            entries = (
                Stamped("t1", "c-t1", 3, at, chunk),
                Stamped("t1", "c-t1", 4, at, COMPLETED),
            )
            fold = Fold("t1", "c-t1")
            for entry in (*draft.entries, *entries):
                fold.add(entry)
            write = Write(
                claim=row.claim,
                base=2,
                entries=entries,
                state=State.COMPLETED,
                status_at=at,
                heard=0,
                ended=fold.task(),
            )
            await fixture.append(write)
            assert await fixture.log("t1") == [*draft.entries, *entries]
            assert (await fixture.store.load(ALICE, "t1"))[1] == fold.task()

    async def test_what_cannot_be_written_down_is_refused(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            bad = StateChanged(state=State.WORKING, metadata={"x": object()})
            write = fixture.write(row.claim, bad)
            with pytest.raises(StoreError):
                await fixture.append(write)
            good = replace(write, entries=(replace(write.entries[0], event=WORKING),))
            await fixture.append(good)
            assert [entry.seq for entry in await fixture.log("t1")] == [1, 2, 3]

    async def test_an_append_must_continue_the_log(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            write = fixture.write(row.claim, WORKING)
            for base in (0, 1, 3, 100):
                with pytest.raises(Fenced):
                    await fixture.append(replace(write, base=base))
            with pytest.raises(StoreError):
                await fixture.append(replace(write, entries=(replace(write.entries[0], seq=7),)))
            assert len(await fixture.log("t1")) == 2
            await fixture.append(write)
            with pytest.raises(Fenced):
                await fixture.append(write)
            assert len(await fixture.log("t1")) == 3

    async def test_a_new_log_begins_at_one(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            draft = fixture.draft("t1")
            for wrong in (
                replace(draft, entries=()),
                replace(draft, entries=draft.entries[1:]),
                replace(draft, row=replace(draft.row, last_seq=3)),
            ):
                with pytest.raises(StoreError):
                    await fixture.create(wrong)
            await fixture.create(draft)

    async def test_only_the_claim_in_force_may_write(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            unheld = await fixture.open_task("t2", worker="")
            for claim in (
                replace(row.claim, token="guessed"),
                replace(row.claim, epoch=0),
                replace(row.claim, epoch=2),
                Claim("t1", "w1", "", 1),
                Claim("nowhere", "w1", row.token, 1),
                unheld.claim,
            ):
                fixture.folds.setdefault(claim.task_id, Fold(claim.task_id, "c"))
                with pytest.raises(Fenced):
                    await fixture.append(replace(fixture.write(row.claim), claim=claim))
            assert len(await fixture.log("t1")) == len(await fixture.log("t2")) == 2

    async def test_a_task_ends_once(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            end = fixture.write(row.claim, COMPLETED)
            outcomes: list[Exception | None] = []
            # Both are handed over in one turn. The second continues what the first may not write.
            fixture.store.append(end, outcomes.append)
            fixture.store.append(end, outcomes.append)
            fixture.store.append(replace(end, base=3), outcomes.append)
            with pytest.raises(Fenced):
                await fixture.append(end)
            assert [type(outcome) for outcome in outcomes] == [type(None), Fenced, Fenced]
            ended = await fixture.store.row(ALICE, "t1")
            assert (ended.state, ended.last_seq) == (State.COMPLETED, 3)
            assert (ended.worker, ended.token, ended.runnable) == ("", "", False)
            with pytest.raises(Fenced):
                await fixture.append(replace(end, claim=ended.claim, base=3))
            assert len(await fixture.log("t1")) == 3

    async def test_an_end_waits_for_what_was_said(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            await fixture.add_input("t1", "wait")
            end = fixture.write(row.claim, COMPLETED)
            with pytest.raises(Unheard):
                await fixture.append(end)
            assert (await fixture.store.row(ALICE, "t1")).state is State.WORKING
            await fixture.append(replace(end, heard=1))
            assert (await fixture.store.row(ALICE, "t1")).final

    async def test_a_task_may_be_born_finished(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            draft = fixture.draft("t1", end=State.REJECTED)
            row = await fixture.create(draft)
            assert (row.state, row.worker, row.token) == (State.REJECTED, "", "")
            assert (await fixture.store.load(ALICE, "t1"))[1] == draft.ended
            assert await fixture.log("t1") == list(draft.entries)

    async def test_the_row_says_what_was_written(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            draft = fixture.draft("t1")
            assert await fixture.create(draft) == draft.row
            fixture.clock.tick(5)
            await fixture.ask(draft.row, "q9", expires_at=fixture.clock.now + 77)
            row = await fixture.store.row(ALICE, "t1")
            assert row == replace(
                draft.row,
                state=State.INPUT_REQUIRED,
                last_seq=3,
                status_at=fixture.clock.now,
                question="q9",
                asking=row.asking,
                expires_at=fixture.clock.now + 77,
            )
            assert row.asking == "input"
            await fixture.append(fixture.write(row.claim, WORKING))
            row = await fixture.store.row(ALICE, "t1")
            assert (row.question, row.asking, row.expires_at) == ("", None, 0)

    # Callbacks.

    async def test_done_is_called_once_in_order_in_the_loop(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            calls: list[tuple[int, Exception | None, int]] = []
            draft = fixture.draft("t1")

            def call(number: int) -> None:
                def done(error: Exception | None) -> None:
                    asyncio.get_running_loop()
                    calls.append((number, error, threading.get_ident()))

                if number == 0:
                    fixture.store.create(draft, done)
                else:
                    fixture.store.append(fixture.write(draft.row.claim, WORKING), done)

            for number in range(50):
                call(number)
                if number % 7 == 0:
                    await asyncio.sleep(0)
            await fixture.append(fixture.write(draft.row.claim, WORKING))
            here = threading.get_ident()
            assert calls == [(number, None, here) for number in range(50)]

    async def test_a_refused_change_disturbs_no_other(self, tmp_path: Path) -> None:
        key = Idempotency("k", b"1")
        async with self.fixture(tmp_path) as fixture:
            taken = await fixture.create(fixture.draft("taken", key=key))
            outcomes: dict[str, Exception | None] = {}
            complete = asyncio.Event()

            def report(name: str, error: Exception | None) -> None:
                outcomes[name] = error
                if len(outcomes) == 5:
                    complete.set()

            def note(name: str) -> None:
                drafts = {
                    "first": fixture.draft("first"),
                    "again": fixture.draft("again", key=key),
                    "same id": fixture.draft("taken"),
                    "last": fixture.draft("last"),
                }
                if name in drafts:
                    fixture.store.create(drafts[name], lambda e: report(name, e))

            def fenced() -> Write:
                fixture.folds["taken"] = Fold("taken", "c-taken")
                return replace(fixture.write(taken.claim), claim=replace(taken.claim, token="x"))

            note("first")
            note("again")
            fixture.store.append(fenced(), lambda e: report("fenced", e))
            note("same id")
            note("last")
            await fixture.open_task("after")
            # Changes of different tasks may overtake each other.
            async with asyncio.timeout(60):
                await complete.wait()
            kinds = {name: type(outcome) for name, outcome in outcomes.items()}
            assert kinds == {
                "first": type(None),
                "again": Existing,
                "fenced": Fenced,
                "same id": Conflict,
                "last": type(None),
            }
            for task_id in ("taken", "first", "last", "after"):
                assert len(await fixture.log(task_id)) == 2

    async def test_an_id_is_taken_once(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            outcomes: list[Exception | None] = []
            first = fixture.draft("t1")
            fixture.store.create(first, outcomes.append)
            fixture.store.create(fixture.draft("t1", scope=BOB), outcomes.append)
            with pytest.raises(Conflict):
                await fixture.create(fixture.draft("t1", scope=BOB, end=State.FAILED))
            assert [type(outcome) for outcome in outcomes] == [type(None), Conflict]
            assert await fixture.store.row(ALICE, "t1") == first.row
            assert await fixture.log("t1") == list(first.entries)
            row = await fixture.store.row(ALICE, "t1")
            await fixture.end(row)
            with pytest.raises(Conflict):
                await fixture.create(fixture.draft("t1"))

    async def test_a_callback_that_raises_disturbs_no_other(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            loop = asyncio.get_running_loop()
            reported: list[str] = []
            loop.set_exception_handler(lambda _, report: reported.append(str(report["exception"])))

            def broken(error: Exception | None) -> None:
                raise RuntimeError("broken callback")

            # A store may call back before it returns, and then the mistake is the caller's.
            def create(draft: Draft) -> None:
                try:
                    fixture.store.create(draft, broken)
                except RuntimeError as error:
                    reported.append(str(error))

            create(fixture.draft("t1"))
            await fixture.open_task("t2")
            await fixture.open_task("t3")
            loop.set_exception_handler(None)
            assert reported == ["broken callback"]
            assert len(await fixture.log("t1")) == 2

    # Idempotency.

    async def test_the_same_key_and_content_is_the_same_task(self, tmp_path: Path) -> None:
        key = Idempotency("k", b"digest")
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.create(fixture.draft("t1", key=key))
            for other, same in ((key, True), (Idempotency("k", b"other"), False)):
                with pytest.raises(Existing) as caught:
                    await fixture.create(fixture.draft("t2", key=other))
                assert (caught.value.task_id, caught.value.same) == ("t1", same)
            # A key lives as long as its task.
            fixture.folds["t1"] = Fold("t1", "c-t1")
            fixture.stamp("t1", WORKING, WORKING)
            await fixture.end(row)
            with pytest.raises(Existing):
                await fixture.create(fixture.draft("t3", key=key))

    async def test_a_key_belongs_to_one_caller(self, tmp_path: Path) -> None:
        key = Idempotency("k", b"digest")
        async with self.fixture(tmp_path) as fixture:
            for n, scope in enumerate((ALICE, BOB, ALICE_ELSEWHERE)):
                await fixture.create(fixture.draft(f"t{n}", scope=scope, key=key))
            await fixture.create(fixture.draft("t9", key=Idempotency("another", b"digest")))
            await fixture.create(fixture.draft("t10"))

    async def test_of_two_at_once_one_creates(self, tmp_path: Path) -> None:
        key = Idempotency("k", b"digest")
        async with self.fixture(tmp_path) as fixture:
            outcomes: list[Exception | None] = []
            for n in range(5):
                fixture.store.create(fixture.draft(f"t{n}", key=key), outcomes.append)
            await fixture.open_task("last")
            assert outcomes[0] is None
            for outcome in outcomes[1:]:
                assert isinstance(outcome, Existing)
                assert (outcome.task_id, outcome.same) == ("t0", True)
