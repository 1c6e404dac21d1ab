"""What is asked of a store costs the same, however many finished tasks it has.

`python -m bench.finished` measures the same with a million of them. Here the stores are small, and
what counts is work that can be counted: the steps of SQLite's machine, and the pages that
PostgreSQL looks at.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from counts import count
from dragoman.store import Store, open_store
from dragoman.store.postgres.address import parse_address
from dragoman.store.postgres.pool import connect
from dragoman.store.sqlite import store as sqlite_store
from postgres import store_url
from store.finished_tasks import calls, fill, steps_allowed
from store.statements import listen

FEW, MANY = 300, count(2000, 4000)
UNTIL = 1_794_000_000_000


async def test_sqlite_takes_no_more_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    plain = sqlite_store._connection

    def counted(path: Path) -> sqlite3.Connection:
        connection = plain(path)
        connection.set_progress_handler(step, 10)
        return connection

    async def cost(call: Callable[[], Awaitable[object]]) -> int:
        nonlocal steps
        await call()  # the first one prepares statements
        steps = 0
        await call()
        return steps

    costs: list[dict[str, int]] = []
    for number in (FEW, MANY):
        url = f"sqlite:///{tmp_path}/{number}.db"
        await fill(url, number, UNTIL)
        monkeypatch.setattr(sqlite_store, "_connection", counted)
        store = open_store(url)
        await store.open()
        costs.append({name: await cost(call) for name, call in calls(store, number, UNTIL).items()})
        await store.close()
        monkeypatch.setattr(sqlite_store, "_connection", plain)
    few, many = costs
    assert sum(few.values()) > 100  # somebody counted
    assert {name: (few[name], n) for name, n in many.items() if n > steps_allowed(few[name])} == {}


@pytest.mark.slow  # starts PostgreSQL
async def test_postgresql_looks_at_no_more_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = listen(monkeypatch)

    async def cost(db: asyncpg.Connection[Any], call: Callable[[], Awaitable[object]]) -> int:
        await call()
        asked.clear()
        await call()
        return sum([await _pages(db, *query) for query in list(asked)])

    costs: list[dict[str, int]] = []
    for number in (FEW, MANY):
        url = store_url(tmp_path / str(number))
        await fill(url, number, UNTIL)
        store: Store = open_store(url)
        await store.open()
        db = await connect(parse_address(url), direct=True)
        costs.append(
            {name: await cost(db, call) for name, call in calls(store, number, UNTIL).items()}
        )
        await db.close()
        await store.close()
    few, many = costs
    assert sum(few.values()) > 100
    assert {name: (few[name], n) for name, n in many.items() if n > steps_allowed(few[name])} == {}


async def _pages(db: asyncpg.Connection[Any], query: str, values: tuple[Any, ...]) -> int:
    """The pages that a statement looks at."""
    if not query.lstrip().startswith(("SELECT", "WITH", "UPDATE", "DELETE", "INSERT")):
        return 0
    transaction = db.transaction()
    await transaction.start()
    (found,) = await db.fetchrow(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", *values)
    await transaction.rollback()
    plan = json.loads(found)[0]["Plan"]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])
