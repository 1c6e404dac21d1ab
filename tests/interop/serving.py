"""A real `dragoman serve` for as long as a test needs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ports import own_port
from waiting import LIMIT, wait_until

AGENT = Path(__file__).parent / "agent.py"


@contextmanager
def served(
    folder: Path, *agents: Path | str, config: str = "", grpc: bool = True, **env: str
) -> Iterator[str]:
    """The address of a served agent, or of several. `config` is its `dragoman.toml`, `env` what
    that refers to."""
    (folder / "dragoman.toml").write_text(config)
    port = own_port()
    log = folder / "server.log"
    files = map(str, agents or (AGENT,))
    command = [sys.executable, "-m", "dragoman", "serve", *files, "--port", str(port)]
    store = ["--store", f"sqlite:///{folder / 'tasks.db'}"]
    ports = ["--grpc-port", "0"] if grpc else ["--no-grpc"]
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
    def ready() -> bool:
        assert process.poll() is None, f"the server did not get ready:\n{log.read_text()}"
        with suppress(OSError), urllib.request.urlopen(f"{url}/readyz", timeout=LIMIT):
            return True
        return False

    wait_until(ready)
