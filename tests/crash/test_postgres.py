"""A server on PostgreSQL is killed, and nothing that was told is ever taken back; and it says when
its database is away. `tests/chaos` has several servers, and a database that crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.check import summary
from crash.fire import FULL, under_fire, verdict
from crash.load import Memory
from crash.postgres_check import read_postgres, unsettled_postgres
from crash.server import Server
from postgres import Server as Postgres
from postgres import store_url
from waiting import until

KILLS = 30 if FULL else 4


@pytest.mark.slow
async def test_kill_9_on_postgres(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url, memory = store_url(tmp_path), Memory()
    with Server(tmp_path, url, "lease") as server:
        await under_fire(server, memory, KILLS, 1, lambda: unsettled_postgres(url))
        counts = await verdict(server, memory, lambda: read_postgres(url), KILLS)
    with capsys.disabled():
        print(f"\n  kill -9, postgres: {summary(counts, memory)}")
    assert not memory.faults, f"{memory.faults}\n{server.logged()}"
    assert counts.acked >= 20 * KILLS
    assert counts.events_compared >= 50 * KILLS
    assert counts.streams_resumed >= 1
    assert counts.reruns >= 1
    assert counts.answers >= 1


@pytest.fixture
def database() -> Iterator[Postgres]:
    """A server of its own, to be stopped. Its disk is synchronized as in real life."""
    server = Postgres()
    yield server
    server.remove()


@pytest.mark.slow
async def test_a_server_says_that_its_database_is_away(tmp_path: Path, database: Postgres) -> None:
    with Server(tmp_path, database.url) as server:
        server.start()
        await server.ready()
        database.stop()

        async def status() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            line = await reader.readline()
            writer.close()
            return line.split()[1]

        async def away() -> bool:
            return await status() == b"503"

        await until(away)
        database.start()
        await server.ready()
