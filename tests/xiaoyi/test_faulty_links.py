"""An agent and two servers with proxies between them that cut, delay and half-open connections,
while requests come twice: every task is answered, and its work is done once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from dragoman import Agent, Turn
from dragoman.xiaoyi import outbound_link
from waiting import before_again, until, within
from xiaoyi.phone import PhoneServer, phone_server, text_of
from xiaoyi.test_agent_links import linked

TASKS, SESSIONS, AT_ONCE = 200, 40, 16


class FaultyProxy:
    """Forwards bytes to a server, until it is told to cut or to hold everything."""

    def __init__(self, to: PhoneServer) -> None:
        self._to = to
        self._open: set[asyncio.Task[None]] = set()
        self.flows = asyncio.Event()
        """While it is not set, connections stand and no byte passes."""
        self.flows.set()
        self.port = 0
        self.cuts = 0

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/openclaw/v1/ws/link"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to.port)
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            ways = (self._pass(reader, back), self._pass(there, writer))
            await asyncio.wait(map(asyncio.ensure_future, ways), return_when="FIRST_COMPLETED")
        except asyncio.CancelledError:
            pass  # it is cut
        finally:
            self._open.discard(task)
            for each in (writer, back):
                each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                await self.flows.wait()
                writer.write(data)
                await writer.drain()

    def cut(self) -> None:
        """Cuts every connection, in the middle of whatever it carries."""
        for task in tuple(self._open):
            self.cuts += 1
            task.cancel()


@asynccontextmanager
async def proxied(phone: PhoneServer) -> AsyncIterator[FaultyProxy]:
    proxy = FaultyProxy(phone)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        proxy.flows.set()
        proxy.cut()
        server.close()


async def misbehave(proxies: list[FaultyProxy], dice: random.Random) -> None:
    """One proxy after the other cuts, or holds everything until the agent gives the link up."""
    while True:
        proxy = dice.choice(proxies)
        if dice.random() < 0.7:
            proxy.cut()
        else:
            proxy.flows.clear()
        for _ in range(dice.randint(2, 10)):
            await before_again()
        proxy.flows.set()


async def asked(phones: list[PhoneServer], number: int) -> None:
    """A phone that asks, and asks again, until it has its answer. Each server hears it, as the
    platform may send a request over both links."""
    task, session = f"tk-{number}", f"se-{number % SESSIONS}"

    def answered() -> bool:
        return any(phone.finals(task) for phone in phones)

    while not answered():
        for phone in phones if number % 3 == 0 else phones[number % 2 :][:1]:
            if phone.links:
                with suppress(Exception):  # the link is cut in this moment
                    await phone.ask(f"word {number}", task, session)
        await within(2.0, answered)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
async def test_every_task_is_done_once_and_answered_whatever_links_do(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbound_link, "PINGS", (0.2, 0.3))
    agent = Agent("Phone agent", description="Answers phones.")
    runs: Counter[str] = Counter()

    @agent.skill("talk")
    async def talk(turn: Turn) -> None:
        runs[turn.text] += 1
        await turn.artifact("echo: ", last=False)
        await before_again()
        await turn.artifact(turn.text, append=True)

    async with phone_server() as one, phone_server() as two:
        phones = [one, two]
        async with proxied(one) as first, proxied(two) as second:
            proxies = [first, second]
            async with linked(*proxies, agent=agent):  # type: ignore[arg-type]  # they have a url
                faults = asyncio.create_task(misbehave(proxies, random.Random(seed)))
                room = asyncio.Semaphore(AT_ONCE)

                async def work(number: int) -> None:
                    async with room:
                        await asked(phones, number)

                async with asyncio.timeout(300):
                    await asyncio.gather(*map(work, range(TASKS)))
                faults.cancel()
            assert first.cuts + second.cuts > 5
    for number in range(TASKS):
        finals = one.finals(f"tk-{number}") + two.finals(f"tk-{number}")
        assert {text_of(each) for each in finals} == {f"echo: word {number}"}
    assert set(runs.values()) == {1}
    assert len(runs) == TASKS


async def test_an_answer_that_the_server_asks_for_again_is_told_by_one_voice() -> None:
    agent, gate = Agent("Phone agent", description="Answers phones."), asyncio.Event()

    @agent.skill("talk")
    async def talk(turn: Turn) -> None:
        await turn.artifact("one ", last=False)
        await gate.wait()
        await turn.artifact("two ", append=True, last=False)
        await turn.artifact("three", append=True)

    async with asyncio.timeout(240), phone_server() as phone, linked(phone, agent=agent):

        def pieces() -> list[str]:
            return [text_of(each) for each in phone.results("tk-1") if "artifact" in each]

        await phone.ask("go", "tk-1")
        await until(lambda: pieces() == ["one "])
        await phone.say("tasks/resubscribe", task="tk-1", params={"id": "tk-1"})
        await until(lambda: pieces() == ["one ", "one "])  # from the beginning
        gate.set()
        await phone.final("tk-1")
        await phone.ask("go", "tk-2")
        await phone.final("tk-2")
        assert pieces()[2:].count("two ") == 1
        assert len(phone.finals("tk-1")) == 1
