"""What is special about SQLite: one commit for many, several processes, full disks, migrations."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.core.errors import ConfigError, Fenced, StoreUnavailable, TaskNotFound
from dragoman.core.events import ArtifactChunk, Opened, StateChanged
from dragoman.core.model import Artifact, State, Text
from dragoman.store import Store, open_store
from dragoman.store.bulkheads import Bulkheads
from dragoman.store.interface import Filter, Input, Record
from dragoman.store.sqlite import migrations
from dragoman.store.sqlite import store as sqlite_store
from dragoman.testing.stores import HandClock, StoreFixture
from dragoman.testing.stores.fixture import AGENT, ALICE, LEASE, said
from store.disk import full_disk
from waiting import until

WORKING = StateChanged(state=State.WORKING)
RIVAL = Path(__file__).with_name("rival.py")


async def _make(folder: Path, clock: HandClock) -> Store:
    return open_store(f"sqlite:///{folder}/tasks.db", clock=clock)


def _fixture(folder: Path, worker: str = "w1") -> StoreFixture:
    return StoreFixture(_make, folder, worker)


def _sql(folder: Path, statement: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(folder / "tasks.db", timeout=60)
    try:
        with connection:
            return connection.execute(statement).fetchall()
    finally:
        connection.close()


def _locks(folder: Path) -> set[str]:
    return {path.stem for path in (folder / "tasks.db-workers").glob("*.lock")}


# Group commit.


async def test_many_changes_share_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []
    connect = sqlite_store._connection

    def traced(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite_store, "_connection", traced)
    async with _fixture(tmp_path) as fixture:
        statements.clear()
        landed: list[Exception | None] = []
        last: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def note(error: Exception | None) -> None:
            landed.append(error)
            if len(landed) == 64:
                last.set_result(None)

        for n in range(32):
            draft = fixture.draft(f"t{n}")
            fixture.store.create(draft, note)
            end = fixture.write(draft.row.claim, StateChanged(state=State.COMPLETED))
            fixture.store.append(end, note)
        await asyncio.wait_for(last, 60)
        assert landed == [None] * 64
        assert statements.count("COMMIT") == 1
        # A task that came and went in one commit is written once.
        assert not any(text.lstrip().startswith("UPDATE task") for text in statements)
        statements.clear()
        await asyncio.gather(*(fixture.store.row(ALICE, f"t{n}") for n in range(8)))
        assert not any("INSERT" in text or "UPDATE" in text for text in statements)


async def test_chunks_wait_for_the_next_commit_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "COMMIT_DELAY", 3600.0)
    chunk = ArtifactChunk(artifact=Artifact(artifact_id="result", parts=(Text("x"),)), append=True)
    async with _fixture(tmp_path) as fixture:
        one, two = [await fixture.open_task(name) for name in ("t1", "t2")]
        landed: list[str] = []
        for row in (one, two):
            name = row.task_id
            fixture.store.append(
                fixture.write(row.claim, chunk), lambda _, name=name: landed.append(name)
            )
        for _ in range(50):  # a commit would come long before these reads are done
            assert (await fixture.store.row(ALICE, "t1")).last_seq == 2
        assert landed == []
        await fixture.append(fixture.write(two.claim, chunk, records=(Record(key="k", value=b""),)))
        assert landed == ["t1", "t2"]
        fixture.store.append(fixture.write(one.claim, chunk), lambda _: landed.append("t1"))
        await fixture.end(two)
        assert landed == ["t1", "t2", "t1"]


async def test_more_than_a_batch_is_several(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        landed: list[Exception | None] = []
        for n in range(1300):
            fixture.store.create(fixture.draft(f"t{n:04}"), landed.append)
        await fixture.open_task("last")
        assert landed == [None] * 1300
        assert _sql(tmp_path, "SELECT count(*) FROM task") == [(1301,)]


async def test_it_is_on_the_disk_when_done_is_called(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("t1")
        assert _sql(tmp_path, "SELECT last_seq FROM task") == [(2,)]
        assert _sql(tmp_path, "PRAGMA journal_mode") == [("wal",)]


async def test_the_file_itself_allows_one_end(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        await fixture.end(row)
        await fixture.create(fixture.draft("t2", end=State.COMPLETED))
        for task_id in ("t1", "t2"):
            with pytest.raises(sqlite3.IntegrityError, match="a task ends once"):
                _sql(tmp_path, f"UPDATE task SET last_seq = 9 WHERE task_id = '{task_id}'")


# Trouble with the file.


async def test_one_change_too_large_disturbs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = "PRAGMA max_page_count = 200"
    monkeypatch.setattr(sqlite_store, "_SETUP", (*sqlite_store._SETUP, limit))
    async with _fixture(tmp_path) as fixture:
        outcomes: list[Exception | None] = []
        for n in range(9):
            draft = fixture.draft(f"t{n}")
            if n == 4:
                big = Opened(message=said("x" * 2_000_000))
                entries = (replace(draft.entries[0], event=big), draft.entries[1])
                draft = replace(draft, entries=entries)
            fixture.store.create(draft, outcomes.append)
        await fixture.open_task("after")
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds == [type(None)] * 4 + [StoreUnavailable] + [type(None)] * 4
        with pytest.raises(TaskNotFound):
            await fixture.store.row(ALICE, "t4")
        counts = await fixture.store.count_by_state(AGENT)
        assert counts == {"working": 9, "runnable": 0}
        assert _sql(tmp_path, "PRAGMA integrity_check") == [("ok",)]


async def test_a_full_disk_is_said_to_all_and_nothing_is_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = "PRAGMA max_page_count = 60"
    monkeypatch.setattr(sqlite_store, "_SETUP", (*sqlite_store._SETUP, limit))
    async with _fixture(tmp_path) as fixture:
        acknowledged: list[str] = []
        refused: list[str] = []
        for n in range(400):
            try:
                await fixture.open_task(f"t{n:03}")
                acknowledged.append(f"t{n:03}")
            except StoreUnavailable:
                refused.append(f"t{n:03}")
        assert acknowledged
        assert refused
        for task_id in acknowledged:
            assert len(await fixture.log(task_id)) == 2
        for task_id in refused:
            with pytest.raises(TaskNotFound):
                await fixture.store.row(ALICE, task_id)
        counts = await fixture.store.count_by_state(AGENT)
        assert counts == {"working": len(acknowledged), "runnable": 0}
    monkeypatch.undo()
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("room again")
        assert _sql(tmp_path, "PRAGMA integrity_check") == [("ok",)]


async def test_a_failing_disk_is_said_to_all(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        outcomes: list[Exception | None] = []
        write = fixture.write(row.claim, WORKING)
        with full_disk((tmp_path / "tasks.db-wal").stat().st_size + 100):
            fixture.store.append(write, outcomes.append)
            fixture.store.create(fixture.draft("t2"), outcomes.append)
            with pytest.raises(StoreUnavailable):
                await fixture.open_task("t3")
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 2
        assert await fixture.store.row(ALICE, "t1") == row
        await fixture.append(write)
        await fixture.reopen()
        assert [entry.seq for entry in await fixture.log("t1")] == [1, 2, 3]
        assert _sql(tmp_path, "PRAGMA integrity_check") == [("ok",)]


async def test_what_sqlite_cannot_take_disturbs_no_other(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        outcomes: list[Exception | None] = []
        for n, skill in enumerate(("plan", "half a \ud800 character", "plan")):
            draft = fixture.draft(f"t{n}")
            draft = replace(draft, row=replace(draft.row, skill=skill))
            fixture.store.create(draft, outcomes.append)
        await fixture.open_task("after")
        assert [type(it) for it in outcomes] == [type(None), StoreUnavailable, type(None)]


async def test_what_must_be_forgotten_leaves_the_file(tmp_path: Path) -> None:
    words = "correct horse battery staple"
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        await fixture.ask(row)
        secret = Input(message=replace(said(words), message_id="m1"))
        await fixture.store.add_input(ALICE, "t1", secret, None)
        await fixture.append(fixture.write(row.claim, WORKING, heard=1, forget=(1,)))
        (kept,) = await fixture.store.inputs(row.claim)
        assert kept.message.parts == ()
        # Emptied a moment later, while the store goes on.
        log = tmp_path / "tasks.db-wal"
        await until(lambda: words.encode() not in log.read_bytes())
        assert words.encode() not in (tmp_path / "tasks.db").read_bytes()
        await fixture.open_task("t2")
    # The write-ahead log went when the last connection closed.
    assert words.encode() not in (tmp_path / "tasks.db").read_bytes()
    assert not (tmp_path / "tasks.db-wal").exists()


async def test_what_must_be_forgotten_leaves_the_freed_pages_too(tmp_path: Path) -> None:
    words = [f"correct horse {n} battery staple" for n in range(30)]
    async with _fixture(tmp_path) as fixture:
        rows = []
        for n, each in enumerate(words):
            row = await fixture.open_task(f"t{n}")
            await fixture.ask(row)
            message = replace(said(each + "x" * 700 * n), message_id=f"m{n}")
            await fixture.store.add_input(ALICE, f"t{n}", Input(message=message), None)
            rows.append(row)
        for row in rows:
            await fixture.append(fixture.write(row.claim, WORKING, heard=1, forget=(1,)))
    data = (tmp_path / "tasks.db").read_bytes()
    assert [each for each in words if each.encode() in data] == []


async def test_every_search_has_its_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    connect = sqlite_store._connection

    def traced(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.set_trace_callback(texts.append)
        return connection

    monkeypatch.setattr(sqlite_store, "_connection", traced)
    async with _fixture(tmp_path) as fixture:
        texts.clear()
        row = await fixture.open_task("t1")
        await fixture.ask(row)
        await fixture.add_input("t1")
        record = Record(key="k", value=b"")
        await fixture.append(
            fixture.write(row.claim, WORKING, heard=1, forget=(1,), records=(record,))
        )
        store = fixture.store
        await store.records(row.claim)
        await store.inputs(row.claim)
        await store.list_held_tasks("w1")
        await store.read(ALICE, "t1", 1, 1)
        for which in (
            Filter(),
            Filter(before=(fixture.clock.now, "t9"), since=1),
            Filter(context_id="c", before=(fixture.clock.now, "t9")),
        ):
            await store.find(ALICE, which, 9)
        await store.claim("w1", AGENT, 9)
        await store.reap()
        await store.list_expired_tasks(AGENT, 9)
        await store.count_by_state(AGENT)
        await store.sweep(AGENT, 1, 2, 9)
        await store.retire("w1")
    searches = [
        text
        for text in texts
        if text.lstrip().startswith(("SELECT", "UPDATE", "DELETE", "INSERT INTO record"))
    ]
    assert len(searches) > 25
    for text in searches:
        plan = [str(row[3]) for row in _sql(tmp_path, "EXPLAIN QUERY PLAN " + text)]
        # The index of held tasks is as small as what is held.
        small = "COVERING INDEX task_worker" in plan[0]
        assert small or not any(step.startswith("SCAN task") for step in plan), (text, plan)
        sorted_by_hand = any("TEMP B-TREE" in step for step in plan)
        in_context = "context_id <> task_id" in text
        assert in_context or not sorted_by_hand, (text, plan)
        assert not in_context or plan[0] == "SEARCH task USING PRIMARY KEY (task_id=?)", (
            text,
            plan,
        )


async def test_full_bulkheads_are_bound_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite may take a blob for its own binary form of JSON."""
    texts: list[str] = []
    connect = sqlite_store._connection

    def traced(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.set_trace_callback(texts.append)
        return connection

    monkeypatch.setattr(sqlite_store, "_connection", traced)
    async with _fixture(tmp_path) as fixture:
        full = Bulkheads(1, 1, [(("", "alice"), "one.example.com")])
        assert await fixture.store.claim_deliveries(AGENT, 9, LEASE, full) == []
    (asked,) = [text for text in texts if "json_each" in text]
    assert """json_each('[["","alice","one.example.com"]]')""" in asked
    assert """json_each('[["","alice"]]')""" in asked


async def test_a_file_locked_for_too_long_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "BUSY", 0.2)
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        rude = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)
        rude.execute("BEGIN IMMEDIATE")
        write = fixture.write(row.claim, WORKING)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await fixture.append(write)
        # Reading goes on, and so does looking for news, even beside a change that fails.
        assert await fixture.store.row(ALICE, "t1") == row
        failed, news = await asyncio.gather(
            fixture.append(write), fixture.store.data_version(), return_exceptions=True
        )
        assert (type(failed), news) == (StoreUnavailable, False)
        rude.execute("COMMIT")
        rude.close()
        await fixture.append(write)
        assert len(await fixture.log("t1")) == 3


