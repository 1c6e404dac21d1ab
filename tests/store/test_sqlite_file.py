"""The file of a SQLite store: its size, its rights, its disappearance, and who holds it up."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sqlite3
import stat
import sys
import textwrap
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.core.errors import StoreUnavailable
from dragoman.core.events import Opened, Stamped, StateChanged
from dragoman.core.model import Hook, State
from dragoman.store import Store, open_store
from dragoman.store.codec import pack
from dragoman.store.interface import Filter, Scope
from dragoman.store.local.worker_thread import Job, Outcome, WorkerThread
from dragoman.store.sqlite import database_file, migrations
from dragoman.store.sqlite.statements import log_in
from dragoman.store.writes import commit
from dragoman.testing.stores import HandClock, StoreFixture
from dragoman.testing.stores.fixture import AGENT, ALICE, LEASE, said
from engine.harness import until
from store.disk import full_disk

WORKING = StateChanged(state=State.WORKING)


async def _make(folder: Path, clock: HandClock) -> Store:
    return open_store(f"sqlite:///{folder}/tasks.db", clock=clock)


def _fixture(folder: Path, worker: str = "w1") -> StoreFixture:
    return StoreFixture(_make, folder, worker)


# Size.


def _overlapping(path: Path, over: threading.Event) -> None:
    """Reads all the time: whenever a snapshot ends, another one has begun."""
    readers = [sqlite3.connect(path, isolation_level=None) for _ in range(2)]
    for n in itertools.count():
        db = readers[n % 2]
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM task").fetchall()
        if over.wait(0.02):
            break
        if readers[(n + 1) % 2].in_transaction:
            readers[(n + 1) % 2].execute("COMMIT")
    for db in readers:
        db.close()


@pytest.mark.slow  # takes long
async def test_reads_without_a_pause_do_not_let_the_log_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_file, "AGAIN", 0.0)  # a slow machine may need a second try,
    monkeypatch.setattr(database_file, "LOOK", 0.0)  # and a fast one another look
    wal = tmp_path / "tasks.db-wal"
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("t1")
        over = threading.Event()
        reading = asyncio.create_task(asyncio.to_thread(_overlapping, tmp_path / "tasks.db", over))
        big = Opened(message=said("x" * 2_000_000))
        written, largest = 0, 0
        while written < 6 * database_file.LARGE:
            draft = fixture.draft(f"big{written}")
            entries = (replace(draft.entries[0], event=big), draft.entries[1])
            await fixture.create(replace(draft, entries=entries))
            written += 2_000_000
            largest = max(largest, wal.stat().st_size)
        over.set()
        await reading
        assert largest < 2 * database_file.LARGE
    # And it does not keep the size it had.
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("after")
        assert wal.stat().st_size <= database_file.FOLDED * database_file.PAGE


async def test_a_list_says_how_many_there_are_without_a_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _fixture(tmp_path) as fixture:
        for n in range(300):
            await fixture.create(fixture.draft(f"t{n:03}", end=State.COMPLETED))
        await fixture.open_task("live")
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        def traced(db: sqlite3.Connection) -> None:
            db.set_progress_handler(count, 100)

        store = fixture.store
        await store._lists.ask(lambda reader, _: traced(reader._db), None)  # type: ignore[attr-defined]
        for which, total in (
            (Filter(), 301),
            (Filter(state=State.COMPLETED), 300),
            (Filter(state=State.WORKING), 1),
            (Filter(state=State.FAILED), 0),
        ):
            assert (await store.find(ALICE, which, 1)).total == total
        few = steps
        for n in range(600):
            await fixture.create(fixture.draft(f"u{n:03}", end=State.COMPLETED))
        steps = 0
        assert (await store.find(ALICE, Filter(), 1)).total == 901
        assert steps <= few + 1


async def test_a_log_that_goes_between_two_looks_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tasks.db"
    log = tmp_path / "tasks.db-wal"
    path.touch()
    log.touch()
    file = database_file.DiskFile(path)
    stat_of = os.stat

    def then_gone(name: str) -> os.stat_result:
        found = stat_of(name)
        log.unlink()
        return found

    with monkeypatch.context() as patched, closing(sqlite3.connect(path)) as db:
        patched.setattr(database_file.os, "stat", then_gone)
        file.look(db, 1.0)
    file._look_at = 0.0
    with closing(sqlite3.connect(path)) as db:
        file.look(db, 1.0)
    with pytest.raises(database_file.Missing):
        file.check()


class Restless:
    """What a thread owns, if it cannot rest."""

    def run(self, jobs: list[Job]) -> list[Outcome]:
        return [(job, job.argument, None) for job in jobs]

    def maintain(self) -> None:
        raise FileNotFoundError("tasks.db-wal")

    def close(self) -> None:
        pass


async def test_a_thread_that_cannot_rest_works_on(caplog: pytest.LogCaptureFixture) -> None:
    lane: WorkerThread[Restless] = WorkerThread("test", [Restless()], limit=9)
    async with asyncio.timeout(60):
        for n in range(3):
            assert await lane.ask(lambda _, given: given, n) == n
        await lane.close()
    assert "tasks.db-wal" in caplog.text


# Rights.


def _modes(folder: Path) -> dict[str, int]:
    return {
        path.relative_to(folder).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("older", [False, True])
async def test_nobody_else_can_read_the_files(tmp_path: Path, older: bool) -> None:
    before = os.umask(0o022)
    try:
        if older:
            sqlite3.connect(tmp_path / "tasks.db").close()
            (tmp_path / "tasks.db").touch(0o644)
            (tmp_path / "tasks.db-workers").mkdir(0o755)
        async with _fixture(tmp_path) as fixture:
            await fixture.open_task("t1")
            assert _modes(tmp_path) == {
                "tasks.db": 0o600,
                "tasks.db-wal": 0o600,
                "tasks.db-shm": 0o600,
                "tasks.db-workers": 0o700,
                "tasks.db-workers/w1.lock": 0o600,
            }
    finally:
        os.umask(before)


# Disappearance.


async def _works(store: Store) -> bool:
    try:
        await store.probe()
    except StoreUnavailable:
        return False
    return True


async def _fails(store: Store) -> bool:
    return not await _works(store)


async def test_a_deleted_file_acknowledges_not_even_one_more(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("t1")
        (tmp_path / "tasks.db").unlink()
        with pytest.raises(StoreUnavailable):
            await fixture.open_task("t2")


@pytest.mark.parametrize("name", ["tasks.db", "tasks.db-wal"])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_a_file_that_is_gone_keeps_nothing_more(tmp_path: Path, name: str, how: str) -> None:
    async with _fixture(tmp_path) as fixture:
        row = await fixture.open_task("t1")
        await fixture.store.probe()
        (tmp_path / name).rename(tmp_path / "aside")
        if how == "replaced":
            (tmp_path / name).write_bytes((tmp_path / "aside").read_bytes())
        await until(lambda: _fails(fixture.store), 60)
        write = fixture.write(row.claim, WORKING)
        for change in (
            fixture.append(write),
            fixture.open_task("t2"),
            fixture.add_input("t1"),
            fixture.store.ask_cancel(ALICE, "t1"),
        ):
            with pytest.raises(StoreUnavailable):
                await change
        # Put back, it is the same file.
        (tmp_path / "aside").replace(tmp_path / name)
        await until(lambda: _works(fixture.store), 60)
        await fixture.open_task("t3")


async def test_a_full_disk_fails_the_probe(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as fixture:
        await fixture.open_task("t1")
        with full_disk((tmp_path / "tasks.db-wal").stat().st_size), pytest.raises(StoreUnavailable):
            await fixture.store.probe()
        await fixture.store.probe()


# A stopped process.

HOLDS = """
    import sqlite3, sys, time
    db = sqlite3.connect(sys.argv[1], isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    print("holds it", flush=True)
    time.sleep(600)  # until it is killed
"""


@pytest.mark.slow  # starts a process, and waits for the lock until it is given up
async def test_a_stopped_process_with_the_lock_costs_nobody_a_lease(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as one, _fixture(tmp_path, "w2") as two:
        await one.open_task("t1")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", textwrap.dedent(HOLDS), str(tmp_path / "tasks.db")),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"holds it\n"
        process.send_signal(signal.SIGSTOP)
        try:
            # Nothing can be written, and yet time goes on and everybody is heard of.
            stuck = asyncio.ensure_future(one.open_task("t2"))
            for _ in range(4):
                for fixture in (one, two):
                    fixture.clock.tick(LEASE // 2)
                for fixture, worker in ((one, "w1"), (two, "w2")):
                    assert await fixture.store.beat(worker, LEASE)
            with pytest.raises(StoreUnavailable):
                await stuck
        finally:
            process.kill()
            await process.wait()
        assert await two.store.reap() == []
        assert await one.store.reap() == []
        assert await one.store.beat("w1", LEASE)
        assert (await two.store.row(ALICE, "t1")).worker == "w1"


async def test_a_lease_whose_file_was_tidied_away_is_written_anew(tmp_path: Path) -> None:
    async with _fixture(tmp_path) as one, _fixture(tmp_path, "w2") as two:
        await one.open_task("t1")
        for path in (tmp_path / "tasks.db-workers").iterdir():
            path.unlink()
        assert await one.store.beat("w1", LEASE)
        assert await two.store.beat("w2", LEASE)
        assert await two.store.reap() == []


# Layouts.


async def test_a_file_of_layout_7_is_counted_anew_and_loses_its_wall_clock_leases(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tasks.db"
    connection = sqlite3.connect(path, isolation_level=None)
    migrations.migrate(connection, str(path), migrations.scripts()[:7])
    task = "('{}', 'c', '', '{}', 'desk', 'plan', 'a2a-1.0', '{}', 2, 1, 1, '{}', '{}', 1, 1, 0, 1,"
    task += " 0, 0, '', '', 0, 0, {}, NULL, NULL, NULL)"
    for values in (
        ("t1", "alice", "working", "w0", "token", 0),
        ("t2", "alice", "completed", "", "", 1),
        ("t3", "alice", "completed", "", "", 1),
        ("t4", "bob", "failed", "", "", 1),
    ):
        connection.execute("INSERT INTO task VALUES " + task.format(*values))
    connection.execute("INSERT INTO tally VALUES ('desk', 'completed', 99)")
    connection.execute(f"INSERT INTO worker VALUES ('w0', {10**15})")
    connection.close()
    async with _fixture(tmp_path) as fixture:
        assert await fixture.store.count_by_state(AGENT) == {
            "working": 1,
            "completed": 2,
            "failed": 1,
            "runnable": 0,
        }
        assert await fixture.store.count_unfinished(ALICE) == 1
        # Its lease would have lasted for ever, but nobody is there.
        assert await fixture.store.reap() == ["t1"]


@pytest.mark.parametrize("agents", [("desk",), ("desk", "another")])
async def test_a_file_of_layout_10_gives_what_it_hid_to_its_only_agent(
    tmp_path: Path, agents: tuple[str, ...]
) -> None:
    path = tmp_path / "tasks.db"
    connection = sqlite3.connect(path, isolation_level=None)
    migrations.migrate(connection, str(path), migrations.scripts()[:10])
    task = "('{0}', 'c', '', 'alice', '{1}', '', 'a2a-1.0', 'completed', 2, 1, 1, '', '', 1, 1, 0,"
    task += " 1, 0, 0, '', '', 0, 0, 1, '{0}', x'00', NULL)"
    for agent in (*agents, ""):
        connection.execute("INSERT INTO task VALUES " + task.format(f"t-{agent}", agent))
        connection.execute(f"INSERT INTO tally VALUES ('{agent}', '', 'alice', 'completed', 1)")
        hook = Hook(hook_id="h", task_id=f"t-{agent}", url="https://example.com/")
        connection.execute(
            "INSERT INTO hook (task_id, hook_id, tenant, principal, body, sent, due_at, taken,"
            " attempt, status, error) VALUES (?, 'h', '', 'alice', ?, 1, 1, 0, 0, 0, '')",
            (hook.task_id, pack(hook)),
        )
    connection.close()
    async with _fixture(tmp_path) as fixture:
        for agent in agents:
            scope = Scope("", "alice", agent)
            assert (await fixture.store.row(scope, f"t-{agent}")).hidden is False
            assert await fixture.store.count_by_state(agent) == {"completed": 1, "runnable": 0}
            due = await fixture.store.claim_deliveries(agent, 9, 1000)
            mine = [f"t-{agent}", "t-"] if len(agents) == 1 else [f"t-{agent}"]
            assert [one.hook.task_id for one in due] == mine
            assert {one.scope for one in due} == {scope}
            for key in mine:
                assert await fixture.store.find_key(scope, key) == (key, b"\x00")
        hidden = Scope("", "alice", "desk" if len(agents) == 1 else "")
        assert (await fixture.store.row(hidden, "t-")).hidden is True


async def test_an_event_is_found_in_a_long_log_as_in_a_short_one(tmp_path: Path) -> None:
    steps: dict[str, int] = {}
    async with _fixture(tmp_path) as fixture:
        for name, count in (("short", 40), ("long", 4_000)):
            row = await fixture.open_task(name)
            landed = [
                commit(partial(fixture.store.append, fixture.write(row.claim, WORKING)))
                for _ in range(count)
            ]
            await asyncio.gather(*landed)
            for after in (0, 7, count // 2, count - 3):
                page = await fixture.store.read(ALICE, name, after, 2)
                assert [entry.seq for entry in page.entries] == [after + 1, after + 2]
            with closing(sqlite3.connect(tmp_path / "tasks.db")) as db:
                db.set_progress_handler(lambda name=name: steps.update({name: steps[name] + 1}), 1)
                steps[name] = 0
                assert list(log_in(db, name, 9, 9))
    # Each jump halves what is left: the log is a hundred times as long, the search a few times.
    assert steps["long"] < 6 * steps["short"]


async def test_a_file_of_layout_13_keeps_its_logs(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    connection = sqlite3.connect(path, isolation_level=None)
    migrations.migrate(connection, str(path), migrations.scripts()[:13])
    logs: dict[str, tuple[Stamped, ...]] = {}
    fixture = _fixture(tmp_path)
    for name, count in (("t1", 1), ("t2", 3), ("t3", 2)):
        first = fixture.draft(name).entries
        pieces = [first, *(fixture.stamp(name, WORKING) for _ in range(count - 1))]
        for piece in pieces:
            connection.execute(
                "INSERT INTO piece VALUES (?, ?, 0, ?)", (name, piece[0].seq, pack(piece))
            )
        logs[name] = tuple(entry for piece in pieces for entry in piece)
        connection.execute(
            "INSERT INTO task VALUES (?, ?, '', 'alice', 'desk', 'plan', 'a2a-1.0', 'working',"
            " ?, 1, 1, 'w1', 'token', 1, 1, 0, 1, 0, 0, '', '', 0, 0, 0, NULL, NULL, NULL, 0)",
            (name, f"c-{name}", len(logs[name])),
        )
    connection.close()
    async with _fixture(tmp_path) as after:
        for name, log in logs.items():
            assert tuple(await after.log(name)) == log
        claim = (await after.store.row(ALICE, "t2")).claim
        after.folds = fixture.folds
        await after.append(after.write(claim, WORKING))
        found = await after.store.read(ALICE, "t2", len(logs["t2"]) - 1, 9)
        assert [entry.seq for entry in found.entries] == [4, 5]
        assert tuple(await after.log("t2"))[:-1] == logs["t2"]


async def test_a_file_of_layout_16_gets_its_jumps(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    connection = sqlite3.connect(path, isolation_level=None)
    migrations.migrate(connection, str(path), migrations.scripts()[:16])
    # Two logs of seven pieces each, which were written in turns.
    for n in range(1, 15):
        connection.execute("INSERT INTO piece VALUES (?, ?, ?, x'00')", (n, n, max(n - 2, 0)))
    migrations.migrate(connection, str(path), migrations.scripts())
    found = connection.execute("SELECT n, place, jump FROM piece ORDER BY n").fetchall()
    connection.close()
    targets = {1: 0, 2: 0, 3: 2, 4: 0, 5: 4, 6: 4, 7: 6}
    assert found == [
        (n, (n + 1) // 2, targets[(n + 1) // 2] and targets[(n + 1) // 2] * 2 - n % 2)
        for n in range(1, 15)
    ]


async def test_a_file_of_layout_15_has_tasks_of_normal_priority(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    connection = sqlite3.connect(path, isolation_level=None)
    migrations.migrate(connection, str(path), migrations.scripts()[:15])
    connection.execute(
        "INSERT INTO task VALUES ('t1', 'c', '', 'alice', 'desk', 'plan', 'a2a-1.0', 'submitted',"
        " 1, 1, 1, '', '', 0, 0, 1, 1, 0, 0, '', '', 0, 0, 0, NULL, NULL, NULL, 0, 0)"
    )
    connection.close()
    async with _fixture(tmp_path) as fixture:
        draft = fixture.draft("t2", worker="")
        await fixture.create(replace(draft, row=replace(draft.row, priority=1, run_at=2)))
        taken = await fixture.store.claim("w1", "desk", 9)
        assert [(row.task_id, row.priority) for row in taken] == [("t2", 1), ("t1", 0)]
