"""Every store keeps the same promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.store import Store, open_store
from dragoman.testing.stores import HandClock, StoreContract
from postgres import server_url, store_url


class TestMemory(StoreContract):
    durable = False

    async def make(self, folder: Path, clock: HandClock) -> Store:
        return open_store("memory:", clock=clock)


class TestSqlite(StoreContract):
    async def make(self, folder: Path, clock: HandClock) -> Store:
        return open_store(f"sqlite:///{folder}/tasks.db", clock=clock)


class TestFile(StoreContract):
    async def make(self, folder: Path, clock: HandClock) -> Store:
        return open_store(f"file://{folder}/tasks", clock=clock)


@pytest.mark.slow  # starts PostgreSQL
class TestPostgres(StoreContract):
    @pytest.fixture(autouse=True)
    def _server(self) -> None:
        server_url()  # before a test starts another process that uses it

    async def make(self, folder: Path, clock: HandClock) -> Store:
        return open_store(store_url(folder), clock=clock)