async def test_a_short_lock_is_waited_for(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        rude = sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)
        rude.execute("BEGIN IMMEDIATE")
        asyncio.get_running_loop().call_later(0.2, rude.execute, "COMMIT")
        await fixture.open_task("t1")
        rude.close()


# Several processes.


async def test_a_change_by_another_process_is_news(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as one, _fixture(tmp_path, "w2") as two:
        seen = {fixture: await fixture.store.data_version() for fixture in (one, two)}

        async def news(fixture: StoreFixture) -> bool:
            before, seen[fixture] = seen[fixture], await fixture.store.data_version()
            return seen[fixture] != before

        await one.open_task("t1")
        # Of several that look at one store, each sees it.
        assert await two.store.data_version() == await two.store.data_version() != seen[two]
        assert await news(two)
        assert not await news(two)
        assert not await news(one)
        # Also when the next thing after it was a change of one's own.
        await one.open_task("t2")
        await two.open_task("t3")
        assert await news(two)
        assert await news(one)
        # Looking is no change.
        await two.store.row(ALICE, "t1")
        await two.store.list_held_tasks("w1")
        assert not await news(one)


async def test_what_another_process_took_is_lost(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as one, _fixture(tmp_path, "w2") as two:
        row = await one.open_task("t1")
        await one.append(one.write(row.claim, WORKING))
        taken = await two.store.seize("w2", "t1", row.epoch)
        assert taken is not None
        with pytest.raises(Fenced):
            await one.append(one.write(row.claim, WORKING))
        two.folds["t1"] = one.folds["t1"]
        two.folds["t1"].seq = 3
        await two.append(two.write(taken.claim, WORKING))
        assert (await one.store.row(ALICE, "t1")).last_seq == 4
        await one.store.ask_cancel(ALICE, "t1")
        (held,) = await two.store.list_held_tasks("w2")
        assert held.cancel


async def test_the_living_are_left_alone(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as one, _fixture(tmp_path, "w2") as two:
        await one.open_task("t1")
        assert await two.store.reap() == []
        assert _locks(tmp_path) == {"w1", "w2"}
        # Alive, but not beating any more: stopped, or without a network disk. Its lease decides.
        two.clock.tick(LEASE)
        await two.store.beat("w2", LEASE)
        assert await two.store.reap() == ["t1"]
        assert not await one.store.beat("w1", LEASE)
        await two.store.retire("w2")
        assert "w2" not in _locks(tmp_path)


@pytest.mark.slow  # starts processes
async def test_a_killed_process_is_known_at_once(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("t1", worker="")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(RIVAL), str(tmp_path / "tasks.db"), "doomed", "hold"),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"t1\n"
        assert (await fixture.store.row(ALICE, "t1")).worker == "doomed"
        assert await fixture.store.reap() == []
        assert "doomed" in _locks(tmp_path)
        process.kill()
        await process.wait()
        # Its lease has half a minute to go.
        assert await fixture.store.reap() == ["t1"]
        assert _locks(tmp_path) == {"w1"}


@pytest.mark.slow  # starts processes
async def test_several_processes_share_the_work(tmp_path: Path) -> None:
    names = {f"t{n:02}" for n in range(45)}
    async with _fixture(tmp_path) as fixture:
        for name in sorted(names):
            await fixture.open_task(name, worker="")
        rivals = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, str(RIVAL), str(tmp_path / "tasks.db"), f"rival{n}"),
                stdout=asyncio.subprocess.PIPE,
            )
            for n in range(3)
        ]
        outputs = [(await rival.communicate())[0].decode().split() for rival in rivals]
        assert [rival.returncode for rival in rivals] == [0, 0, 0]
        ended = [name for output in outputs for name in output]
        assert sorted(ended) == sorted(names)
        for name in names:
            row = await fixture.store.row(ALICE, name)
            assert (row.state, row.attempt, row.epoch) == (State.COMPLETED, 1, 1)
            assert [entry.seq for entry in await fixture.log(name)] == [1, 2, 3, 4, 5]
        assert await fixture.store.count_by_state(AGENT) == {"completed": 45, "runnable": 0}
        assert _sql(tmp_path, "PRAGMA integrity_check") == [("ok",)]
        assert _locks(tmp_path) == {"w1"}


