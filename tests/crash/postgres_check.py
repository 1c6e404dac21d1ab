"""What lies in a store on PostgreSQL, read past the code that wrote it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import asyncpg

from crash.check import Kept
from dragoman.core.model import State
from dragoman.store.codec import unpack_piece, unpack_task
from dragoman.store.postgres.address import parse_address

R = TypeVar("R")

_UNSETTLED = """
SELECT count(*) FROM {schema}.task WHERE ended = 0 AND NOT (inputs = heard
  AND state IN ('input-required', 'auth-required'))"""


def read_postgres(url: str) -> dict[str, Kept]:
    """Every task of a store."""

    async def read(db: asyncpg.Connection[Any], schema: str) -> dict[str, Kept]:
        found: dict[str, Kept] = {}
        keys = dict(await db.fetch(f"SELECT task_id, key FROM {schema}.idempotency"))
        for row in await db.fetch(f"SELECT * FROM {schema}.task"):
            kept = found[row["task_id"]] = Kept(
                task_id=row["task_id"],
                context_id=row["context_id"],
                state=State(row["state"]),
                last_seq=row["last_seq"],
                inputs=row["inputs"],
                heard=row["heard"],
                attempt=row["attempt"],
                worker=row["worker"],
                runnable=row["runnable"],
                key=keys.get(row["task_id"]),
                agent=row["agent"],
            )
            if row["log"] is not None:
                kept.entries += unpack_piece(row["log"])
                kept.brief = True
            if row["frozen"] is not None:
                kept.frozen = unpack_task(row["frozen"])
        pieces = await db.fetch(f"SELECT task_id, body FROM {schema}.piece ORDER BY task_id, seq")
        for task_id, body in pieces:
            found[task_id].entries += unpack_piece(body)
        records = await db.fetch(f"SELECT task_id, key, value FROM {schema}.record ORDER BY n")
        for task_id, key, value in records:
            found[task_id].records.append((key, value))
        return found

    return _with(url, read)


def unsettled_postgres(url: str) -> int:
    """How many tasks neither ended nor wait for their caller."""

    async def read(db: asyncpg.Connection[Any], schema: str) -> int:
        return int(await db.fetchval(_UNSETTLED.format(schema=schema)))

    return _with(url, read)


def unsettled_hooks(url: str) -> int:
    """How many webhooks have not got everything, or never will."""

    async def read(db: asyncpg.Connection[Any], schema: str) -> int:
        due = await db.fetchval(f"SELECT count(*) FROM {schema}.hook WHERE due_at > 0")
        dead = await db.fetchval(f"SELECT count(*) FROM {schema}.letter")
        return int(due) + int(dead)

    return _with(url, read)


def _with(url: str, read: Callable[[asyncpg.Connection[Any], str], Awaitable[R]]) -> R:
    address = parse_address(url)

    async def main() -> R:
        db = await asyncpg.connect(address.dsn)
        try:
            async with db.transaction(isolation="repeatable_read", readonly=True):
                return await read(db, address.schema)
        finally:
            await db.close()

    with ThreadPoolExecutor(1) as thread:  # the caller has a loop that runs
        return thread.submit(asyncio.run, main()).result()
