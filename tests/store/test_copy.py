"""`dragoman data copy` between stores of every kind, and the mistakes that it refuses."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.cli import main
from dragoman.core.model import State
from dragoman.store import Store, open_store
from dragoman.store.clock import wall_clock
from dragoman.store.postgres.store import PostgresStore
from dragoman.store.transfer import postgres as transfer
from dragoman.store.transfer.copy import StoreCopy
from dragoman.store.transfer.rows import COLLECTIONS
from dragoman.store.transfer.stored_task import CopyMark, StoredTask
from dragoman.testing.stores.fixture import AGENT, ALICE, StoreFixture
from dragoman.testing.stores.transfer import fill
from postgres import server_url, store_url

NOT_COPIED = {
    "worker": "the processes of the source are none of the copy",
    "clock": "the copy notes its own time",
    "copy": "it says of what the copy is one",
    "replica": "the processes of the source are none of the copy",
    "tally": "it is counted anew",
    "rate": "what callers may still call is given anew",
    "quota": "the processes of the source are none of the copy",
    "sqlite_sequence": "it follows the numbers of webhooks",
}
"""The tables whose rows are not copied, and why."""
KINDS = ("sqlite", "file", pytest.param("postgresql", marks=pytest.mark.slow))


def url_of(kind: str, folder: Path) -> str:
    if kind == "postgresql":
        return store_url(folder / "postgres")
    return f"sqlite:///{folder}/tasks.db" if kind == "sqlite" else f"file://{folder}/tasks"


async def _use(url: str, work: Callable[[Store], Awaitable[Any]]) -> Any:
    store = open_store(url)
    await store.open()
    try:
        return await work(store)
    finally:
        await store.close()


def use(url: str, work: Callable[[Store], Awaitable[Any]]) -> Any:
    return asyncio.run(_use(url, work))


def filled(url: str, folder: Path) -> None:
    """Fills the store at a URL, and leaves it as a process does that is killed."""

    async def make(_: Path, clock: Any) -> Store:
        return open_store(url, clock=clock)

    async def work() -> None:
        async with StoreFixture(make, folder) as fixture:
            await fill(fixture)

    asyncio.run(work())


async def everything(store: Store) -> Any:
    transfer = store.transfer
    versions = await transfer.versions("", 100)
    tasks = await transfer.export_tasks([each.task_id for each in versions])
    return versions, tasks, await transfer.export_collections(), await transfer.count()


def copy(source: str, target: str, *words: str, works: bool = True) -> object:
    """Runs the command, and returns its exit code or its last words."""
    with pytest.raises(SystemExit) as ended:
        main(["data", "copy", "--from", source, "--to", target, *words])
    assert (ended.value.code in (0, None)) == works
    return ended.value.code


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_any_store_is_copied_to_any_other(
    source: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, two = url_of(source, tmp_path / "a"), url_of(target, tmp_path / "b")
    filled(one, tmp_path / "a")
    copy(one, two, "--json")
    counts = json.loads(capsys.readouterr().out)
    assert all(n["from"] == n["to"] for n in counts.values())
    assert counts["tasks"]["to"] == 6
    assert all(n["to"] for n in counts.values()), "there is something of every kind"
    assert use(one, everything) == use(two, everything)
    mark: CopyMark = use(two, lambda store: store.transfer.read_mark())
    assert mark.finished_at


def test_a_task_that_ran_at_the_source_runs_on_at_the_copy(tmp_path: Path) -> None:
    one, two = f"sqlite:///{tmp_path}/one.db", f"sqlite:///{tmp_path}/two.db"
    filled(one, tmp_path)
    copy(one, two)

    async def claimed(store: Store) -> set[str]:
        await store.enlist("w2", 30_000)
        return {row.task_id for row in await store.claim("w2", AGENT, 10)}

    assert use(two, claimed) == {"t-running", "t-queued", "t-hidden"}


def test_every_table_is_copied_or_said_not_to_be(tmp_path: Path) -> None:
    use(f"sqlite:///{tmp_path}/tasks.db", everything)
    with sqlite3.connect(tmp_path / "tasks.db") as db:
        names = {
            name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type='table'")
        }
    db.close()
    of_tasks = {"task", "piece", "frozen", "input", "record", "hook", "letter"}
    assert names == of_tasks | set(COLLECTIONS) | set(NOT_COPIED)


def test_what_cannot_be_copied_is_refused_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, two = "sqlite:///one.db", "sqlite:///two.db"
    use(one, everything)

    def refused(source: str, target: str) -> str:
        copy(source, target, works=False)
        return capsys.readouterr().err

    assert "the same store" in refused(one, f"sqlite:///{tmp_path}/one.db")
    assert "There is no store sqlite:///none.db" in refused("sqlite:///none.db", two)
    assert "A store in memory" in refused("memory:", two)
    assert "A store in memory" in refused(one, "memory:")
    assert "There is no store for 'redis:'" in refused(one, "redis://x")
    nowhere = f"postgresql://postgres@/postgres?host={tmp_path}"
    assert "is not reachable" in refused(one, nowhere)
    assert "not one of dragoman's" in refused(one, _foreign(tmp_path))
    assert "has layout 999" in refused(one, _newer(tmp_path))
    # A target that is in use otherwise.
    filled(two, tmp_path)
    assert "The target is not empty" in refused(one, two)
    assert "6 tasks" in refused(one, two)
    # A copy of another store, one that is complete, and one that is incomplete as a source.
    three = "sqlite:///three.db"
    mark = CopyMark(source="sqlite:////elsewhere.db", begun_at=1)
    use(three, lambda store: store.transfer.write_mark(mark))
    assert "a copy of sqlite:////elsewhere.db" in refused(one, three)
    assert "incomplete copy of sqlite:////elsewhere.db" in refused(three, "sqlite:///four.db")
    copy(one, "sqlite:///five.db")
    assert "a complete copy already" in refused(one, "sqlite:///five.db")


def _foreign(folder: Path) -> str:
    with sqlite3.connect(folder / "foreign.db") as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    return "sqlite:///foreign.db"


def _newer(folder: Path) -> str:
    use(f"sqlite:///{folder}/newer.db", everything)
    with sqlite3.connect(folder / "newer.db") as db:
        db.execute("PRAGMA user_version = 999")
    db.close()
    return "sqlite:///newer.db"


@pytest.mark.slow  # starts PostgreSQL
def test_the_address_of_a_source_is_noted_without_its_password(tmp_path: Path) -> None:
    source = store_url(tmp_path).replace("postgres@", "postgres:secret@")
    use(source, everything)
    copy(source, f"sqlite:///{tmp_path}/two.db")
    mark: CopyMark = use(f"sqlite:///{tmp_path}/two.db", lambda store: store.transfer.read_mark())
    assert mark.source.startswith("postgresql:")
    assert "schema=t_" in mark.source
    assert "secret" not in mark.source


@pytest.mark.slow  # starts PostgreSQL
def test_the_key_and_the_audit_log_come_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRAGOMAN_SECRET_KEY", raising=False)
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    one = f"sqlite:///{tmp_path}/a/one.db"
    use(one, everything)
    (tmp_path / "a" / "dragoman.key").write_text("k" * 32)
    (tmp_path / "a" / "one.db.approvals").write_text("{}\n")
    copy(one, f"file://{tmp_path}/b/store")
    assert (tmp_path / "b/store/dragoman.key").read_text() == "k" * 32
    assert (tmp_path / "b/store/approvals.jsonl").read_text() == "{}\n"
    copy(one, store_url(tmp_path))
    said = capsys.readouterr().err
    assert f"set DRAGOMAN_SECRET_KEY to the text in {tmp_path}/a/dragoman.key" in said
    assert "The audit log of approvals stays" in said
    (tmp_path / "c" / "dragoman.key").write_text("x" * 32)
    copy(one, f"sqlite:///{tmp_path}/c/two.db", works=False)
    assert "another key" in capsys.readouterr().err


async def test_counts_that_differ_leave_the_copy_incomplete(tmp_path: Path) -> None:
    """The control of the comparison: the source loses a row behind the back of the versions."""
    one, two = f"sqlite:///{tmp_path}/one.db", f"sqlite:///{tmp_path}/two.db"
    await asyncio.to_thread(filled, one, tmp_path)

    async def copied(source: Store) -> dict[str, tuple[int, int]]:
        async def into(target: Store) -> dict[str, tuple[int, int]]:
            work = StoreCopy(source, target, one, wall_clock)
            await work.begin()
            await work.run_pass()
            with sqlite3.connect(tmp_path / "two.db") as db:
                db.execute("DELETE FROM piece WHERE n = (SELECT max(n) FROM piece)")
            db.close()
            compared = await work.finish()
            assert (await target.transfer.read_mark()).finished_at == 0  # type: ignore[union-attr]
            return compared

        return await _use(two, into)  # type: ignore[no-any-return]

    compared: dict[str, tuple[int, int]] = await _use(one, copied)
    assert [name for name, (a, b) in compared.items() if a != b] == ["log writes"]


@pytest.mark.slow  # starts PostgreSQL
async def test_a_pass_follows_what_changes_and_drops_what_is_gone(tmp_path: Path) -> None:
    async def make(folder: Path, clock: Any) -> Store:
        return open_store(f"sqlite:///{folder}/tasks.db", clock=clock)

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with StoreFixture(make, tmp_path / "a") as a:
        target = open_store(store_url(tmp_path / "b"))
        await target.open()
        await fill(a)
        work = StoreCopy(a.store, target, "here", wall_clock)
        assert not await work.begin()
        assert await work.run_pass() == 7  # six tasks, and all collections
        assert await work.run_pass() == 0
        await a.end(await a.store.row(ALICE, "t-running"), heard=1)
        await a.store.erase(["t-brief", "t-queued"])
        assert await work.run_pass() == 3
        assert await everything(target) == await everything(a.store)
        assert await work.begin(), "it was begun before"
        task = (await target.load(ALICE, "t-running"))[1]
        assert task.state is State.COMPLETED
        await target.close()


@pytest.mark.slow  # starts PostgreSQL
async def test_a_count_on_postgresql_may_take_longer_than_other_statements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(store_url(tmp_path))
    await store.open()
    assert isinstance(store, PostgresStore)
    await store._pool.read(lambda db: db.execute("SET statement_timeout = '200ms'"))
    slow = f"SELECT counted.* FROM ({transfer._COUNTS}) AS counted, pg_sleep(0.5)"
    monkeypatch.setattr(transfer, "_COUNTS", slow)
    assert (await store.transfer.count())["tasks"] == 0
    await store.close()


async def test_large_tasks_are_copied_in_small_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def make(folder: Path, clock: Any) -> Store:
        return open_store(f"sqlite:///{folder}/tasks.db", clock=clock)

    monkeypatch.setattr("dragoman.store.transfer.copy.LARGE", 1000)
    (tmp_path / "b").mkdir()
    async with StoreFixture(make, tmp_path) as a, StoreFixture(make, tmp_path / "b") as b:
        for n in range(100):
            await a.open_task(f"t-{n:03}", worker="")
        one = (await a.store.transfer.export_tasks(["t-000"]))[0].weight
        assert 50 < one < 500
        sizes: list[int] = []
        take = b.store.transfer.import_tasks

        async def import_tasks(tasks: list[StoredTask]) -> None:
            sizes.append(len(tasks))
            await take(tasks)

        monkeypatch.setattr(b.store.transfer, "import_tasks", import_tasks)
        assert await StoreCopy(a.store, b.store, "here", wall_clock).run_pass() == 100
        assert sum(sizes) == 100
        assert max(sizes) * one <= 4 * 1000


@pytest.mark.slow  # starts PostgreSQL
def test_a_task_that_the_target_cannot_hold_is_named_and_the_others_are_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL has no NUL, but SQLite stored ids with it before there was a rule for ids."""
    monkeypatch.setattr("dragoman.store.transfer.copy.PAGE", 2)  # also at the end of a page
    one, two = f"sqlite:///{tmp_path}/one.db", store_url(tmp_path)

    async def make(_: Path, clock: Any) -> Store:
        return open_store(one, clock=clock)

    async def write() -> None:
        async with StoreFixture(make, tmp_path) as fixture:
            await fill(fixture)
            for name in ("a\0", "t-bad\0id", "t-last"):
                await fixture.open_task(name, worker="")

    asyncio.run(write())
    last = copy(one, two, "--json", works=False)
    out, err = capsys.readouterr()
    assert r"Skipped the task 'a\x00': This cannot be stored" in err
    assert r"Skipped the task 't-bad\x00id': This cannot be stored" in err
    assert err.count("Skipped the task") == 2
    assert "2 tasks were skipped" in str(last)
    counts = json.loads(out)
    assert all(n["from"] == n["to"] for n in counts.values())
    mark: CopyMark = use(two, lambda store: store.transfer.read_mark())
    assert mark.finished_at, "servers can start on it"
    _, tasks, _, _ = use(two, everything)
    assert "t-last" in [each.row.task_id for each in tasks]
    assert len(tasks) == counts["tasks"]["to"]
    # What is stored stays readable.
    row = use(one, lambda store: store.row(ALICE, "t-bad\0id"))
    assert row.task_id == "t-bad\0id"


@pytest.fixture(autouse=True)
def _server(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("slow"):
        server_url()
