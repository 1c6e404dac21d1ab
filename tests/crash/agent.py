"""The agent under fire: each skill says something that can be checked to the letter afterwards.

`CRASH_ATTEMPTS` says how often a skill may start, where processes die more often than in life.
`CRASH_LEDGER` names a file in which every execution of a step leaves a line, whatever becomes of
the process after it; `CRASH_GATE` one that a `wait` skill waits for.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial
from uuid import uuid4

from dragoman import Agent, Turn

agent = Agent("Crash", description="Runs while it is shot at.")
skill = partial(agent.skill, max_attempts=int(os.environ.get("CRASH_ATTEMPTS", "10")))


@skill("echo", default=True)
async def echo(turn: Turn) -> str:
    return turn.text.upper()


@skill("count")
async def count(turn: Turn) -> AsyncIterator[str]:
    """`100 0.03`: a hundred chunks, 30 ms apart."""
    number, pause = turn.text.split()
    for n in range(int(number)):
        yield f"{n} "
        await asyncio.sleep(float(pause))  # its work


@skill("steps")
async def steps(turn: Turn) -> AsyncIterator[str]:
    """`4 0.05`: four steps of 50 ms; the result is what they gave."""
    number, pause = turn.text.split()
    for n in range(int(number)):
        yield await turn.step(f"s{n}", work, turn.task_id, n, float(pause)) + " "


@skill("ask")
async def ask(turn: Turn) -> str:
    first = await turn.ask("First?")
    await turn.say(f"You said {first}")
    second = await turn.ask("Second?")
    sure = await turn.approve("Sure?")
    return f"{first} {second} {sure}"


@skill("login")
async def login(turn: Turn) -> str:
    """Asks for credentials, and tells only how long they are. `slow`: hears them, then waits."""
    given = await turn.need_auth({"basic": {}})
    while turn.text == "slow":
        await asyncio.sleep(0.05)  # its work
        if os.path.exists(os.environ["CRASH_GATE"]):  # noqa: ASYNC240
            break
    return str(len(str(given)))


@skill("mixed")
async def mixed(turn: Turn) -> None:
    """Words, an artifact that grows between steps, and a question in the middle."""
    await turn.say("One")
    await turn.artifact("a ", name="report", last=False)
    await asyncio.sleep(0.05)  # its work
    first = await turn.step("m0", work, turn.task_id, 0, 0.05)
    await turn.artifact(f"{first} ", name="report", append=True, last=False)
    await turn.say("Two")
    word = await turn.ask("Word?")
    await turn.artifact(f"{word} ", name="report", append=True, last=False)
    await asyncio.sleep(0.05)  # its work
    second = await turn.step("m1", work, turn.task_id, 1, 0.05)
    await turn.artifact(f"{second} ", name="report", append=True, last=False)
    await asyncio.sleep(0.05)  # its work
    await turn.artifact("z", name="report", append=True)
    await turn.say("Three")


@skill("talk")
async def talk(turn: Turn) -> AsyncIterator[str]:
    """Questions and steps between chunks of one artifact."""
    yield "a "
    yield await turn.ask("Word?") + " "
    yield "b "
    yield await turn.step("t0", work, turn.task_id, 0, 0.03) + " "
    yield "c "
    yield await turn.step("t1", work, turn.task_id, 1, 0.0) + " "
    await asyncio.sleep(0.05)  # its work
    yield "d "
    yield await turn.ask("Word?")


@skill("wait")
async def wait(turn: Turn) -> AsyncIterator[str]:
    """Goes on until the gate is open, then tells its attempt."""
    while not os.path.exists(os.environ["CRASH_GATE"]):  # noqa: ASYNC240
        yield ". "
        await asyncio.sleep(0.05)  # its work
    yield f"attempt {turn.attempt}"


async def work(task_id: str, n: int, pause: float) -> str:
    """A step that cannot be taken back: it leaves a line first, then takes its time."""
    value = uuid4().hex[:12]
    ledger = os.open(os.environ["CRASH_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(ledger, f"{task_id} {n} {value}\n".encode())
    finally:
        os.close(ledger)
    await asyncio.sleep(pause)  # its work
    return value
