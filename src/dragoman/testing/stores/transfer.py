"""Contract: what a store exports, another store imports as it is, and neither copies a claim."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from dragoman.core.events import ArtifactChunk
from dragoman.core.model import Artifact, Hook, State, Text
from dragoman.store.interface import Draft, Filter, Idempotency, Input, Record
from dragoman.store.link_keys import LinkKey
from dragoman.store.link_status import LinkState, LinkStatus
from dragoman.store.registry import RegistryEntry, Source
from dragoman.store.transfer.stored_task import CopyMark, TransferStore

from .base import StoreTests
from .fixture import AGENT, ALICE, BOB, LEASE, START, StoreFixture, said
from .sessions import session

HOLD = 60_000
KEY = Idempotency("k-1", b"digest-1")


def hook(task_id: str, hook_id: str, url: str) -> Hook:
    """Makes a webhook."""
    return Hook(
        task_id=task_id, hook_id=hook_id, url=url, scheme="Bearer", credentials="sealed.1.x"
    )


async def fill(fixture: StoreFixture) -> None:
    """Fills a store with tasks in every state, and with something of every other kind."""
    store = fixture.store
    brief = fixture.draft("t-brief", end=State.COMPLETED, key=KEY)
    await fixture.create(replace(brief, hook=hook("t-brief", "h-1", "http://one.example/")))
    long = await fixture.open_task("t-long")
    for n in range(3):
        chunk = ArtifactChunk(
            artifact=Artifact(artifact_id="result", parts=(Text(text=str(n)),)), append=n > 0
        )
        record = Record(key=f"step-{n}", value=b"done", seq=2 + n)
        await fixture.append(fixture.write(long.claim, chunk, records=(record,)))
    await store.set_hook(ALICE, hook("t-long", "h-2", "http://two.example/"))
    await store.set_hook(ALICE, hook("t-long", "h-3", "http://three.example/"))
    await fixture.end(long)
    waiting = await fixture.open_task("t-waiting", scope=ALICE)
    await fixture.ask(waiting, expires_at=START + 1_000_000)
    running = await fixture.open_task("t-running")
    answer = Input(message=said("more"), key=Idempotency("k-2", b"digest-2"))
    await store.add_input(ALICE, "t-running", answer, None)
    await fixture.append(
        fixture.write(running.claim, records=(Record(key="ask", value=b"1", seq=2),))
    )
    await fixture.open_task("t-queued", worker="", scope=BOB)
    await fixture.create(replace_row(fixture.draft("t-hidden"), hidden=True, priority=1))
    # One webhook has got everything, one has a dead letter, and one delivery is under way.
    for delivery in await store.claim_deliveries(AGENT, 10, HOLD):
        if delivery.hook.hook_id == "h-1":
            await store.mark_delivered(delivery.id, through=delivery.last)
        elif delivery.hook.hook_id == "h-2":
            await store.mark_dead(delivery.id, 500, "broken")
    await store.sessions.keep(session(b"s1"))
    await store.sessions.keep(session(b"s2", "host-2"))
    await store.sessions.revoke("host-2")
    await store.sessions.first(b"used", START + 1000)
    for name in ("one", "two"):
        address = (f"http://{name}.example/",)
        await store.registry.put(RegistryEntry(name=name, source=Source.CLI, addresses=address))
    await store.registry.remove("one", Source.CLI, "")
    await store.link_keys.add(LinkKey(access_key="ak", agent_ids=("ag",), sealed="sealed.1.x"))
    status = LinkStatus(side="agent", agent_id="ag", server="wss://x/", state=LinkState.OPEN)
    await store.link_status.put([status])


def replace_row(draft: Draft, **changes: object) -> Draft:
    """Changes the row of a draft."""
    return replace(draft, row=replace(draft.row, **changes))


async def copy_all(source: TransferStore, target: TransferStore) -> None:
    """Copies everything, two tasks at a time."""
    last = ""
    while page := await source.versions(last, 2):
        last = page[-1].task_id
        await target.import_tasks(await source.export_tasks([each.task_id for each in page]))
    await target.import_collections(await source.export_collections())


class TransferTests(StoreTests):
    """Tests of `Store.transfer`."""

    @asynccontextmanager
    async def _two(self, folder: Path) -> AsyncIterator[tuple[StoreFixture, StoreFixture]]:
        """A store that holds something of everything, and an empty one."""
        (folder / "a").mkdir()
        (folder / "b").mkdir()
        async with self.fixture(folder / "a") as a, self.fixture(folder / "b") as b:
            await fill(a)
            yield a, b

    async def test_a_copy_holds_everything_that_its_source_holds(self, tmp_path: Path) -> None:
        async with self._two(tmp_path) as (a, b):
            await copy_all(a.store.transfer, b.store.transfer)
            if self.durable:
                await b.reopen()
            source, target = a.store, b.store
            found = await source.transfer.versions("", 100)
            assert [each.task_id for each in found] == sorted(
                f"t-{name}" for name in ("brief", "hidden", "long", "queued", "running", "waiting")
            )
            assert await target.transfer.versions("", 100) == found
            assert await target.transfer.count() == await source.transfer.count()
            names = [each.task_id for each in found]
            exported = await source.transfer.export_tasks(names)
            assert await target.transfer.export_tasks(names) == exported
            assert await target.transfer.export_collections() == (
                await source.transfer.export_collections()
            )
            for each in exported:
                scope, name = each.row.scope, each.row.task_id
                assert (await target.load(scope, name))[1] == (await source.load(scope, name))[1]
                for after in (0, 1, 3):
                    theirs = (await source.read(scope, name, after, 100)).entries
                    assert (await target.read(scope, name, after, 100)).entries == theirs
            for scope in (ALICE, BOB):
                assert await target.find(scope, Filter(), 10) == (
                    await source.find(scope, Filter(), 10)
                )
                assert await target.count_unfinished(scope) == await source.count_unfinished(scope)
            assert await target.find_key(ALICE, "k-1") == ("t-brief", b"digest-1")
            assert await target.find_key(ALICE, "k-2") == ("t-running", b"digest-2")
            for dead in (True, False):
                theirs_out = await source.outbox(dead=dead, limit=10)
                assert await target.outbox(dead=dead, limit=10) == theirs_out
            assert not await target.sessions.first(b"used", START + 1000)

    async def test_a_claim_is_not_copied(self, tmp_path: Path) -> None:
        async with self._two(tmp_path) as (a, b):
            claim = (await a.store.row(ALICE, "t-running")).claim
            await copy_all(a.store.transfer, b.store.transfer)
            row = await b.store.row(ALICE, "t-running")
            assert (row.worker, row.token, row.runnable, row.epoch) == ("", "", True, claim.epoch)
            waiting = await b.store.row(ALICE, "t-waiting")
            assert (waiting.worker, waiting.runnable) == ("", False)
            taken = await b.store.claim("w1", AGENT, 10)
            assert {each.task_id for each in taken} == {"t-running", "t-queued", "t-hidden"}
            (again,) = [each for each in taken if each.task_id == "t-running"]
            assert again.epoch == claim.epoch + 1
            assert [each.key for each in await b.store.records(again.claim)] == ["ask"]
            (more,) = await b.store.inputs(again.claim)
            assert more.message == said("more")
            b.folds["t-running"] = a.folds["t-running"]
            await b.end(again, heard=1)
            assert [entry.seq for entry in await b.log("t-running")] == [1, 2, 3]
            # A delivery that is under way at the source is tried again at the copy, later.
            assert await b.store.claim_deliveries(AGENT, 10, HOLD) == []
            b.clock.tick(HOLD)
            (due,) = await b.store.claim_deliveries(AGENT, 10, HOLD)
            assert (due.hook.hook_id, due.seq) == ("h-3", 6)

    async def test_the_version_of_a_task_changes_with_everything_that_a_copy_would_miss(
        self, tmp_path: Path
    ) -> None:
        async with self.fixture(tmp_path) as fixture:
            store = fixture.store
            row = await fixture.open_task("t")
            seen = [await store.transfer.versions("", 10)]

            async def changed() -> None:
                now = await store.transfer.versions("", 10)
                assert now not in seen
                seen.append(now)

            await fixture.append(fixture.write(row.claim, records=(Record(key="a", value=b"1"),)))
            await changed()
            await fixture.ask(row)
            await changed()
            await fixture.add_input("t", question="q1")
            await changed()
            await store.set_hook(ALICE, hook("t", "h", "http://one.example/"))
            await changed()
            await store.set_hook(ALICE, hook("t", "h", "http://two.example/"))
            await changed()
            await store.ask_cancel(ALICE, "t")
            await changed()
            await store.release(row.claim, runnable=True)
            await changed()
            (again,) = await store.claim("w1", AGENT, 1)
            await changed()
            await fixture.end(again, heard=1)
            await changed()
            (delivery,) = await store.claim_deliveries(AGENT, 10, HOLD)
            await changed()
            await store.mark_delivered(delivery.id)
            await changed()
            fixture.clock.tick(1000)
            assert await store.sweep(AGENT, 1, 1_000_000, 10) == 1
            await changed()
            await store.erase(["t"])
            await changed()

    async def test_an_import_takes_the_place_of_what_was_imported_before(
        self, tmp_path: Path
    ) -> None:
        async with self._two(tmp_path) as (a, b):
            await copy_all(a.store.transfer, b.store.transfer)
            row = await a.store.row(ALICE, "t-running")
            await a.end(row, heard=1)
            fresh = await a.open_task("t-new", worker="")
            await a.store.sessions.revoke("host-1")
            a.clock.tick(10)
            await a.store.sweep(AGENT, 1, 1_000_000, 10)
            await copy_all(a.store.transfer, b.store.transfer)
            if self.durable:
                await b.reopen()
            assert await b.store.transfer.versions("", 100) == (
                await a.store.transfer.versions("", 100)
            )
            assert await b.store.transfer.count() == await a.store.transfer.count()
            assert await b.store.count_by_state(AGENT) == await a.store.count_by_state(AGENT)
            assert await b.store.sessions.list_valid(None, None) == []
            names = [each.task_id for each in await a.store.transfer.versions("", 100)]
            assert fresh.task_id in names
            exported = await a.store.transfer.export_tasks(names)
            assert await b.store.transfer.export_tasks([*names, "t-none"]) == exported

    async def test_new_webhooks_of_a_copy_get_new_numbers(self, tmp_path: Path) -> None:
        async with self._two(tmp_path) as (a, b):
            await copy_all(a.store.transfer, b.store.transfer)
            known = {each.id >> 32 for each in await b.store.outbox(dead=False, limit=10)}
            known |= {each.id >> 32 for each in await b.store.outbox(dead=True, limit=10)}
            await b.store.set_hook(ALICE, hook("t-long", "h-4", "http://four.example/"))
            found = await b.store.outbox(dead=False, limit=10)
            assert len({each.id >> 32 for each in found} - known) == 1

    async def test_a_copy_says_of_what_it_is_a_copy_and_whether_it_is_complete(
        self, tmp_path: Path
    ) -> None:
        async with self.fixture(tmp_path) as fixture:
            assert await fixture.store.transfer.read_mark() is None
            mark = CopyMark(source="sqlite:////a.db", begun_at=START)
            await fixture.store.transfer.write_mark(mark)
            assert await fixture.store.transfer.read_mark() == mark
            over = replace(mark, finished_at=START + 1)
            await fixture.store.transfer.write_mark(over)
            if self.durable:
                await fixture.reopen()
            assert await fixture.store.transfer.read_mark() == over

    async def test_live_workers_are_listed_and_dead_ones_are_not(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            store = fixture.store
            await store.enlist("w0", LEASE * 2)
            assert await store.list_workers() == ["w0", "w1"]
            fixture.clock.tick(LEASE + 1)
            assert await store.list_workers() == ["w0"]
            await store.retire("w0")
            assert await store.list_workers() == []
