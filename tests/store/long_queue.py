"""Fills a store with a long queue, faster than through its interface. The bench does it too."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import asyncpg

from dragoman.store.postgres.address import parse_address
from dragoman.store.postgres.statements import COLUMNS
from dragoman.store.task_row import Row

AGENT = "queue"
TENANTS = 20
"""One task in so many belongs to another tenant than the others."""

_SKILL = "CASE WHEN {n} % 3 = 0 THEN 'draw' ELSE 'plan' END"
_TENANT = "CASE WHEN {n} % {tenants} = 0 THEN 'tenant' || {n} % 7 ELSE 'big' END"


async def fill(url: str, count: int, run_at: int) -> None:
    """Adds so many queued tasks to a store that was opened before, the first of them due at this
    time and each later one a millisecond after the one before."""
    if url.startswith("sqlite"):
        await asyncio.to_thread(_fill_sqlite, Path(url.removeprefix("sqlite:///")), count, run_at)
        return
    schema = parse_address(url).schema
    text = _insert("pg_catalog.generate_series(1, $1::bigint) AS series(n)", "series.n", "true")
    text = text.replace("INTO task", f"INTO {schema}.task").replace(":run_at", "$2::bigint")
    connection = await asyncpg.connect(url.partition("&schema=")[0])
    try:
        await connection.execute(text, count, run_at)
        await connection.execute(f"VACUUM (ANALYZE) {schema}.task")
    finally:
        await connection.close()


def _fill_sqlite(path: Path, count: int, run_at: int) -> None:
    text = _insert("series", "n", "1").replace("INSERT", f"{_SERIES} INSERT", 1)
    with sqlite3.connect(path) as db:
        db.execute(text, {"count": count, "run_at": run_at})
    db.close()


_SERIES = """WITH RECURSIVE series(n) AS (
  SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < :count)"""


def _insert(source: str, n: str, true: str) -> str:
    """Returns the statement. Fields that it does not name have their default."""
    false = "false" if true == "true" else "0"
    # Ids sort by time, as those of the engine do.
    task_id = f"'t' || substr(CAST(1000000000 + {n} AS text), 2)"
    values = {
        name: false if kind == "bool" else "0" if kind == "int" else "''"
        for name, kind in Row.__annotations__.items()
        if name in COLUMNS
    }
    values |= {
        "task_id": task_id,
        "context_id": task_id,
        "tenant": _TENANT.format(n=n, tenants=TENANTS),
        "agent": f"'{AGENT}'",
        "skill": _SKILL.format(n=n),
        "state": "'submitted'",
        "last_seq": "1",
        "runnable": true,
        "run_at": f":run_at + {n}",
        "ended": "0",
    }
    names = ", ".join(values)
    return f"INSERT INTO task ({names}) SELECT {', '.join(values.values())} FROM {source}"
