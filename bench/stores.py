"""The stores on which servers are measured."""

import asyncio
import itertools
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

from .measure import cpu_seconds

SECRET_KEY = {"DRAGOMAN_SECRET_KEY": "k" * 32}
"""The key of all servers, since one on PostgreSQL makes none of its own."""
# The tests start PostgreSQL and NATS, and so does the bench.
sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
if TYPE_CHECKING:
    from postgres import Server as Postgres

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class StorePlace:
    """The URL of a new store, and the variables of the servers on it."""

    url: str
    environment: dict[str, str] = field(default_factory=dict)


def new_store(store: str, scratch: str, stack: ExitStack) -> StorePlace:
    """Makes a store. What belongs to it alone ends with the stack."""
    if store == "memory":
        return StorePlace("memory:")
    if store == "sqlite":
        return StorePlace(f"sqlite:///{scratch}/tasks.db")
    url = _new_database()
    if store == "postgres-nats":
        from nats_server import NatsServer

        nats = NatsServer(Path(scratch))
        stack.callback(nats.kill)
        return StorePlace(url, {"DRAGOMAN_SERVER_BELL": nats.url})
    return StorePlace(url)


def _new_database() -> str:
    name = f"bench_{next(_numbers)}"
    server = postgres().url

    async def create() -> None:
        connection = await asyncpg.connect(server)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()

    asyncio.run(create())
    return server.replace("/postgres?", f"/{name}?")


def database_cpu_seconds(place: StorePlace) -> float | None:
    """CPU time of the database of a store so far, if it has one."""
    if not place.url.startswith("postgresql:"):
        return None
    pid = (postgres().folder / "data" / "postmaster.pid").read_text().split()[0]
    return cpu_seconds(int(pid))


@cache
def postgres() -> "Postgres":
    """One server for the whole run, which synchronizes its disk; it ends with the bench."""
    from postgres import Server as Postgres

    return Postgres()
