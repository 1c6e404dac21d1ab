"""A gateway and its upstreams in processes of their own, and callers in two dialects."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec import Struct

from crash.check import Kept, check_kept, check_told, count, read_sqlite, text_of, unsettled_sqlite
from crash.client import Client, Refused, RestClient, message, sending
from crash.load import TASK_FINISHED, Load, Memory
from crash.server import Server
from dragoman.agent.remote_calls import SENT, StartedCall
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import State

HERE = Path(__file__).parent
AGENT = HERE / "recording_agent.py"
HONEST = ("try again later", "nobody can tell whether")
"""What a caller is told that gets no task."""


class Gateway(Server):
    """`dragoman gateway` on one port and a SQLite store, life after life."""

    def __init__(self, folder: Path, agents: dict[str, tuple[Server, str]]) -> None:
        """`agents` are served by these servers, each with more lines for its section."""
        self.db = folder / "gateway.db"
        super().__init__(folder, f"sqlite:///{self.db}", name="gateway")
        self.toml = folder / "dragoman.toml"
        text = f'[server]\nstore = "{self.store}"\nport = {self.port}\n'
        for name, (server, more) in agents.items():
            text += f'[agents.{name}]\nurl = "{server.url}"\nprobe = 0.5\n{more}\n'
        self.toml.write_text(text)
        self.agents = agents

    def arguments(self) -> list[str]:
        """The command after `dragoman`."""
        return ["gateway", str(self.toml)]

    def unsettled(self) -> int:
        """How many tasks neither ended nor wait for their caller."""
        return unsettled_sqlite(self.db)

    def clients(self, name: str) -> list[Client]:
        """The ways to an agent here."""
        url = self.url if len(self.agents) == 1 else f"{self.url}/agents/{name}"
        return [Client(url), RestClient(url)]


class Upstream(Server):
    """`dragoman serve` with an agent that records what it executes."""

    def __init__(self, folder: Path, name: str, without: str = "", store: str = "") -> None:
        self.db = folder / f"{name}.db"
        store = store or f"sqlite:///{self.db}"
        super().__init__(folder, store, without=without, name=name, agent=AGENT)
        self.ledger = folder / f"{name}.ledger"

    def executions(self) -> list[tuple[str, str, int]]:
        """The call, the task and the attempt of every execution."""
        path = Path(f"{self.ledger}.executions")
        lines = path.read_text().splitlines() if path.exists() else []
        return [(call, task_id, int(n)) for call, task_id, n in map(str.split, lines)]


class Servers:
    """Several servers that live and die together."""

    def __init__(self, *servers: Server) -> None:
        self.servers = servers

    def start(self) -> None:
        for each in self.servers:
            each.start()

    async def begin(self) -> None:
        self.start()
        await self.ready()

    async def ready(self) -> None:
        for each in self.servers:
            await each.ready()

    def kill(self) -> None:
        for each in self.servers:
            each.kill()


class GatewayLoad(Load):
    """Callers of one agent at a gateway. Each request is made in one of two dialects."""

    def __init__(
        self, gateway: Gateway, name: str, seed: int, reasons: Sequence[str] = (), only: str = ""
    ) -> None:
        super().__init__(gateway.clients(name), Memory(), seed)
        self.name = name
        self.memory.reasons = frozenset(reasons)
        self.refused = Counter[str]()
        if only:
            self._quick = self._long = [getattr(self, only)]

    async def keyed(self) -> None:
        """A send with a key of the caller's, again and again until it is answered."""
        key, text = uuid4().hex, uuid4().hex
        said = sending(message(text, uuid4().hex, "echo"))
        answer = await self._surely("SendMessage", said, idempotency_key=key)
        task_id = self.memory.ack(answer["task"], "keyed")
        self.memory.keys.setdefault(key, set()).add(task_id)
        self.memory.expected[task_id] = text.upper()

    def is_honest(self, exc: Refused) -> bool:
        """Whether the caller is told that the agent is away, or that nobody can know."""
        said = next((each for each in HONEST if each in str(exc)), "")
        if not said and exc.code == TASK_FINISHED and self.memory.reasons:
            said = "the task has failed"
        self.refused[said] += bool(said)
        return bool(said)


