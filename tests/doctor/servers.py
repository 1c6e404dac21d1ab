"""The official SDKs as servers, in their own environments."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from interop.peers import A2A_SDK, A2A_SDK_0_3, Peer
from ports import own_port
from waiting import wait_until

SCRIPTS = Path(__file__).parents[1] / "interop" / "servers"
SCRIPT = {A2A_SDK.name: "a2a_sdk.py", A2A_SDK_0_3.name: "a2a_sdk_0_3.py"}


@contextmanager
def peer_server(peer: Peer, log: Path) -> Iterator[str]:
    """The address of an SDK's server."""
    ports = own_port(), own_port(), own_port()
    command = [*peer.start(peer.ready()), str(SCRIPTS / SCRIPT[peer.name]), *map(str, ports)]
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

    def listens() -> bool:
        assert process.poll() is None, f"no server on {port}:\n{log.read_text()}"
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    wait_until(listens)
