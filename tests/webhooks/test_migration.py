"""A store from before there were webhooks."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from dragoman.core.model import Hook
from dragoman.store import Store, open_store
from dragoman.store.sqlite.migrations import migrate, scripts
from dragoman.testing.stores import HandClock, StoreFixture
from dragoman.testing.stores.fixture import AGENT, ALICE


async def test_an_older_file_learns_webhooks(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    connection = sqlite3.connect(path, isolation_level=None)
    migrate(connection, str(path), scripts()[:1])
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()

    async def make(folder: Path, clock: HandClock) -> Store:
        return open_store(f"sqlite:///{path}", clock=clock)

    async with StoreFixture(make, tmp_path) as fixture:
        row = await fixture.open_task("t1")
        hook = Hook(hook_id="h", task_id="t1", url="https://example.com/")
        await fixture.store.set_hook(ALICE, hook)
        await fixture.end(row)
        (due,) = await fixture.store.claim_deliveries(AGENT, 9, 1000)
        assert (due.hook, due.seq) == (hook, 3)
