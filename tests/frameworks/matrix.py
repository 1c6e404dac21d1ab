"""How the agent frameworks get on with us, both ways: the tables of `docs/frameworks.md`.

`python tests/frameworks/matrix.py` asks all of them and writes the page.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from doctor.servers import wait_for
from dragoman import State, Task, connect
from dragoman.client import RemoteAgent
from dragoman.core.errors import Unsupported
from interop.matrix import Verdict, drawn, filled, heard
from interop.peers import AG2, AGENT_FRAMEWORK, AGNO, CREWAI, GOOGLE_ADK, STRANDS, Peer
from interop.serving import served
from ports import own_port

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "frameworks.md"
VERDICTS = HERE.parent / "interop" / "clients" / "matrix"
"""Where the scripts find `verdicts.py`."""
PATIENCE = 120.0
"""Seconds for one operation of ours: it only catches a hang."""


class Framework(NamedTuple):
    """One framework, with a script for each side it has."""

    peer: Peer
    script: str
    path: str = ""
    """Where its server has the agent."""

    @property
    def name(self) -> str:
        """In the first column: it, and the SDK that speaks for it."""
        framework, _, number = self.peer.name.rpartition("-")
        sdk = next(pin for pin in self.peer.pins if pin.startswith("a2a-sdk"))
        return f"{framework} {number} (a2a-sdk {sdk.rpartition('==')[2]})"

    @property
    def client(self) -> Path:
        return HERE / "clients" / f"{self.script}_client.py"

    @property
    def server(self) -> Path:
        return HERE / "servers" / f"{self.script}_server.py"


FRAMEWORKS = (
    Framework(GOOGLE_ADK, "google_adk"),
    Framework(CREWAI, "crewai"),
    Framework(AGENT_FRAMEWORK, "agent_framework"),
    Framework(AG2, "ag2"),
    Framework(STRANDS, "strands"),
    Framework(AGNO, "agno", "/a2a/agents/desk"),
)
THEIRS = {
    "send": "send",
    "stream": "stream",
    "answer": "question and answer",
    "answer_streamed": "the same, streamed",
}
"""What their clients do: as a script names it, and as the page does."""
Verdicts = dict[str, Verdict]


# Their clients with our server.


@contextmanager
def served_desk(folder: Path) -> Iterator[str]:
    """The address of the agent that their clients talk to."""
    with served(folder, HERE / "agent.py", grpc=False) as url:
        yield url


def ask_client(framework: Framework, url: str) -> Verdicts:
    """What their client says of every operation. Raises `PeerUnavailable`."""
    done = framework.peer.run(framework.client, str(VERDICTS), url, timeout=600)
    return heard(done, THEIRS)


# Our client with their servers.


async def _card(agent: RemoteAgent) -> None:
    assert agent.card.name == "desk", agent.card


async def _send(agent: RemoteAgent) -> None:
    task = await agent.send("hello you")
    assert isinstance(task, Task), task
    assert (task.state, task.text.strip()) == (State.COMPLETED, "HELLO YOU"), task


async def _stream(agent: RemoteAgent) -> None:
    events = agent.stream("hello you")
    told = [entry async for entry in events]
    assert told, "an empty stream"
    assert events.task is not None, told
    assert events.task.state is State.COMPLETED, told
    assert events.task.text.strip() == "HELLO YOU", told


async def _get(agent: RemoteAgent) -> None:
    task = await agent.send("hello you")
    assert isinstance(task, Task), task
    again = await agent.get(task)
    assert (again.id, again.text.strip()) == (task.id, "HELLO YOU"), again


OURS: dict[str, Callable[[RemoteAgent], Awaitable[None]]] = {
    "card": _card,
    "send": _send,
    "stream": _stream,
    "get": _get,
}
"""What our client does with their servers."""


@contextmanager
def their_server(framework: Framework, folder: Path) -> Iterator[str]:
    """The address of a server of theirs. Raises `PeerUnavailable`."""
    home, port = framework.peer.ready(), own_port()
    log = folder / f"{framework.peer.name}.log"
    command = [*framework.peer.start(home), str(framework.server), str(port)]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_for(port, process, log)
        yield f"http://127.0.0.1:{port}{framework.path}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ask_server(framework: Framework, folder: Path) -> Verdicts:
    """How each operation of our client goes with their server. Raises `PeerUnavailable`."""
    with their_server(framework, folder) as url:
        return asyncio.run(_ask_server(url))


async def _ask_server(url: str) -> Verdicts:
    verdicts: Verdicts = {}
    for name, operation in OURS.items():
        try:
            async with asyncio.timeout(PATIENCE), connect(url) as agent:
                await operation(agent)
            verdicts[name] = Verdict(True)
        except Unsupported as exc:
            verdicts[name] = Verdict(True, cannot=exc.message)
        except Exception:  # any failure is a verdict
            verdicts[name] = Verdict(False, detail=traceback.format_exc())
    return verdicts


# The page.

Table = dict[Framework, Verdicts]


def shown(clients: Table, servers: Table) -> str:
    """The part of the page that is made."""
    theirs = {framework.name: verdicts for framework, verdicts in clients.items()}
    ours = {framework.name: verdicts for framework, verdicts in servers.items()}
    columns = {name: name for name in OURS}
    first = drawn("client of", THEIRS, theirs, "the client cannot do")
    second = drawn("server of", columns, ours, "the server does not offer")
    return f"## Their clients, our server\n\n{first}\n\n## Our client, their servers\n\n{second}"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with served_desk(folder) as url:
            clients = {framework: ask_client(framework, url) for framework in FRAMEWORKS}
        servers = {framework: ask_server(framework, folder) for framework in FRAMEWORKS}
    made = shown(clients, servers)
    for table in (clients, servers):
        for framework, verdicts in table.items():
            for operation, verdict in verdicts.items():
                if not verdict.ok:
                    print(f"{framework.name}, {operation}:\n{verdict.detail}", file=sys.stderr)
    PAGE.write_text(filled(PAGE.read_text("utf-8"), made), "utf-8")
    print(made)


FULL = os.environ.get("DRAGOMAN_FULL") == "1"
TRIED = FRAMEWORKS if FULL else tuple(each for each in FRAMEWORKS if each.peer is AG2)
"""All of them with `make test-full`, the lightest one with `make test`."""


if __name__ == "__main__":
    main()
