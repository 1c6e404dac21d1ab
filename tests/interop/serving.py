"""A real `dragoman serve` for as long as a test needs it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AGENT = Path(__file__).parent / "agent.py"


@contextmanager
def served(
    folder: Path, agent: Path = AGENT, config: str = "", *, grpc: bool = True, **env: str
) -> Iterator[str]:
    """The address of a served agent. `config` is its `dragoman.toml`, `env` what that refers to."""
    (folder / "dragoman.toml").write_text(config)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "server.log"
    command = [sys.executable, "-m", "dragoman", "serve", str(agent), "--port", str(port)]
    store = ["--store", f"sqlite:///{folder / 'tasks.db'}"]
    ports = ["--grpc-port", "0"] if grpc else []
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, *store, *ports],
            cwd=folder,
            env={k: v for k, v in os.environ.items() if not k.startswith("DRAGOMAN_")} | env,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, process, log)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError(f"the server did not get ready:\n{log.read_text()}")