# Layouts.


async def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("t1")
    _sql(tmp_path, "PRAGMA user_version = 9999")
    store = await _make(tmp_path, HandClock())
    with pytest.raises(ConfigError, match="layout 9999"):
        await store.open()


async def test_a_file_of_someone_else_is_refused(tmp_path: Path) -> None:
    _sql(tmp_path, "CREATE TABLE recipes (name TEXT)")
    store = await _make(tmp_path, HandClock())
    with pytest.raises(ConfigError, match="not one of dragoman's"):
        await store.open()
    assert _sql(tmp_path, "SELECT name FROM sqlite_schema") == [("recipes",)]


async def test_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks.db").write_text("hello, I am a letter\n" * 500)
    store = await _make(tmp_path, HandClock())
    with pytest.raises(ConfigError, match="cannot be used"):
        await store.open()


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    store = await _make(tmp_path / "nowhere", HandClock())
    with pytest.raises(ConfigError, match="nowhere"):
        await store.open()


async def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tasks.db").mkdir()
    store = await _make(tmp_path, HandClock())
    with pytest.raises(ConfigError, match="cannot be used"):
        await store.open()


def test_layouts_are_numbered_without_gaps() -> None:
    assert [number for number, _ in migrations.scripts()] == list(
        range(1, len(migrations.scripts()) + 1)
    )