class Loads:
    """The callers of several agents."""

    def __init__(self, *loads: GatewayLoad, quick: int = 2, pace: float = 3.0) -> None:
        self.loads, self._quick, self._pace = loads, quick, pace
        self.enough = asyncio.Event()

    async def run(self) -> None:
        """Returns when all that was begun came to its end."""
        async with asyncio.TaskGroup() as group:
            for load in self.loads:
                load.enough = self.enough
                group.create_task(load.run(self._quick, self._pace))


class Figures(Struct):
    """What became of the calls of one agent, beside the usual counts."""

    executed: int = 0
    """Calls that were executed."""
    executed_twice: int = 0
    """Calls that opened more than one task at the upstream."""
    run_again: int = 0
    """Tasks that the upstream itself resumed after it was killed."""
    followed: int = 0
    """Tasks here that know their task there."""
    canceled: int = 0
    left_running: int = 0

    def __str__(self) -> str:
        return " ".join(
            f"{k.replace('_', '-')}={v}" for k, v in msgspec.structs.asdict(self).items()
        )


async def verdict(
    gateway: Gateway, load: GatewayLoad, kills: int, upstream: Upstream, *, repeat: bool = False
) -> str:
    """Over HTTP while both run; then from the disk. Adds faults to the memory of the load, and
    gives the figures."""
    memory = load.memory
    kept = {k: v for k, v in read_sqlite(gateway.db).items() if v.agent == load.name}
    compared = await check_told(memory, kept, gateway.clients(load.name)[0])
    check_kept(memory, kept, None)
    figures = check_executions(memory, kept, upstream, repeat=repeat)
    counts = count(memory, kept, gateway.ledger, kills, compared)
    failed, refused = dict(memory.failed), dict(load.refused)
    return f"{load.name}: {counts} {figures} failed={failed} refused={refused}" + (
        f"\n  violations: {dict(memory.faults.kinds)}" if memory.faults else ""
    )


def check_executions(
    memory: Memory, kept: dict[str, Kept], upstream: Upstream, *, repeat: bool
) -> Figures:
    """What was executed, and that both sides tell the same of it."""
    faults, found = memory.faults, Figures()
    there = {} if upstream.store.startswith("memory:") else read_sqlite(upstream.db)
    tasks, attempts = defaultdict[str, set[str]](set), Counter[str]()
    for call, task_id, _ in upstream.executions():
        tasks[call].add(task_id)
        attempts[task_id] += 1
    ours = {call_of(each) for each in kept.values()}
    found.executed = sum(1 for call in tasks if call in ours)
    for call, ids in tasks.items():
        if call in ours and len(ids) > 1:
            found.executed_twice += 1
            if not repeat:
                faults.add("executed twice", f"{call} {ids}")
    found.run_again = sum(1 for times in attempts.values() if times > 1)
    if upstream.lives == 1 and found.run_again:
        faults.add("run again", found.run_again)
    for one in kept.values():
        remote = remote_id(one)
        if not remote:
            if one.state is State.COMPLETED:
                faults.add("completed by nobody", one.task_id)
            continue
        found.followed += 1
        if one.state is State.COMPLETED and not tasks[call_of(one)]:
            faults.add("completed, never executed", one.task_id)
        other = there.get(remote)
        if other is None:
            if there:
                faults.add("followed a task that is not there", f"{one.task_id} {remote}")
            continue
        found.canceled += one.state is State.CANCELED
        if one.state in FINAL and other.state not in FINAL:
            found.left_running += 1
            faults.add("left running", f"{one.task_id} {one.state}: {remote} {other.state}")
        if one.state is State.COMPLETED and text_of(one.fold()) != text_of(other.fold()):
            faults.add("not what the agent said", f"{one.task_id} {remote}")
    return found


def call_of(one: Kept) -> str:
    """The caller's own name of the call that opened a task."""
    metadata = one.fold().history[0].metadata or {}
    return str(metadata["call"])


def remote_id(one: Kept) -> str:
    """The task at the upstream that a task here follows."""
    for key, value in one.records:
        if key.startswith(f"{SENT}:"):
            return msgspec.json.decode(value, type=StartedCall).task_id
    return ""
