"""Backups that docs/guide/backup.md describes, made while a server works, and restored."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from dragoman import Agent, State, Task, Turn, connect
from dragoman.client import RemoteAgent
from dragoman.core.errors import ConfigError, TaskNotFound
from dragoman.core.events import Stamped
from dragoman.settings import Limits, Settings
from dragoman.settings import Server as ServerSettings
from dragoman.store import open_store
from dragoman.testing import served
from postgres import Server
from waiting import until


def desk(go_on: asyncio.Event) -> Agent:
    agent = Agent("Desk", description="Works")

    @agent.skill("echo", default=True)
    async def echo(turn: Turn) -> str:
        return turn.text.upper()

    @agent.skill("wait")
    async def wait(turn: Turn) -> None:
        for n in range(3):
            await turn.say(f"Waits for {n}")
        await turn.step("first", lambda: 1)
        await go_on.wait()
        await turn.say("Goes on")

    return agent


def settings(url: str) -> Settings:
    # A worker of the moment of the backup counts as alive until its lease has run out.
    return Settings(server=ServerSettings(store=url), limits=Limits(lease=2.0))


async def _sent(agent: RemoteAgent, n: int) -> list[Task]:
    return [await agent.send(f"hello {k}") for k in range(n)]


async def _beginning(agent: RemoteAgent, task: Task, n: int) -> list[Stamped]:
    """Returns the first events of a task that runs."""
    found: list[Stamped] = []
    async for entry in agent.watch(task, 0):
        found.append(entry)
        if len(found) == n:
            break
    return found


async def _check_restored(url: str, done: list[Task], running: Task, seen: list[Stamped]) -> None:
    """Checks that a server on the restored store has every task, and goes on with the one that
    ran."""
    go_on = asyncio.Event()
    go_on.set()
    async with served(desk(go_on), settings(url)) as place, connect(place) as agent:
        for task in done:
            assert await agent.get(task.id) == task
        # A reader that has seen the first events goes on with the next one.
        rest = [entry async for entry in agent.watch(running, len(seen))]
        whole = [entry async for entry in agent.watch(running, 0)]
        assert whole == [*seen, *rest]
        assert [entry.seq for entry in whole] == list(range(1, len(whole) + 1))
        assert (await agent.get(running.id)).state is State.COMPLETED
        assert (await agent.send("again")).text == "AGAIN"


def _backup(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as db, closing(sqlite3.connect(target)) as copy:
        db.backup(copy)


def _vacuum_into(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as db:
        db.execute("VACUUM INTO ?", (str(target),))


@pytest.mark.parametrize("way", [_backup, _vacuum_into], ids=["backup", "vacuum-into"])
@pytest.mark.slow  # takes several seconds
async def test_a_sqlite_file_is_backed_up_while_a_server_writes_and_restored(
    way: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    old, new = tmp_path / "old" / "tasks.db", tmp_path / "new" / "tasks.db"
    async with (
        served(desk(asyncio.Event()), settings(f"sqlite:///{old}")) as url,
        connect(url) as agent,
    ):
        done = await _sent(agent, 10)
        running = await agent.send("go", skill="wait", wait=False)
        seen = await _beginning(agent, running, 5)
        meanwhile = asyncio.create_task(_sent(agent, 20))
        await asyncio.to_thread(way, old, new)
        later = await meanwhile
    shutil.copy(tmp_path / "old" / "dragoman.key", tmp_path / "new")
    with closing(sqlite3.connect(new)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        kept = {name for (name,) in db.execute("SELECT task_id FROM task")}
    done += [task for task in later if task.id in kept]
    await _check_restored(f"sqlite:///{new}", done, running, seen)


@pytest.fixture
def archive() -> Iterator[Path]:
    """A folder that the user of the database reaches too, which may be another one."""
    folder = Path(tempfile.mkdtemp(prefix="dragoman-wal-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
async def test_postgresql_is_restored_to_a_moment_from_a_base_backup_and_its_log(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_SECRET_KEY", "k" * 32)
    original = await asyncio.to_thread(
        Server, "archive_mode = on", f"archive_command = 'cp %p {archive}/%f'", "fsync = off"
    )
    restored: Server | None = None
    try:
        async with (
            served(desk(asyncio.Event()), settings(original.url)) as url,
            connect(url) as agent,
        ):
            done = await _sent(agent, 5)
            running = await agent.send("go", skill="wait", wait=False)
            base = original.folder / "base"
            command = ("-h", str(original.folder), "-U", "postgres", "-D", str(base))
            await asyncio.to_thread(
                original.run, "pg_basebackup", *command, "--checkpoint=fast", "--wal-method=none"
            )
            done += await _sent(agent, 5)
            seen = await _beginning(agent, running, 5)
            db = await asyncpg.connect(original.url)
            await db.execute("SELECT pg_create_restore_point('before the mistake')")
            mistakes = await _sent(agent, 5)
            last = await db.fetchval("SELECT pg_walfile_name(pg_switch_wal())")
            await until(lambda: (archive / last).exists())
            await db.close()
        await asyncio.to_thread(original.stop)
        (base / "recovery.signal").touch()
        restored = await asyncio.to_thread(
            lambda: Server(
                f"restore_command = 'cp {archive}/%f %p'",
                "recovery_target_name = 'before the mistake'",
                "recovery_target_action = pause",
                "archive_mode = off",
                backup=base,
            )
        )
        # One looks first whether it is the right moment; until then, nobody can write.
        with pytest.raises(
            ConfigError, match=r"PostgreSQL at .* is not reachable: None of the hosts"
        ):
            await open_store(restored.url).open()
        await asyncio.to_thread(restored.control, "promote")
        await _check_restored(restored.url, done, running, seen)
        async with (
            served(desk(asyncio.Event()), settings(restored.url)) as url,
            connect(url) as agent,
        ):
            for task in mistakes:
                with pytest.raises(TaskNotFound):
                    await agent.get(task.id)
    finally:
        original.remove()
        if restored is not None:
            restored.remove()
