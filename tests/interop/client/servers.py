"""The servers of others, each started in an environment of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from doctor.servers import wait_for
from interop.peers import A2A_GO, A2A_JS, A2A_SDK, A2A_SDK_0_3, FASTA2A, PYTHON_A2A, Peer
from ports import own_port

SCRIPTS = Path(__file__).parents[2] / "interop" / "servers"
BINDINGS = {"JSONRPC": "JSON-RPC", "HTTP+JSON": "REST", "GRPC": "gRPC"}
SUFFIX = {"JSONRPC": "", "HTTP+JSON": "-rest", "GRPC": "-grpc"}


class Server(NamedTuple):
    """One SDK, the script that serves an agent with it (or what a compiled program calls that),
    and what it speaks."""

    name: str
    peer: Peer
    script: str
    versions: tuple[str, ...]
    bindings: tuple[str, ...] = ("JSONRPC",)
    dialect: str = ""
    """What our client calls what it speaks, if that is no version of A2A."""


SERVERS = (
    Server("a2a-sdk 1.3.0", A2A_SDK, "a2a_sdk.py", ("1.0", "0.3"), tuple(BINDINGS)),
    Server("a2a-sdk 0.3.26", A2A_SDK_0_3, "a2a_sdk_0_3.py", ("0.3",), tuple(BINDINGS)),
    Server("@a2a-js/sdk 1.3.0", A2A_JS, "a2a_js.mjs", ("1.0", "0.3"), tuple(BINDINGS)),
    Server("a2a-go 2.4.0", A2A_GO, "agent", ("1.0", "0.3"), tuple(BINDINGS)),
    Server("fasta2a 2.1.1", FASTA2A, "fasta2a_server.py", ("1.0",)),
    Server("python-a2a 0.5.10", PYTHON_A2A, "python_a2a_server.py", ("0.1",), dialect="python-a2a"),
)


class Row(NamedTuple):
    """One server in one version and binding."""

    server: Server
    version: str
    binding: str

    @property
    def name(self) -> str:
        """In the first column."""
        return f"{self.server.name}, A2A {self.version}, {BINDINGS[self.binding]}"

    @property
    def dialect(self) -> str:
        """What our client calls it."""
        return self.server.dialect or f"a2a-{self.version}{SUFFIX[self.binding]}"


ROWS = [
    Row(server, version, binding)
    for server in SERVERS
    for version in server.versions
    for binding in server.bindings
]


class Running(NamedTuple):
    """A server that listens."""

    url: str
    ports: dict[str, int]
    """By binding."""


@contextmanager
def running(server: Server, folder: Path) -> Iterator[Running]:
    """Starts a server, and stops it. Raises `PeerUnavailable`."""
    home = server.peer.ready()
    ports = {binding: own_port() for binding in server.bindings}
    compiled = server.peer.sources is not None
    script = server.script if compiled else str(SCRIPTS / server.script)
    command = [server.peer.start(home)[0], script]
    if server.script.endswith(".mjs"):
        command.append(str(home))
    log = folder / f"{server.peer.name}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, *map(str, ports.values())], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        for port in ports.values():
            wait_for(port, process, log)
        yield Running(f"http://127.0.0.1:{ports['JSONRPC']}", ports)
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Started:
    """Servers that were asked for, started once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, Running] = {}
        self._stack = ExitStack()

    def __getitem__(self, server: Server) -> Running:
        if server.name not in self._running:
            started = running(server, self._folder)
            self._running[server.name] = self._stack.enter_context(started)
        return self._running[server.name]

    def stop(self) -> None:
        """Stops all of them."""
        self._stack.close()
