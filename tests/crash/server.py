"""Servers in processes of their own, to be killed, paused and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from ports import own_port
from waiting import until, within

HERE = Path(__file__).parent
ENVIRON = {k: v for k, v in os.environ.items() if not k.startswith(("DRAGOMAN_", "CRASH_"))}


class Server:
    """`dragoman serve` on one port and one store, life after life.

    `without` names what `without_guarantee.py` changes in the process; empty: the real command.
    """

    def __init__(
        self,
        folder: Path,
        store: str,
        without: str = "",
        name: str = "server",
        agent: Path = HERE / "agent.py",
    ) -> None:
        self.folder, self.store, self.without, self.agent = folder, store, without, agent
        self.port = own_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.lives = 0
        self.log_path = folder / f"{name}.log"
        self.ledger = folder / "ledger"
        self.gate = folder / "gate"
        self.fenced = folder / "fenced"
        self.environ: dict[str, str] = {}
        """Variables of its own."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The life that goes on."""
        assert self._process is not None, "not started"
        return self._process

    def start(self) -> None:
        """Begins a life; ready a little later."""
        assert self._process is None or self._process.poll() is not None, "still runs"
        script = [str(HERE / "without_guarantee.py"), self.without] if self.without else []
        command = [sys.executable, *(script or ["-m", "dragoman"]), *self.arguments()]
        own = {
            "CRASH_LEDGER": str(self.ledger),
            "CRASH_GATE": str(self.gate),
            "CRASH_FENCED": str(self.fenced),
            # Processes on PostgreSQL share a key; those on files make one beside the store.
            **({"DRAGOMAN_SECRET_KEY": "k" * 32} if self.store.startswith("postgres") else {}),
            **self.environ,
        }
        with self.log_path.open("ab") as log:
            log.write(b"--- life %d\n" % self.lives)
            log.flush()
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=ENVIRON | own, stdout=subprocess.DEVNULL, stderr=log
            )
        self.lives += 1

    def arguments(self) -> list[str]:
        """The command after `dragoman`."""
        own = ["--port", str(self.port), "--store", self.store, "--log-level", "warning"]
        return ["serve", str(self.agent), *own]

    async def ready(self, seconds: float = 120.0) -> None:
        """Returns when it answers."""

        async def answers() -> bool:
            assert self.process.poll() is None, self.logged()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(
                    b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                )
                line = await reader.readline()
                writer.close()
            except OSError:
                return False
            return b" 200 " in line

        ready = await within(seconds, answers)
        assert ready, f"not ready after {seconds} s\n{self.logged()}"

    def kill(self) -> None:
        """`kill -9`, wherever it stands."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    async def stop(self, seconds: float = 120.0) -> tuple[int, float]:
        """SIGTERM: the exit code and the seconds it took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            await until(lambda: self.process.poll() is not None, seconds)
        except AssertionError as exc:
            raise AssertionError(f"does not stop\n{self.logged()}") from exc
        return self.process.returncode, time.monotonic() - began

    async def pause(self, db: Path) -> None:
        """SIGSTOP, but not in the middle of a commit: that would only hold everyone up."""
        for _ in range(500):
            self.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.005)  # it stops a moment later
            if _writable(db):
                return
            self.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.011)  # it commits what it has begun
        raise AssertionError("it was always committing")

    def go_on(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def logged(self) -> str:
        """The end of what it said."""
        return self.log_path.read_text("utf-8", "replace")[-4000:]

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


def _writable(db: Path) -> bool:
    connection = sqlite3.connect(db, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True
