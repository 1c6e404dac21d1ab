"""The steps of the tour, and what to try after it."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from rich.console import Console

from dragoman.client import RemoteAgent, SharedSecret, connect
from dragoman.core.dialect import Wire
from dragoman.core.errors import DragomanError
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.core.model import Message, State, Task
from dragoman.net.http.mount_point import AGENTS

from .call_table import CallRecord, CallTable
from .dialects import LINKED, ROOMED, TourDialect, phone_name
from .stage import Stage

TICK = 2.0
"""The seconds between two signs of life while something is awaited."""


class Tour:
    """Shows what a gateway does, as it happens: every caller speaks to every agent through it."""

    def __init__(self, console: Console, stage: Stage) -> None:
        self.console, self.stage = console, stage
        self._by_dialect = {each.dialect.name: each for each in stage.dialects}

    async def run(self) -> None:
        """Starts everything, and runs the whole tour."""
        count, agents = len(self.stage.dialects), len(self.stage.agent_dialects)
        self.console.print("Open this in a browser, while it runs:\n")
        self.show(f"{self.stage.ports.url}/")
        async with ticking(self.console, "\nStarting the agents and the gateway ..."):
            await self.stage.start()
        self.console.print(
            f"\n[bold]The gateway[/bold] listens there (process {self.stage.gateway.pid})"
        )
        self.console.print(
            f"{count} agents run behind it (process {self.stage.agents.pid}), and it asks each of "
            f"them in another dialect"
        )
        self.console.print(
            f"One more has dialled in over a XiaoYi link (process {self.stage.linked.pid}), and "
            f"one lives in a chat room (process {self.stage.roomed.pid})"
        )
        steps: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
            (f"One question, from {agents} dialects to {agents} dialects, in ms", self.table),
            ("A stream: an A2A 0.3 caller hears an IAT agent, chunk by chunk", self.stream),
            ("A question: an IAT agent asks back, an A2A 0.1 caller answers", self.question),
            ("kill -9 on the agents in the middle of a task, then a restart", self.crash),
        )
        for number, (title, step) in enumerate(steps, 1):
            self.console.print(f"\n[bold green]{number}[/bold green] [bold]{title}[/bold]")
            await step()
        self.farewell()

    async def table(self) -> None:
        """Calls every agent in every dialect."""
        behind = self.stage.agent_dialects
        with CallTable(self.console, [each.label for each in behind]) as table:
            for caller in behind:
                async with AsyncExitStack() as stack:
                    agents = await asyncio.gather(
                        *(stack.enter_async_context(self._call(caller, each)) for each in behind)
                    )
                    for asked, agent in zip(behind, agents, strict=True):
                        table.add(await _record(caller, asked, agent))
        right, failed = len(table.records), len(table.failed)
        self.show(str(table.records[-1]))
        self.show(f"{right - failed} of {right} answers were right")

    async def stream(self) -> None:
        """Shows chunks as they arrive."""
        chunks, began = 0, time.monotonic()
        self.console.print("   ", end="")
        async with self._call(self._dialect("a2a-0.3"), self._dialect("iat")) as agent:
            async for entry in agent.stream("a story", skill="write"):
                if isinstance(entry, Stamped) and isinstance(entry.event, ArtifactChunk):
                    chunks += 1
                    self.console.print(f"[cyan]{entry.event.artifact.text}[/cyan]", end="")
        self.console.print()
        self.show(f"{chunks} chunks in {time.monotonic() - began:.1f} s")

    async def question(self) -> None:
        """Shows a question of an agent and the answer to it."""
        async with self._call(self._dialect("a2a-0.1"), self._dialect("iat")) as agent:
            task = _task(await agent.send("Kyoto", skill="trip"))
            asked = task.status.text
            self.show(f"Kyoto -> {asked}   ({task.state.value})")
            task = await agent.answer(task, "3")
            self.show(f"3 ->   ({task.state.value})\n{task.text.strip()}")

    async def crash(self) -> None:
        """Shows that a task survives the process that runs it, while its caller keeps waiting."""
        agents = self.stage.agents
        async with self._call(self._dialect("a2a-0.3"), self._dialect("a2a-1.0")) as agent:
            task = _task(await agent.send("go", skill="slow", wait=False))
            await asyncio.sleep(0.7)
            before = agents.pid
            agents.kill()
            self.show(f"task {task.id[:13]} was running; process {before} is dead")
            agents.start()
            follows = f"   process {agents.pid} takes over; the gateway follows the task again"
            async with ticking(self.console, follows):
                task = await agent.watch(task).result()
            self.show(f"{task.text}   ({task.state.value})")

    def farewell(self) -> None:
        """Shows what runs, and what to try next."""
        self.console.print("\n[bold]Try it yourself[/bold]")
        for line in self.commands():
            self.console.print(f"\n   {line}", markup=False)

    def commands(self) -> list[str]:
        """Returns commands that can be pasted into a shell."""
        dragoman, ports = program(), self.stage.ports
        iat, first = self._dialect("iat"), self._dialect("a2a-1.0")
        url = f"{ports.url}{AGENTS}"
        secret = f"IAT_SECRET={self.stage.secret}"
        body = (
            '{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{"message":{"kind":'
            '"message","messageId":"m1","role":"user","parts":[{"kind":"text","text":"a story"}],'
            '"metadata":{"skillId":"write"}}}}'
        )
        lines = [
            f"curl -s {ports.url}/metrics",
            f"curl -s {url}/{iat.name}/.well-known/agent-card.json",
            f"curl -sN {url}/{iat.name}/ -H 'Content-Type: application/json' \\\n     -d '{body}'",
            f"{dragoman} chat {url}/{iat.name}",
            f"{dragoman} send {url}/{iat.name} hello --dialect a2a-0.1",
            f"{secret} {dragoman} send {iat.address(ports, first.name)} hello --to {first.name}",
        ]
        for each in self.stage.dialects:
            if each.dialect.wire is Wire.GRPC:
                lines.append(f"{dragoman} send {each.address(ports, iat.name)} hello")
                break
        return lines

    def show(self, text: str) -> None:
        """Prints lines."""
        for line in text.splitlines():
            self.console.print(f"   {line}", markup=False)

    def _dialect(self, dialect: str) -> TourDialect:
        return self._by_dialect[dialect]

    @asynccontextmanager
    async def _call(self, caller: TourDialect, agent: TourDialect) -> AsyncIterator[RemoteAgent]:
        """Connects a caller of this dialect with the agent, through the gateway."""
        if caller is LINKED:
            yield await self.stage.phones.call(phone_name(agent))
            return
        if caller is ROOMED:
            async with connect(self.stage.hub.address(phone_name(agent))) as found:
                yield found
            return
        address = caller.address(self.stage.ports, agent.name)
        auth = SharedSecret(self.stage.secret, to=agent.name) if caller.secret else None
        dialect = None if caller.secret else caller.dialect.name
        async with connect(address, dialect=dialect, auth=auth) as found:
            yield found


@asynccontextmanager
async def ticking(console: Console, doing: str, every: float = TICK) -> AsyncIterator[None]:
    """Says what is being done and adds a dot every few seconds, so that nobody takes a slow machine
    for one that has stopped."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(every)
            console.print(".", end="")

    console.print(doing, end="", markup=False)
    ticks = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticks.cancel()
        console.print()


async def _record(caller: TourDialect, asked: TourDialect, agent: RemoteAgent) -> CallRecord:
    said, began = f"hello from {caller.label}", time.monotonic()
    answer = error = ""
    try:
        answer = _text(await agent.send(said))
        if answer != said.upper():
            error = f"the answer to {said!r} was {answer!r}"
    except DragomanError as exc:
        error = exc.message
    return CallRecord(
        caller=caller.label,
        agent=asked.label,
        said=said,
        answer=answer,
        seconds=time.monotonic() - began,
        error=error,
    )


def _text(answer: Task | Message) -> str:
    if isinstance(answer, Task) and answer.state is not State.COMPLETED:
        return f"({answer.state.value})"
    return answer.text


def _task(answer: Task | Message) -> Task:
    assert isinstance(answer, Task)  # noqa: S101  no skill of the showcase replies directly
    return answer


def program(argv: Sequence[str] = sys.argv) -> str:
    """Returns the command that runs this program: its name if that is on the path, and otherwise
    the way in which it was started."""
    called = Path(argv[0])
    if called.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m dragoman"
    found = shutil.which(called.name)
    if found and Path(found).resolve() == called.resolve():
        return called.name
    return shlex.quote(str(called))