def test_an_older_file_is_brought_up_to_date(tmp_path: Path) -> None:
    steps = [(1, "CREATE TABLE a (x); -- a; comment\nCREATE TABLE b (x);\n")]
    more = [*steps, (2, "ALTER TABLE a ADD y;\nINSERT INTO a VALUES (1, 'two;three');\n")]
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    migrations.migrate(connection, "x.db", steps)
    migrations.migrate(connection, "x.db", steps)
    migrations.migrate(connection, "x.db", more)
    migrations.migrate(connection, "x.db", more)
    assert connection.execute("SELECT * FROM a").fetchall() == [(1, "two;three")]
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    with pytest.raises(ConfigError, match="knows 1"):
        migrations.migrate(connection, "x.db", steps)
    connection.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    good = (1, "CREATE TABLE a (x);\n")
    bad = (2, "INSERT INTO a VALUES (1);\nCREATE TABLE a (x);\n")
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        migrations.migrate(connection, "x.db", [good, bad])
    assert connection.execute("PRAGMA user_version").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)
    migrations.migrate(connection, "x.db", [good])
    with pytest.raises(sqlite3.OperationalError):
        migrations.migrate(connection, "x.db", [good, bad])
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert connection.execute("SELECT count(*) FROM a").fetchone() == (0,)
    connection.close()


def test_a_new_file_waits_for_the_disk_once(tmp_path: Path) -> None:
    """Every commit waits for the disk: one for each layout took longer than the rest of a start."""
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    ran: list[str] = []
    connection.set_trace_callback(ran.append)
    migrations.migrate(connection, "x.db", migrations.scripts())
    migrations.migrate(connection, "x.db", migrations.scripts())
    connection.close()
    assert ran.count("COMMIT") == 1


async def test_two_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    stores = [await _make(tmp_path, HandClock()) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    for store in stores:
        await store.close()
