"""Sessions in a store, beyond what the contract asks of every one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.store import open_store
from dragoman.store.memory import sessions
from dragoman.store.sqlite import sessions as sqlite_sessions
from dragoman.testing.stores import HandClock
from dragoman.testing.stores.fixture import AGENT, START
from dragoman.testing.stores.sessions import HOUR, session

STORES = ("memory:", "sqlite:///{}/tasks.db", "file://{}/tasks")


@pytest.mark.parametrize("url", STORES)
async def test_there_are_never_too_many(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST", 3)
    monkeypatch.setattr(sqlite_sessions, "MOST", 3)
    store = open_store(url.format(tmp_path), clock=HandClock())
    await store.open()
    try:
        for n in range(6):
            await store.sessions.keep(session(b"k%d" % n, since=START + n))
        left = await store.sessions.list_valid(None, None)
        assert [one.key for one in left] == [b"k3", b"k4", b"k5"]
    finally:
        await store.close()


async def test_two_processes_hear_of_each_other(tmp_path: Path) -> None:
    clock = HandClock()
    one, two = (open_store(f"sqlite:///{tmp_path}/tasks.db", clock=clock) for _ in range(2))
    await one.open()
    await two.open()
    try:
        await one.sessions.keep(session(b"k1"))
        (told,) = await two.sessions.news(0)
        assert await two.sessions.revoke("host-1") == 1
        assert await one.sessions.find(AGENT, b"k1") is None
        (gone,) = await one.sessions.news(told.revision)
        assert gone.revoked
        assert await one.sessions.first(b"s", START + 1)
        assert not await two.sessions.first(b"s", START + 1)
    finally:
        await one.close()
        await two.close()


async def test_files_of_what_is_over_are_removed(tmp_path: Path) -> None:
    clock = HandClock()
    store = open_store(f"file://{tmp_path}/tasks", clock=clock)
    await store.open()
    try:
        await store.sessions.keep(session(b"k1"))
        await store.sessions.first(b"s1", START + 1)
        assert len(files(tmp_path)) == 2
        clock.tick(HOUR)
        await store.sessions.keep(session(b"k2", since=clock.now))
        await store.sessions.first(b"s2", clock.now + 1)
        assert files(tmp_path) == {f"{b'k2'.hex()}.json", f"{b's2'.hex()}.said"}
    finally:
        await store.close()


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "tasks" / "sessions").iterdir()}
