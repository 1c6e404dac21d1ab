"""Contract: what a run receives and records, and what the store must forget."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.core.errors import Fenced
from dragoman.core.events import StateChanged
from dragoman.core.model import State
from dragoman.store.interface import Input, Record

from .base import StoreTests
from .fixture import ALICE, said

WORKING = StateChanged(state=State.WORKING)


class RunTests(StoreTests):
    """Tests of `inputs` and `records`."""

    async def test_inputs_come_in_order(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            await fixture.open_task("t2")
            assert await fixture.store.inputs(row.claim) == []
            for n in range(12):
                await fixture.add_input("t1", str(n))
            await fixture.add_input("t2", "not for t1")
            heard = await fixture.store.inputs(row.claim)
            assert heard == [Input(message=said(str(n)), n=n + 1) for n in range(12)]

    async def test_records_come_in_order(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            assert await fixture.store.records(row.claim) == []
            wrote: list[Record] = []
            # Keys that do not sort by their order, several in one write, some without an event.
            for n in range(12):
                records = tuple(
                    Record(key=f"k{(n * 7 + m) % 100:02}#{m}", value=bytes([n, m]), seq=n)
                    for m in range(1 + n % 3)
                )
                events = [WORKING] * (n % 2)
                await fixture.append(fixture.write(row.claim, *events, records=records))
                wrote += records
            assert await fixture.store.records(row.claim) == wrote

    async def test_a_task_may_begin_with_records(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            record = Record(key="k", value=b"first", seq=1)
            row = await fixture.create(replace(fixture.draft("t1"), records=(record,)))
            assert await fixture.store.records(row.claim) == [record]
            assert await fixture.store.records_of(row.scope, "t1") == [record]

    async def test_what_is_recorded_stays(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            for value in (b"first", b"second"):
                record = Record(key="k", value=value)
                await fixture.append(fixture.write(row.claim, records=(record,)))
            assert await fixture.store.records(row.claim) == [Record(key="k", value=b"first")]

    async def test_a_refused_write_records_nothing(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            write = fixture.write(row.claim, records=(Record(key="k", value=b""),))
            with pytest.raises(Fenced):
                await fixture.append(replace(write, base=7))
            assert await fixture.store.records(row.claim) == []

    async def test_the_next_run_finds_it_all(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            await fixture.add_input("t1", "hear me")
            record = Record(key="step", value=b"\x00\xff", seq=2)
            await fixture.append(fixture.write(row.claim, records=(record,)))
            taken = await fixture.store.seize("w1", "t1", row.epoch)
            assert taken is not None
            assert await fixture.store.records(taken.claim) == [record]
            assert [kept.n for kept in await fixture.store.inputs(taken.claim)] == [1]

    async def test_what_must_be_forgotten_is(self, tmp_path: Path) -> None:
        words = "correct horse battery staple"
        async with self.fixture(tmp_path) as fixture:
            row = await fixture.open_task("t1")
            await fixture.add_input("t1", "public")
            await fixture.ask(row, "q1", heard=1)
            answer = Input(message=said(words), value={"token": words})
            await fixture.store.add_input(ALICE, "t1", answer, "q1")
            await fixture.add_input("t1", "public too")
            await fixture.append(fixture.write(row.claim, WORKING, heard=2, forget=(2,)))
            first, wiped, third = await fixture.store.inputs(row.claim)
            assert (wiped.n, wiped.question, wiped.value) == (2, "q1", None)
            assert (wiped.message.parts, wiped.message.metadata) == ((), None)
            assert (first.message.text, third.message.text) == ("public", "public too")
            assert len(await fixture.log("t1")) == 4
            if self.durable:
                await fixture.reopen()
                await fixture.store.enlist("w1", 1000)
                taken = await fixture.store.seize("w1", "t1", row.epoch)
                assert taken is not None
                assert await fixture.store.inputs(taken.claim) == [first, wiped, third]
