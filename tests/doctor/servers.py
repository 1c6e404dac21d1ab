"""The official SDKs as servers, in environments of their own beside those of the clients."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from interop.peers import Peer, _build_venv, _start_python

HERE = Path(__file__).parent
NEW = Peer(
    name="a2a-sdk-1.3.0-server",
    pins=("a2a-sdk[grpc,http-server]==1.3.0", "uvicorn==0.54.0", "protobuf==7.36.2"),
    build=_build_venv,
    start=_start_python,
)
OLD = Peer(
    name="a2a-sdk-0.3.26-server",
    pins=("a2a-sdk[grpc,http-server]==0.3.26", "uvicorn==0.54.0"),
    build=_build_venv,
    start=_start_python,
)
SCRIPTS = {NEW.name: HERE / "sdk_1_3_server.py", OLD.name: HERE / "sdk_0_3_server.py"}


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def peer_server(peer: Peer, log: Path) -> Iterator[str]:
    """The address of an SDK's server."""
    ports = free_port(), free_port(), free_port()
    command = [*peer.start(peer.ready()), str(SCRIPTS[peer.name]), *map(str, ports)]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        for port in ports:
            wait_for(port, process, log)
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns when something listens there."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError(f"no server on {port}:\n{log.read_text()}")
