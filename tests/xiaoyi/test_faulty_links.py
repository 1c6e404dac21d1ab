"""An agent and two servers with proxies between them that cut, delay and half-open connections,
while requests come twice: every task is answered, and its work is done once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from dragoman import Agent, Turn
from waiting import before_again, until, within
from xiaoyi.faulty_proxy import misbehave, proxied
from xiaoyi.phone import PhoneServer, phone_server, text_of
from xiaoyi.test_agent_links import linked

TASKS, SESSIONS, AT_ONCE = 200, 40, 16


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
async def test_every_task_is_done_once_and_answered_whatever_links_do(seed: int) -> None:
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
        dice = random.Random(seed)
        async with proxied(one.port, dice) as first, proxied(two.port, dice) as second:
            proxies = [first, second]
            dialled: Any = linked(
                *proxies,  # type: ignore[arg-type]  # they have a url
                agent=agent,
                pings=(0.2, 0.5),
            )
            async with dialled:
                faults = asyncio.create_task(misbehave(proxies, dice))
                room = asyncio.Semaphore(AT_ONCE)

                async def work(number: int) -> None:
                    async with room:
                        await asked(phones, number)

                async with asyncio.timeout(300):
                    await asyncio.gather(*map(work, range(TASKS)))
                faults.cancel()
            assert first.faults["cut"] + second.faults["cut"] > 5
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
