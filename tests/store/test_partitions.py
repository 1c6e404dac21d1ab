"""The store on tables that an operator has divided, with the statements of the scaling guide."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

from dragoman import State
from dragoman.store import open_store
from dragoman.store.interface import Filter
from dragoman.testing import Client
from pages import DOCS, blocks
from postgres import server_url, store_url
from store.finished_tasks import AGENT, OWNER, agent, fill, task_id_of

TASKS = 300
UNTIL = 1_794_000_000_000


@pytest.mark.slow  # starts PostgreSQL
async def test_divided_tables_serve_old_tasks_and_new_ones(tmp_path: Path) -> None:
    url = store_url(tmp_path)
    await fill(url, TASKS, UNTIL)
    schema = url.partition("schema=")[2].partition("&")[0]
    (statements,) = blocks(DOCS / "guide" / "scaling.md", "sql")
    connection = await asyncpg.connect(server_url())
    try:
        await connection.execute(
            f"UPDATE {schema}.task SET task_id = 'zz-chosen', context_id = 'zz-chosen' "
            "WHERE task_id = $1",
            task_id_of(9, TASKS, UNTIL),
        )
        await connection.execute(statements.text.replace("dragoman.", f"{schema}."))
        parts = "SELECT count(*) FROM pg_inherits WHERE inhparent = $1::regclass"
        for table in ("task", "piece"):
            assert await connection.fetchval(parts, f"{schema}.{table}") == 2
    finally:
        await connection.close()
    async with Client(agent, store=url) as client:
        brief = await client.send("after the division")
        assert brief.state is State.COMPLETED
        streamed = await client.send("go", skill="write")
        assert streamed.text == "w0 w1 w2 w3 w4 "
        assert (await client.get(streamed.id)).text == streamed.text
    store = open_store(url)
    await store.open()
    try:
        _, old = await store.load(OWNER, task_id_of(5, TASKS, UNTIL))
        assert old.state is State.COMPLETED
        row, _ = await store.load(OWNER, "zz-chosen")
        assert row.state is State.COMPLETED
        listed = await store.find(OWNER, Filter(), 3)
        assert listed.total == TASKS + 2
        assert {streamed.id, brief.id} < {task.id for task in listed.tasks}
        assert await store.sweep(AGENT, 0, 0, 100) == 100
        assert (await store.find(OWNER, Filter(), 1)).total == TASKS - 98
    finally:
        await store.close()
