"""Replicas on one PostgreSQL and one NATS, with a proxy on every line between them.

Every replica is a process of its own, with a role of its own in the database and a clock of its
own.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from chaos.writers import create_roles, note_writers
from client.cutter import Connection, Cutter
from crash.client import Client
from crash.server import Server
from dragoman.store import open_store
from nats_server import NatsServer
from postgres import Server as Postgres
from waiting import turns

CLOCKS = ("+0s", "+60s", "-60s")
"""By how much the clocks of the replicas differ from that of the database."""
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)

LEASE = 3.0
"""Seconds. A shorter lease would run out on a loaded machine without any fault of ours."""

SETTINGS = f"""
[server]
allow_private = true
grpc = false
[push]
schedule = [0, {", ".join(["0.1"] * 300)}]
timeout = 1.0
probe = 0.2
"""


class Replica:
    """A server, and the proxies on its lines."""

    def __init__(self, server: Server, database: Cutter, bell: Cutter, door: Cutter) -> None:
        self.server = server
        self.database, self.bell, self.door = database, bell, door
        self.url = ""
        """Where its callers find it."""
        self.paused = False

    @property
    def lines(self) -> list[Cutter]:
        return [self.database, self.bell, self.door]

    def pause(self) -> None:
        """SIGSTOP."""
        self.paused = True
        self.server.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self.paused = False
        self.server.process.send_signal(signal.SIGCONT)


class Cluster:
    """All that runs."""

    def __init__(self, database: Postgres, nats: NatsServer, replicas: Sequence[Replica]) -> None:
        self.database, self.nats, self.replicas = database, nats, replicas

    @property
    def folder(self) -> Path:
        return self.replicas[0].server.folder

    @property
    def ledger(self) -> Path:
        return self.replicas[0].server.ledger

    def clients(self, make: Callable[[str], Client] = Client) -> list[Client]:
        """A caller of each replica, through its proxy."""
        return [make(replica.url) for replica in self.replicas]

    async def ready(self) -> None:
        """Returns when all replicas answer."""
        for replica in self.replicas:
            await replica.server.ready()

    def logged(self) -> str:
        """The end of what each has said."""
        return "\n".join(replica.server.logged()[-2500:] for replica in self.replicas)

    def fenced(self) -> int:
        """How many writes were refused because their writer had lost the task."""
        path = self.replicas[0].server.fenced
        return len(path.read_text().splitlines()) if path.exists() else 0


class AnyReplica(Client):
    """A caller that asks one replica after the other."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self._clients, self._next = clients, 0

    def __getattribute__(self, name: str) -> object:
        if name in ("call", "stream"):
            clients = self._clients
            self._next += 1
            return getattr(clients[self._next % len(clients)], name)
        return super().__getattribute__(name)


@asynccontextmanager
async def cluster(
    folder: Path, replicas: int, without: str = "lease,count", *, bell: bool = True
) -> AsyncIterator[Cluster]:
    """Starts everything, and ends it. Without a bell, replicas find out by themselves."""
    (folder / "dragoman.toml").write_text(SETTINGS)
    database = Postgres()
    nats = NatsServer(folder)
    made: list[Replica] = []
    listening: list[asyncio.Server] = []
    try:
        await create_roles(database.url, [f"replica{n}" for n in range(replicas)])
        await _prepare(database.url)
        for n in range(replicas):
            one = await _replica(folder, n, database, nats, without, listening)
            if not bell:
                one.server.environ["DRAGOMAN_SERVER_BELL"] = "off"
            made.append(one)
        for one in made:
            one.server.start()
        found = Cluster(database, nats, made)
        await found.ready()
        yield found
    finally:
        for one in made:
            one.server.__exit__(None, None, None)
            for line in one.lines:
                line.stop()
        for each in listening:
            each.close()
        await turns()  # what was closed has its last turn
        nats.kill()
        database.remove()


async def _prepare(dsn: str) -> None:
    """Makes the tables before there are workers, so that all of them are noted."""
    store = open_store(dsn)
    await store.open()
    await store.close()
    await note_writers(dsn)


async def _replica(
    folder: Path,
    n: int,
    database: Postgres,
    nats: NatsServer,
    without: str,
    listening: list[asyncio.Server],
) -> Replica:
    async def port_of(line: Cutter) -> int:
        server = await asyncio.start_server(line.serve, "127.0.0.1", 0)
        listening.append(server)
        return int(server.sockets[0].getsockname()[1])

    def line(to: int | Callable[[], Awaitable[Connection]]) -> Cutter:
        made = Cutter(to, n)
        made.on = False  # it cuts when it is told to
        return made

    async def to_database() -> Connection:
        return await asyncio.open_unix_connection(str(database.folder / ".s.PGSQL.5432"))

    server = Server(folder, "", without, f"replica{n}")
    found = Replica(server, line(to_database), line(nats.port), line(server.port))
    pg, bell, door = [await port_of(one) for one in found.lines]
    server.store = f"postgresql://replica{n}@127.0.0.1:{pg}/postgres?sslmode=disable"
    server.environ |= {"DRAGOMAN_LIMITS_LEASE": str(LEASE), "CRASH_ATTEMPTS": "100"}
    server.environ["DRAGOMAN_SERVER_BELL"] = f"nats://127.0.0.1:{bell}"
    if FAKETIME is not None:
        server.environ |= {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME": CLOCKS[n % len(CLOCKS)],
            # Only the wall clock differs; both names, the library changed it.
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
    found.url = f"http://127.0.0.1:{door}"
    return found
