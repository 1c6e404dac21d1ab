"""Our agent on links to two of our own gateways, with proxies between them that cut, delay and
half-open connections and bring requests twice: every task is done and answered once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from counts import count
from dragoman import Agent, State, Task, Turn
from dragoman.client import connect
from dragoman.core.errors import DragomanError
from dragoman.core.events import Stamped, StateChanged
from dragoman.core.lifecycle import FINAL
from dragoman.xiaoyi import outbound_link
from dragoman.xiaoyi.outbound_link import SigningKeys
from waiting import before_again, until
from xiaoyi.links import AGENT, PATH, Gateway, gateway
from xiaoyi.test_agent_links import linked

TASKS = count(6, 20, 200)
SESSIONS, AT_ONCE = 10, 8
TEXT = 0x81
"""The first byte of a whole text message (RFC 6455 §5.2)."""


class Way:
    """One connection of the agent, and ours to the gateway for it."""

    def __init__(self, agent: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.agent, self.server = agent, server
        self.half_open = False


class FaultyProxy:
    """Forwards bytes between an agent and a gateway, and does them harm."""

    def __init__(self, to: Gateway, dice: random.Random) -> None:
        self._to, self._dice = int(to.url.rpartition(":")[2]), dice
        self._ways: set[Way] = set()
        self.flows = asyncio.Event()
        """While it is not set, connections stand and no byte passes."""
        self.flows.set()
        self.faults: Counter[str] = Counter()
        self.port = 0

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}{PATH}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        way = Way(writer, back)
        self._ways.add(way)
        up = asyncio.create_task(self._up(reader, way))
        try:
            await self._down(there, way)
        except (OSError, asyncio.IncompleteReadError):
            pass  # one of the two is gone
        finally:
            self._ways.discard(way)
            up.cancel()
            for each in (writer, back):
                each.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, way: Way) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self.flows.wait()
                way.server.write(data)
                await way.server.drain()
        if not way.half_open:
            way.server.transport.abort()

    async def _down(self, reader: asyncio.StreamReader, way: Way) -> None:
        """What the gateway says, frame by frame; some requests come twice."""
        frame = await reader.readuntil(b"\r\n\r\n")
        while True:
            await self.flows.wait()
            if not way.half_open:
                way.agent.write(frame)
                if frame[0] == TEXT and self._dice.random() < 0.3:
                    self.faults["twice"] += 1
                    way.agent.write(frame)
                await way.agent.drain()
            head = await reader.readexactly(2)
            more = {126: 2, 127: 8}.get(head[1], 0)
            size = await reader.readexactly(more)
            frame = head + size
            frame += await reader.readexactly(int.from_bytes(size) if more else head[1])

    def cut(self) -> None:
        """Cuts every connection, with all that is on its way."""
        for way in self._ways:
            self.faults["cut"] += 1
            way.agent.transport.abort()
            way.server.transport.abort()

    def half_open(self) -> None:
        """Loses the agent, of which the gateway hears nothing: what it says goes nowhere."""
        for way in self._ways:
            if not way.half_open:
                self.faults["half-open"] += 1
                way.half_open = True
                way.agent.transport.abort()


@asynccontextmanager
async def proxied(to: Gateway, dice: random.Random) -> AsyncIterator[FaultyProxy]:
    proxy = FaultyProxy(to, dice)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        proxy.flows.set()
        proxy.cut()
        server.close()


async def misbehave(proxies: list[FaultyProxy], dice: random.Random) -> None:
    """One proxy after the other cuts, holds everything, or half-opens its connections."""
    while True:
        proxy = dice.choice(proxies)
        match dice.choice(("cut", "cut", "hold", "half-open")):
            case "cut":
                proxy.cut()
            case "hold":
                proxy.faults["hold"] += 1
                proxy.flows.clear()
            case _:
                proxy.half_open()
        for _ in range(dice.randint(2, 10)):
            await before_again()
        proxy.flows.set()


async def asked(caller: Any, number: int) -> Task:
    """A caller that waits for the end of its task."""

    async def opened() -> Any:
        with suppress(DragomanError):  # the agent has no link now
            return await caller.send(
                f"word {number}", context_id=f"se-{number % SESSIONS}", wait=False
            )

    task = await until(opened)

    async def ended() -> Task | None:
        found: Task = await caller.get(task)
        return found if found.state in FINAL else None

    found: Task = await until(ended, 240)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
async def test_every_task_of_two_gateways_is_answered_once_whatever_links_do(
    seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(outbound_link, "PINGS", (0.5, 1.5))
    agent = Agent("Phone agent", description="Answers phones.")
    runs: Counter[str] = Counter()

    @agent.skill("talk")
    async def talk(turn: Turn) -> None:
        runs[turn.text] += 1
        await turn.artifact("echo: ", last=False)
        for letter in turn.text:
            await before_again()
            await turn.artifact(letter, append=True, last=False)

    dice = random.Random(seed)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(1200))
        doors = [await stack.enter_async_context(gateway(idle=5.0)) for _ in range(2)]
        ak, sk = doors[0].ak, doors[0].sk  # the platform has one pair for all its servers
        await doors[1].service.ring.keep(ak, sk, [AGENT])
        proxies = [await stack.enter_async_context(proxied(door, dice)) for door in doors]
        dialled: Any = linked(
            *proxies,  # type: ignore[arg-type]  # they have a url
            keys=SigningKeys(AGENT, ak, sk),
            agent=agent,
            heartbeat=0.5,
        )
        await stack.enter_async_context(dialled)
        for door in doors:
            await door.appears()
        callers = [
            await stack.enter_async_context(connect(f"{door.url}/agents/{AGENT}")) for door in doors
        ]
        room = asyncio.Semaphore(AT_ONCE)

        async def work(number: int) -> None:
            caller = callers[number % 2]
            async with room:
                task = await asked(caller, number)
            assert (task.state, task.text) == (State.COMPLETED, f"echo: word {number}"), task
            told = [each.event async for each in caller.watch(task, 0) if isinstance(each, Stamped)]
            ends = [e for e in told if isinstance(e, StateChanged) and e.state in FINAL]
            assert len(ends) == 1

        faults = asyncio.create_task(misbehave(proxies, dice))
        try:
            await asyncio.gather(*map(work, range(TASKS)))
        finally:
            faults.cancel()
    seen = proxies[0].faults + proxies[1].faults
    with capsys.disabled():
        print(f"\n  cut links: {TASKS} tasks, {dict(seen)}")
    assert runs == {f"word {number}": 1 for number in range(TASKS)}
    assert seen.total() >= 2  # how many of each kind is up to the dice and the machine
