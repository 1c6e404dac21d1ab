"""The contract on the PostgreSQL of Debian, through a PgBouncer that assigns connections per
transaction."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest

from counts import FULL
from dragoman.store import Store, open_store
from dragoman.testing.stores import HandClock, StoreContract
from postgres import Server

BINARIES = Path("/usr/lib/postgresql/15/bin")
VARIABLE = "DRAGOMAN_TEST_PGBOUNCER"

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
        self.server = Server("fsync = off", binaries=BINARIES)
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


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="only make test-full")
@pytest.mark.skipif(not (BINARIES.exists() and which("pgbouncer")), reason="needs make debian")
class TestPooledPostgres(StoreContract):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _pooler(cls) -> Iterator[None]:
        pooler = Pooler()
        os.environ[VARIABLE] = pooler.url
        yield
        del os.environ[VARIABLE]
        pooler.stop()

    async def make(self, folder: Path, clock: HandClock) -> Store:
        name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
        more = f"schema=t_{name}&connections=4&statement_cache=off"
        return open_store(f"{os.environ[VARIABLE]}&{more}", clock=clock)
