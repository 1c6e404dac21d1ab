"""What only the store on PostgreSQL has: layouts, lost connections, poolers and other clocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from dragoman.core.errors import (
    ConfigError,
    Conflict,
    Fenced,
    StoreError,
    StoreUnavailable,
    TaskNotFound,
)
from dragoman.core.events import StateChanged
from dragoman.core.model import Hook, State
from dragoman.store import open_store
from dragoman.store.bulkheads import Bulkheads
from dragoman.store.clock import wall_clock
from dragoman.store.interface import Idempotency, Input, Record
from dragoman.store.postgres import commit_queue
from dragoman.store.postgres.address import parse_address
from dragoman.store.postgres.migrations import migrate, scripts
from dragoman.store.postgres.pool import DatabasePool
from dragoman.store.postgres.store import PostgresStore
from dragoman.testing.stores import HandClock, StoreFixture
from dragoman.testing.stores.fixture import AGENT, ALICE, LEASE, said
from postgres import Server as Postgres
from postgres import server_url, store_url
from store.statements import listen
from waiting import until

pytestmark = pytest.mark.slow  # starts PostgreSQL

WORKING = StateChanged(state=State.WORKING)
SOCKET = ".s.PGSQL.5432"


class Cutter:
    """Stands between a store and PostgreSQL. It passes a statement with certain arguments on, and
    ends the connection before the answer comes back."""

    def __init__(self, folder: Path, server: str = "") -> None:
        """`server` is the address of PostgreSQL, unless it is the one for all tests."""
        self._folder = folder
        self._server = Path((server or server_url()).partition("host=")[2]) / SOCKET
        self.cuts: list[bytes] = []
        """Parts of the arguments of statements whose answers are to be lost, each once."""
        self.lost = 0
        self.early = False
        """Whether the connection ends as soon as the statement was sent."""
        self.crash: Callable[[], Awaitable[None]] | None = None
        """What happens instead of the statement."""

    def url(self, folder: Path) -> str:
        """The address of the store that belongs to a folder, through this."""
        server = str(self._server.parent)
        return store_url(folder).replace(f"host={server}", f"host={self._folder}")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_unix_connection(str(self._server))
        cut = False

        async def forward() -> None:
            nonlocal cut
            while data := await reader.read(65536):
                for part in self.cuts:
                    if part in data:
                        self.cuts.remove(part)
                        cut = True
                        break
                if cut and self.crash is not None:
                    await self.crash()
                    return
                requests.write(data)
                if cut and self.early:
                    return

        async def back() -> None:
            while data := await answers.read(65536):
                if cut:
                    self.lost += 1
                    return
                writer.write(data)

        tasks = [asyncio.create_task(forward()), asyncio.create_task(back())]
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if cut and self.crash is not None:
                await tasks[0]
        for task in tasks:
            task.cancel()
        for stream in (writer, requests):
            stream.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Cutter]:
        server = await asyncio.start_unix_server(self._serve, str(self._folder / SOCKET))
        yield self
        server.close()


def _fixture(url: str, folder: Path) -> StoreFixture:
    async def make(_: Path, clock: HandClock) -> Any:
        return open_store(url, clock=clock)

    return StoreFixture(make, folder)


async def _blocked(count: int, *, end: bool = False) -> None:
    """Waits until so many connections wait for a lock, and ends them if that is asked for."""
    watcher = await asyncpg.connect(server_url())
    query = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

    async def blocked() -> list[Any]:
        found = await watcher.fetch(query)
        return found if len(found) >= count else []

    for (pid,) in await until(blocked):
        if end:
            await watcher.execute("SELECT pg_terminate_backend($1)", pid)
    await watcher.close()


# Commits of unknown fate.


@pytest.fixture
async def cutter(tmp_path: Path) -> AsyncIterator[Cutter]:
    async with Cutter(tmp_path).running() as made:
        yield made


async def test_a_commit_whose_answer_is_lost_is_found_and_not_repeated(
    cutter: Cutter, tmp_path: Path
) -> None:
    async with _fixture(cutter.url(tmp_path), tmp_path) as fixture:
        # A second create would be refused as a conflict, a second append as fenced.
        cutter.cuts.append(b"working")
        row = await fixture.open_task("t1")
        cutter.cuts.append(b"working")
        await fixture.append(fixture.write(row.claim, WORKING, WORKING))
        cutter.cuts.append(b"completed")
        await fixture.end(row)
        assert cutter.lost == 3
        assert [entry.seq for entry in await fixture.log("t1")] == [1, 2, 3, 4, 5]
        assert (await fixture.store.row(ALICE, "t1")).state is State.COMPLETED


async def test_what_was_not_committed_is_repeated(tmp_path: Path) -> None:
    url = store_url(tmp_path)
    async with _fixture(url, tmp_path) as fixture:
        row = await fixture.open_task("t1")
        # The statement waits for a lock when its connection is lost, and ends without a commit.
        holder = await asyncpg.connect(parse_address(url).dsn)
        schema = parse_address(url).schema
        await holder.execute("BEGIN")
        await holder.execute(f"SELECT 1 FROM {schema}.task WHERE task_id = 't1' FOR UPDATE")
        work = asyncio.create_task(fixture.append(fixture.write(row.claim, WORKING)))
        await _blocked(1, end=True)
        await holder.execute("COMMIT")
        await holder.close()
        await work
        assert [entry.seq for entry in await fixture.log("t1")] == [1, 2, 3]


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_task_whose_lost_statement_still_runs_is_opened_once(
    tmp_path: Path, cutter: Cutter, keyed: bool
) -> None:
    """The second statement waits with the first, and then finds what the first has stored."""
    url = cutter.url(tmp_path)
    async with _fixture(url, tmp_path) as fixture:
        first, key = (Idempotency(name, b"d") if keyed else None for name in ("first", "second"))
        draft = fixture.draft("task-of-it", key=key)
        # So that the statement is prepared: the lock would stop that, too.
        await fixture.create(fixture.draft("t1", key=first))
        async with _held(store_url(tmp_path), "LOCK TABLE {schema}.task IN SHARE MODE"):
            cutter.cuts.append(b"task-of-it")
            cutter.early = True
            creating = asyncio.create_task(fixture.create(draft))
            await _blocked(2)
        await creating
        row = await fixture.store.row(ALICE, "task-of-it")
        await fixture.append(fixture.write(row.claim, WORKING))


async def test_an_append_whose_lost_statement_still_runs_is_stored_once(
    tmp_path: Path, cutter: Cutter
) -> None:
    url = cutter.url(tmp_path)
    async with _fixture(url, tmp_path) as fixture:
        row = await fixture.open_task("t1")
        async with _held(store_url(tmp_path), "SELECT 1 FROM {schema}.task FOR UPDATE"):
            cutter.cuts.append(row.token.encode())
            cutter.early = True
            appending = asyncio.create_task(fixture.append(fixture.write(row.claim, WORKING)))
            await _blocked(2)
        await appending
        await fixture.append(fixture.write(row.claim, WORKING))
        assert (await fixture.store.row(ALICE, "t1")).last_seq == 4


@asynccontextmanager
async def _held(url: str, lock: str) -> AsyncIterator[None]:
    """Holds a lock meanwhile."""
    address = parse_address(url)
    holder = await asyncpg.connect(address.dsn)
    await holder.execute("BEGIN")
    await holder.execute(lock.format(schema=address.schema))
    yield
    await holder.execute("COMMIT")
    await holder.close()


async def test_a_transaction_whose_commit_is_lost_is_looked_up(
    cutter: Cutter, tmp_path: Path
) -> None:
    async with _fixture(cutter.url(tmp_path), tmp_path) as fixture:
        row = await fixture.open_task("t1")
        await fixture.ask(row)
        cutter.cuts.append(b"COMMIT")
        told = await fixture.add_input("t1", "Kyoto", "q1")
        assert (cutter.lost, told.inputs) == (1, 1)
        assert len(await fixture.store.inputs(row.claim)) == 1
        cutter.cuts.append(b"COMMIT")
        await fixture.open_task("t2", worker="")
        (claimed,) = await fixture.store.claim("w1", AGENT, 9)
        assert (claimed.task_id, claimed.attempt) == ("t2", 1)


async def test_a_transaction_that_a_crash_has_lost_is_not_taken_for_another(tmp_path: Path) -> None:
    """After a crash, PostgreSQL may give the id of a lost transaction to the next one."""
    server = Postgres("wal_writer_delay = 10s")
    cutter = Cutter(tmp_path, server.url)

    async def crash() -> None:
        server.stop()
        server.start()
        other = await asyncpg.connect(server.url)
        for _ in range(50):
            await other.execute("SELECT pg_current_xact_id()")
        await other.close()

    try:
        url = f"postgresql://postgres@/postgres?host={tmp_path}"
        async with cutter.running(), _fixture(url, tmp_path) as fixture:
            row = await fixture.open_task("t1")
            await fixture.ask(row)
            cutter.crash = crash
            cutter.cuts.append(b"COMMIT")
            assert isinstance(fixture.store, PostgresStore)
            fixture.store._pool.patience = 600.0  # the server has all the time to start again
            told = await fixture.add_input("t1", "Kyoto", "q1")
            assert (cutter.cuts, told.inputs) == ([], 1)
            assert len(await fixture.store.inputs(row.claim)) == 1
    finally:
        server.remove()


async def test_a_lost_group_that_begins_with_a_record_is_found(
    cutter: Cutter, tmp_path: Path
) -> None:
    async with _fixture(cutter.url(tmp_path), tmp_path) as fixture:
        row = await fixture.open_task("t1")
        cutter.cuts.append(b"step:1")
        record = Record(key="step:1", value=b"1")
        await asyncio.gather(
            fixture.append(fixture.write(row.claim, records=(record,))),
            fixture.append(fixture.write(row.claim, WORKING)),
        )
        assert cutter.lost == 1
        assert [entry.seq for entry in await fixture.log("t1")] == [1, 2, 3]
        assert await fixture.store.records(row.claim) == [record]


async def test_marks_of_old_connections_are_dropped(tmp_path: Path) -> None:
    url = store_url(tmp_path)
    async with _fixture(url, tmp_path) as fixture:
        marks = f"{parse_address(url).schema}.commit_mark"
        db = await asyncpg.connect(parse_address(url).dsn)
        for age in (2, 0):
            await db.execute(
                f"INSERT INTO {marks} VALUES ('old {age}', 1, now() - interval '{age} hours')"
            )
        await fixture.store.reap()
        found = await db.fetch(f"SELECT connection FROM {marks} WHERE connection LIKE 'old%'")
        assert [name for (name,) in found] == ["old 0"]
        await db.close()


async def test_a_fenced_writer_whose_answer_was_lost_stays_fenced(
    cutter: Cutter, tmp_path: Path
) -> None:
    async with _fixture(cutter.url(tmp_path), tmp_path) as fixture:
        row = await fixture.open_task("t1")
        await fixture.store.enlist("w2", LEASE)
        assert await fixture.store.seize("w2", "t1", row.epoch) is not None
        cutter.cuts.append(b"working")
        with pytest.raises(Fenced):
            await fixture.append(fixture.write(row.claim, WORKING))
        assert len(await fixture.log("t1")) == 2


# Group commit.


async def test_what_is_ready_together_is_one_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[int] = []
    own = commit_queue.CommitQueue._store

    async def store(self: Any, groups: Any) -> None:
        statements.append(len(groups))
        await own(self, groups)

    monkeypatch.setattr(commit_queue.CommitQueue, "_store", store)
    async with _fixture(store_url(tmp_path), tmp_path) as fixture:
        outcomes: list[Exception | None] = []
        rows = [fixture.draft(f"t{n}") for n in range(50)]
        for draft in rows:
            fixture.store.create(draft, outcomes.append)
        await until(lambda: len(outcomes) == 50)
        for draft in rows:
            for _ in range(3):
                write = fixture.write(draft.row.claim, WORKING)
                fixture.store.append(write, outcomes.append)
        await until(lambda: len(outcomes) == 200)
        assert outcomes == [None] * 200
        assert statements == [50, 50]


async def test_a_webhook_that_is_set_while_an_append_waits_hears_of_it(tmp_path: Path) -> None:
    """The statement of the append began before there was a webhook, so it cannot see it."""
    url = store_url(tmp_path)
    schema = parse_address(url).schema
    async with _fixture(url, tmp_path) as fixture:
        row = await fixture.open_task("t1")
        holder = await asyncpg.connect(parse_address(url).dsn)
        await holder.execute("BEGIN")
        await holder.execute(f"SELECT 1 FROM {schema}.task WHERE task_id = 't1' FOR UPDATE")
        hook = Hook(hook_id="h", task_id="t1", url="https://example.com/hook")
        setting = asyncio.create_task(fixture.store.set_hook(ALICE, hook))
        await _blocked(1)
        appending = asyncio.create_task(fixture.append(fixture.write(row.claim, WORKING)))
        await _blocked(2)
        await holder.execute("COMMIT")
        await holder.close()
        await setting
        await appending
        (delivery,) = await fixture.store.claim_deliveries(AGENT, 9, 1000)
        assert delivery.seq == 3


async def test_a_delivery_that_ends_while_an_append_waits_is_followed_by_the_next(
    tmp_path: Path,
) -> None:
    """The statement of the append began before nothing was due any more."""
    url = store_url(tmp_path)
    schema = parse_address(url).schema
    async with _fixture(url, tmp_path) as fixture:
        row = await fixture.open_task("t1")
        hook = Hook(hook_id="h", task_id="t1", url="https://example.com/hook")
        await fixture.store.set_hook(ALICE, hook)
        await fixture.append(fixture.write(row.claim, WORKING))
        (delivery,) = await fixture.store.claim_deliveries(AGENT, 9, 1000)
        holder = await asyncpg.connect(parse_address(url).dsn)
        await holder.execute("BEGIN")
        await holder.execute(f"SELECT 1 FROM {schema}.task WHERE task_id = 't1' FOR UPDATE")
        ending = asyncio.create_task(fixture.store.mark_delivered(delivery.id))
        await _blocked(1)
        appending = asyncio.create_task(fixture.append(fixture.write(row.claim, WORKING)))
        await _blocked(2)
        await holder.execute("COMMIT")
        await holder.close()
        await ending
        await appending
        (following,) = await fixture.store.claim_deliveries(AGENT, 9, 1000)
        assert following.seq == delivery.seq + 1


async def test_a_full_disk_is_said_and_nothing_is_half_done(tmp_path: Path) -> None:
    """A trigger says what PostgreSQL says when its disk is full."""
    url = store_url(tmp_path)
    schema = parse_address(url).schema
    async with _fixture(url, tmp_path) as fixture:
        row = await fixture.open_task("t1")
        db = await asyncpg.connect(parse_address(url).dsn)
        await db.execute(f"""
            CREATE FUNCTION {schema}.full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$""")
        for table in ("task", "piece", "input"):
            await db.execute(
                f"CREATE TRIGGER full_disk BEFORE INSERT ON {schema}.{table} "
                f"FOR EACH ROW EXECUTE FUNCTION {schema}.full_disk()"
            )
        store, write = fixture.store, fixture.write(row.claim, WORKING)
        for refused in (
            fixture.append(write),
            fixture.create(fixture.draft("t2")),
            store.add_input(ALICE, "t1", Input(message=said("hi")), None),
        ):
            with pytest.raises(StoreUnavailable):
                await refused
        assert await store.row(ALICE, "t1") == row
        for table in ("task", "piece", "input"):
            await db.execute(f"DROP TRIGGER full_disk ON {schema}.{table}")
        await db.close()
        await fixture.append(write)
        await store.add_input(ALICE, "t1", Input(message=said("hi")), None)


async def test_a_claim_that_a_fail_over_has_lost_is_never_given_again(tmp_path: Path) -> None:
    """The standby did not have the last commits. The next claim has the same epoch as the lost
    one, but not its token."""
    url = store_url(tmp_path)
    schema = parse_address(url).schema
    async with _fixture(url, tmp_path) as fixture:
        store = fixture.store
        first = await fixture.open_task("t1")
        await store.enlist("w2", LEASE)
        db = await asyncpg.connect(parse_address(url).dsn)
        await db.execute(f"CREATE TABLE {schema}.standby AS SELECT * FROM {schema}.task")
        lost = await store.seize("w1", "t1", first.epoch)
        assert lost is not None
        await db.execute(f"DELETE FROM {schema}.task")
        await db.execute(f"INSERT INTO {schema}.task SELECT * FROM {schema}.standby")
        await db.close()
        taken = await store.seize("w2", "t1", first.epoch)
        assert taken is not None
        assert taken.epoch == lost.epoch
        write = fixture.write(lost.claim, WORKING)
        with pytest.raises(Fenced):
            await fixture.append(write)
        await fixture.append(replace(write, claim=taken.claim))


# Texts, poolers and clocks.


async def test_a_name_with_a_nul_is_refused_and_disturbs_no_other(tmp_path: Path) -> None:
    async with _fixture(store_url(tmp_path), tmp_path) as fixture:
        outcomes: dict[str, Exception | None] = {}
        for name in ("good", "bad\0", "fine"):
            fixture.store.create(
                fixture.draft(name), lambda error, name=name: outcomes.__setitem__(name, error)
            )
        await until(lambda: len(outcomes) == 3)
        assert isinstance(outcomes.pop("bad\0"), StoreError)
        assert outcomes == {"good": None, "fine": None}
        with pytest.raises(TaskNotFound):
            await fixture.store.row(ALICE, "bad\0")


async def test_it_works_without_prepared_statements(tmp_path: Path) -> None:
    async with _fixture(f"{store_url(tmp_path)}&statement_cache=off", tmp_path) as fixture:
        row = await fixture.open_task("t1")
        await fixture.append(fixture.write(row.claim, WORKING))
        await fixture.add_input("t1")
        await fixture.end(row, heard=1)
        assert len(await fixture.log("t1")) == 4
        with pytest.raises(Conflict):
            await fixture.create(fixture.draft("t1"))


async def test_a_lease_is_measured_by_the_clock_of_the_database(tmp_path: Path) -> None:
    """Two processes whose clocks differ by a minute: none takes the tasks of the other."""
    from dragoman.store.clock import SystemClock

    class Ahead(SystemClock):
        def __call__(self) -> int:
            return super().__call__() + 60_000

    url = store_url(tmp_path)
    one, two = PostgresStore(url, SystemClock()), PostgresStore(url, Ahead())
    for store in (one, two):
        await store.open()
    try:
        await one.enlist("w1", LEASE)
        await two.enlist("w2", LEASE)
        fixture = _fixture(url, tmp_path)
        fixture.clock.now = Ahead()()
        draft = fixture.draft("t1", worker="w1")
        done: list[Exception | None] = []
        one.create(draft, done.append)
        # What the process that is ahead makes runnable now is due now for the other one too.
        two.create(fixture.draft("t2", worker=""), done.append)
        await until(lambda: done == [None, None])
        assert await two.reap() == []
        assert await one.reap() == []
        assert await one.beat("w1", LEASE)
        assert [row.task_id for row in await one.claim("w1", AGENT, 9)] == ["t2"]
    finally:
        await one.close()
        await two.close()


async def test_the_news_of_a_watched_task_are_told_and_those_of_others_are_not(
    tmp_path: Path,
) -> None:
    async with _fixture(store_url(tmp_path), tmp_path) as fixture:
        store = fixture.store
        assert isinstance(store, PostgresStore)
        told: list[str] = []
        store.on_news = told.extend
        watched, other = await fixture.open_task("watched"), await fixture.open_task("other")
        assert await store.watch(["watched", "nowhere"]) == ["watched"]
        assert await store.watch(["watched"]) == []
        for row in (watched, other):
            await fixture.append(fixture.write(row.claim, WORKING))
        assert told == ["watched"]
        # An input is told to the process that runs the task, unless it is this one.
        await fixture.add_input("other")
        assert told == ["watched"]
        await fixture.open_task("elsewhere", worker="w9")
        await store.add_input(ALICE, "elsewhere", Input(message=said("x")), None)
        await store.ask_cancel(ALICE, "elsewhere")
        assert told == ["watched", "elsewhere", "elsewhere"]


# Opening.


async def test_a_database_that_may_lose_commits_is_refused(tmp_path: Path) -> None:
    url = f"{store_url(tmp_path)}&options=-csynchronous_commit%3Doff"
    with pytest.raises(ConfigError, match="synchronous_commit"):
        await open_store(url).open()


@pytest.mark.parametrize(
    "more", ["schema=Public", "schema=a;b", "connections=1", "connections=x", "statement_cache=no"]
)
def test_a_parameter_without_sense_is_refused(more: str) -> None:
    with pytest.raises(ConfigError):
        open_store(f"postgresql://localhost/db?{more}")


async def test_a_database_that_cannot_be_reached_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"PostgreSQL at .* is not reachable"):
        await open_store(f"postgresql://me:secret@/db?host={tmp_path}").open()


# Layouts.


async def test_processes_that_start_together_make_the_tables_once(tmp_path: Path) -> None:
    stores = [open_store(store_url(tmp_path)) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    for store in stores:
        await store.probe()
        await store.close()


async def test_a_layout_grows_at_once_and_shrinks_when_no_older_process_is_left(
    tmp_path: Path,
) -> None:
    url = store_url(tmp_path)
    steps = scripts()
    after = [
        *steps,
        (1000, "pre", "ALTER TABLE dragoman.task ADD COLUMN later bigint NOT NULL DEFAULT 0"),
        (1000, "post", "ALTER TABLE dragoman.task ALTER COLUMN later DROP DEFAULT"),
    ]
    old = PostgresStore(url, open_store("memory:")._clock)  # type: ignore[attr-defined]
    pool = DatabasePool(parse_address(url), wall_clock)
    await old.open()
    await pool.open()

    async def ran() -> list[str]:
        query = "SELECT step FROM dragoman.layout WHERE number = 1000 ORDER BY step DESC"
        return [step for (step,) in await pool.read(lambda db: db.fetch(query))]

    try:
        await old.enlist("w1", LEASE)
        await pool.write(lambda db: migrate(db, after))
        assert await ran() == ["pre"]
        # The process of the version before goes on.
        fixture = _fixture(url, tmp_path)
        done: list[Exception | None] = []
        old.create(fixture.draft("t1"), done.append)
        await until(lambda: done == [None])
        await old.close()
        await pool.write(lambda db: migrate(db, after))
        assert await ran() == ["pre", "post"]
        # Now it could not write any more, so it is refused.
        with pytest.raises(ConfigError, match="layout 1000"):
            await PostgresStore(url, HandClock()).open()
    finally:
        await pool.close()


async def test_a_long_queue_to_one_host_costs_a_claim_no_more_statements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has one place left looks at one webhook, and not at all that wait."""
    asked = listen(monkeypatch)
    async with _fixture(store_url(tmp_path), tmp_path) as fixture:
        for number in range(30):
            row = await fixture.open_task(f"t{number}")
            hook = Hook(hook_id="h", task_id=row.task_id, url="https://example.com/hook")
            await fixture.store.set_hook(ALICE, hook)
            await fixture.append(fixture.write(row.claim, WORKING))
        costs = []
        for places in (1, 1, 3):
            asked.clear()
            bulkheads = Bulkheads(per_principal=99, per_host=places)
            taken = await fixture.store.claim_deliveries(AGENT, 20, 60_000, bulkheads)
            assert len(taken) == places
            costs.append(len(asked))
        assert max(costs) <= 20, costs
