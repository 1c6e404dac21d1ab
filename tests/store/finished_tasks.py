"""Fills a store with any number of finished tasks, quickly: copies of a few real ones.

A few tasks are run for real, on a store of that kind. Their rows are then copied with other ids and
times, in bulk, and the counts are made anew. All belong to one caller, which is the worst case for
lists.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg

from dragoman import Agent, State, Turn
from dragoman.store import Store
from dragoman.store.interface import AdminFilter, Filter, Scope
from dragoman.store.postgres.address import parse_address
from dragoman.testing import Client

DAY = 86_400_000
"""The tasks ended within a day before the latest of them, so that no retention deletes any."""
CONTEXT = 5
"""The number of tasks in a shared context. One of 20 tasks is in such a one."""
FAILED, CANCELED = 50, 1000
"""One of so many tasks ended like this."""
AGENT = "Bench"
OWNER = Scope(tenant="", principal="anonymous", agent=AGENT)
Row = dict[str, Any]

agent = Agent(AGENT)


@agent.skill("echo", default=True)
async def echo(turn: Turn) -> str:
    return turn.text


@agent.skill("write")
async def write(turn: Turn) -> AsyncIterator[str]:
    for number in range(5):
        await asyncio.sleep(0.01)  # so that each chunk is a piece of its own
        yield f"w{number} "


def created_at(number: int, count: int, until: int) -> int:
    """Returns when a task was created, of so many until a time."""
    return until - int((count - number) * DAY / count)


def task_id_of(number: int, count: int, until: int) -> str:
    """Returns the id of a task, which sorts like the UUIDv7s of tasks."""
    at = created_at(number, count, until)
    return f"{at >> 16:08x}-{at & 0xFFFF:04x}-7000-8000-{number:012x}"


class Templates:
    """The rows of the tasks that were run: a brief one, and one with a log of several pieces."""

    def __init__(self, tables: dict[str, list[Row]], brief: str, streamed: str) -> None:
        self._tables, self._ids = tables, (brief, streamed)

    def copies(self, count: int, until: int) -> Iterator[dict[str, list[Row]]]:
        """Yields the rows of each copy, by table."""
        opener = ""
        for number in range(count):
            name = task_id_of(number, count, until)
            template = self._ids[number % 20 == 7]
            made = {table: _renamed(rows, template, name) for table, rows in self._tables.items()}
            (task,) = made["task"]
            task["created_at"] = task["status_at"] = created_at(number, count, until)
            if number % FAILED == 3:
                task["state"] = "failed"
            elif number % CANCELED == 4:
                task["state"] = "canceled"
            place = number % (20 * CONTEXT)
            if place < CONTEXT:
                opener = name if place == 0 else opener
                task["context_id"] = opener
            yield made


def _renamed(rows: list[Row], template: str, name: str) -> list[Row]:
    old, new = template.encode(), name.encode()
    copies = []
    for row in rows:
        if row["task_id"] != template:
            continue
        copies.append(
            {
                column: name
                if value == template
                else value.replace(old, new)
                if isinstance(value, bytes)
                else value
                for column, value in row.items()
            }
        )
    return copies


async def _run_templates(url: str) -> tuple[str, str]:
    async with Client(agent, store=url) as client:
        brief = await client.send("Say it back, please: thirty-two connections are listening.")
        streamed = await client.send("go", skill="write")
    return brief.id, streamed.id


async def fill_sqlite(path: Path, count: int, until: int) -> None:
    """Makes a file with so many finished tasks, the latest of which ended at `until`."""
    brief, streamed = await _run_templates(f"sqlite:///{path}")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA synchronous = OFF")

        def rows(text: str, *values: object) -> list[Row]:
            return [dict(row) for row in db.execute(text, values)]

        tables = {
            "task": rows("SELECT * FROM task"),
            "frozen": rows("SELECT * FROM frozen"),
            "piece": [],
        }
        # A log is a chain from its last piece back (ADR 0024).
        for task in tables["task"]:
            at = task["last_piece"]
            while at:
                (piece,) = rows("SELECT * FROM piece WHERE n = ?", at)
                tables["piece"].insert(0, {**piece, "task_id": task["task_id"]})
                at = piece["previous"]
        for table in tables:
            db.execute(f"DELETE FROM {table}")
        pieces = 0
        texts: dict[str, str] = {}
        waiting: dict[str, list[Row]] = {table: [] for table in tables}

        def flush() -> None:
            for table, found in waiting.items():
                if found:
                    if table not in texts:
                        names = list(found[0])
                        marks = ", ".join(f":{name}" for name in names)
                        texts[table] = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"
                    db.executemany(texts[table], found)
                    found.clear()

        db.execute("BEGIN")
        templates = Templates(tables, brief, streamed)
        for number, made in enumerate(templates.copies(count, until)):
            numbers = {0: 0}  # pieces name each other by their numbers
            for piece in made["piece"]:
                del piece["task_id"]
                pieces += 1
                numbers[piece["n"]] = pieces
                for column in ("n", "previous", "jump"):
                    piece[column] = numbers[piece[column]]
            (task,) = made["task"]
            task["last_piece"] = numbers[task["last_piece"]]
            for table, found in made.items():
                waiting[table] += found
            if number % 10_000 == 9_999:
                flush()
        flush()
        db.execute("DELETE FROM tally")
        db.execute(
            "INSERT INTO tally SELECT agent, tenant, principal, state, count(*) FROM task "
            "WHERE hidden = 0 GROUP BY 1, 2, 3, 4"
        )
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def fill_postgres(url: str, count: int, until: int) -> None:
    """Fills a schema with so many finished tasks, the latest of which ended at `until`."""
    brief, streamed = await _run_templates(url)
    address = parse_address(url)
    schema = address.schema
    db = await asyncpg.connect(url.partition("&schema")[0])
    try:

        async def rows(table: str, order: str) -> list[Row]:
            text = f"SELECT * FROM {schema}.{table} ORDER BY {order}"
            return [dict(row) for row in await db.fetch(text)]

        tables = {"task": await rows("task", "task_id"), "piece": await rows("piece", "seq")}
        for table in (*tables, "tally"):
            await db.execute(f"TRUNCATE {schema}.{table}")
        waiting: dict[str, list[Row]] = {table: [] for table in tables}

        async def flush() -> None:
            for table, found in waiting.items():
                if found:
                    names = list(found[0])
                    records = [tuple(row.values()) for row in found]
                    await db.copy_records_to_table(
                        table, schema_name=schema, columns=names, records=records
                    )
                    found.clear()

        templates = Templates(tables, brief, streamed)
        for number, made in enumerate(templates.copies(count, until)):
            for table, found in made.items():
                waiting[table] += found
            if number % 10_000 == 9_999:
                await flush()
        await flush()
        await db.execute(
            f"INSERT INTO {schema}.tally SELECT agent, tenant, principal, state, 0, count(*) "
            f"FROM {schema}.task WHERE NOT hidden GROUP BY 1, 2, 3, 4"
        )
        # What autovacuum does soon after so many rows.
        for table in (*tables, "tally"):
            await db.execute(f"VACUUM (ANALYZE) {schema}.{table}")
    finally:
        await db.close()


async def fill(url: str, count: int, until: int) -> None:
    """Fills a store with finished tasks."""
    if url.startswith("sqlite"):
        await fill_sqlite(Path(url.removeprefix("sqlite:///")), count, until)
    else:
        await fill_postgres(url, count, until)


def calls(store: Store, count: int, until: int) -> dict[str, Callable[[], Awaitable[object]]]:
    """What is asked of a store with so many finished tasks: by callers, and by the maintenance of
    every process. None of it changes a task."""
    numbers = random.Random(1)

    def id_of(number: int) -> str:
        return task_id_of(number, count, until)

    def listed(limit: int = 20, **which: Any) -> Callable[[], Awaitable[object]]:
        return lambda: store.find(OWNER, Filter(**which), limit)

    def of_all(**which: Any) -> Callable[[], Awaitable[object]]:
        return lambda: store.find_in_all_scopes(AdminFilter(**which), 100)

    lately = created_at(count - 50, count, until)
    ancient = 1000 * DAY
    context = 20 * CONTEXT
    return {
        "get": lambda: store.load(OWNER, id_of(numbers.randrange(count))),
        "read": lambda: store.read(OWNER, id_of(numbers.randrange(count)), 0, 100),
        "list": listed(),
        "list, deep": listed(before=(until - DAY // 2, "")),
        "list of a context": lambda: store.find(
            OWNER, Filter(context_id=id_of(context * numbers.randrange(count // context))), 20
        ),
        **{
            f"list, {state.value}": listed(5, state=state)
            for state in (State.COMPLETED, State.FAILED)
        },
        "list, state that none has": listed(state=State.WORKING),
        "list, lately": listed(since=lately),
        "list, failed lately": listed(since=lately, state=State.FAILED),
        "sweep, nothing is old": lambda: store.sweep(AGENT, ancient, ancient, 1000),
        "retention of a tenant": of_all(tenant="other", agent=AGENT, ended_before=until),
        "retention of an agent": of_all(agent=AGENT, ended_before=until - ancient),
        "active": of_all(agent=AGENT, active_since=lately),
        "claim": lambda: store.claim("w1", AGENT, 64),
        "reap": store.reap,
        "expired": lambda: store.list_expired_tasks(AGENT, 64),
        "agents due": store.agents_due,
        "held": lambda: store.list_held_tasks("w1"),
        "deliveries": lambda: store.claim_deliveries(AGENT, 64, 1000),
        "counts": lambda: store.count_by_state(AGENT),
        "counts of a caller": lambda: store.count_unfinished(OWNER),
    }


def steps_allowed(few: int) -> float:
    """How many steps or pages a call may take with many tasks, if it takes `few` with few of them.
    An index of more entries may be some pages deeper."""
    return 1.5 * few + 30
