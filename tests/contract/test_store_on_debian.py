"""The contract, random histories and kills on the PostgreSQL of Debian, through a PgBouncer that
assigns connections per transaction."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest
from hypothesis import HealthCheck, settings

from counts import FULL
from crash.check import summary
from crash.fire import under_fire, verdict
from crash.load import Memory
from crash.postgres_check import read_postgres, unsettled_postgres
from crash.server import Server
from dragoman.store import Store, open_store
from dragoman.testing.stores import HandClock, StoreContract
from postgres import Server as Postgres
from store.test_machine import Machine

BINARIES = Path("/usr/lib/postgresql/15/bin")
VARIABLE = "DRAGOMAN_TEST_PGBOUNCER"
KILLS = 5

_SETTINGS = """
[databases]
postgres = host={folder} dbname=postgres user=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}/pooled
auth_type = any
pool_mode = transaction
default_pool_size = 8
max_client_conn = 500
"""


class Pooler:
    """PostgreSQL 15 with a PgBouncer in front of it."""

    def __init__(self) -> None:
        self.server = Postgres("fsync = off", binaries=BINARIES)
        folder = self.server.folder
        pooled = folder / "pooled"
        pooled.mkdir()
        pooled.chmod(0o777)
        settings = folder / "pgbouncer.ini"
        settings.write_text(_SETTINGS.format(folder=folder))
        settings.chmod(0o644)
        with (folder / "pgbouncer.log").open("wb") as log:
            self.process = subprocess.Popen(
                ["pgbouncer", str(settings)], user=self.server.user, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 60
        while not (pooled / ".s.PGSQL.6432").exists():
            assert time.monotonic() < deadline, (folder / "pgbouncer.log").read_text()
            assert self.process.poll() is None, (folder / "pgbouncer.log").read_text()
        self.url = f"postgresql://postgres@/postgres?host={pooled}&port=6432"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.server.remove()


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FULL, reason="only make test-full"),
    pytest.mark.skipif(not (BINARIES.exists() and which("pgbouncer")), reason="needs make debian"),
]


@pytest.fixture(scope="module", autouse=True)
def pooler() -> Iterator[Pooler]:
    made = Pooler()
    os.environ[VARIABLE] = made.url
    yield made
    del os.environ[VARIABLE]
    made.stop()


def schema_of(folder: Path) -> str:
    return f"schema=t_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


def pooled(folder: Path) -> str:
    return f"{os.environ[VARIABLE]}&{schema_of(folder)}&connections=4&statement_cache=off"


class TestPooledPostgres(StoreContract):
    async def make(self, folder: Path, clock: HandClock) -> Store:
        return open_store(pooled(folder), clock=clock)


class PooledMachine(Machine):
    durable = True

    async def _make(self, folder: Path, clock: HandClock) -> Store:
        return open_store(pooled(folder), clock=clock)


PooledMachine.TestCase.settings = settings(
    max_examples=50,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestPooledMachine = PooledMachine.TestCase


async def test_kill_9_on_pooled_postgres(
    tmp_path: Path, pooler: Pooler, capsys: pytest.CaptureFixture[str]
) -> None:
    direct, memory = f"{pooler.server.url}&{schema_of(tmp_path)}", Memory()
    with Server(tmp_path, pooled(tmp_path), "lease") as server:
        server.environ["DRAGOMAN_SERVER_BELL"] = direct  # it cannot listen through the pooler
        await under_fire(server, memory, KILLS, 1, lambda: unsettled_postgres(direct))
        counts = await verdict(server, memory, lambda: read_postgres(direct), KILLS)
    with capsys.disabled():
        print(f"\n  kill -9, PostgreSQL 15 and PgBouncer: {summary(counts, memory)}")
    assert not memory.faults, f"{memory.faults}\n{server.logged()}"
    assert counts.acked >= 20 * KILLS
    assert counts.reruns >= 1
