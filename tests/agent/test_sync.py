"""Plain functions and generators run in a thread, with the same turn and blocking verbs."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from dragoman import Agent, Answer, State, SyncTurn
from dragoman.testing import Client
from engine.harness import EngineHarness, checked, ended, story, until
from waiting import LIMIT


async def test_a_plain_function_gives_its_result() -> None:
    agent, threads = Agent("Plain"), list[threading.Thread]()

    @agent.skill("shout")
    def shout(turn: SyncTurn) -> str:
        threads.append(threading.current_thread())
        return turn.text.upper()

    async with Client(agent) as client:
        assert (await client.send("hi")).text == "HI"
    assert threads[0] is not threading.main_thread()


async def test_a_plain_generator_gives_chunks() -> None:
    agent = Agent("Plain")

    @agent.skill("count")
    def count(turn: SyncTurn) -> Generator[str, None, None]:
        for number in range(3):
            yield str(number)

    async with Client(agent) as client:
        task = await client.send("go")
        assert task.text == "012"
        chunks = story(await checked(client, task.id))[2:-1]
        assert chunks[:3] == ["=result:0", "+result:1", "+result:2"]
        assert chunks[-1].endswith("!")


async def test_all_verbs_block() -> None:
    agent = Agent("Plain")

    @agent.skill("do")
    def do(turn: SyncTurn, word: str) -> str:
        turn.say("hello")
        turn.think("hm")
        turn.log("line", n=1)
        turn.usage(tokens=1)
        turn.progress(0.5)
        turn.artifact("side", name="side")
        found = turn.step("look up", lambda: {"n": 1})
        answer = turn.ask("Well?")
        assert isinstance(answer, Answer)
        sure = turn.approve("Sure?")
        secret = turn.need_auth({"basic": {}})
        said = [message.text for message in turn.conversation()]
        assert [message.text for message in turn.history] == said
        assert turn.attempt == 1
        assert turn.skill == "do"
        assert not turn.cancelled
        assert turn.key("x").endswith(":x")
        return f"{word} {found} {answer} {sure} {secret}"

    async with Client(agent) as client:
        task = await client.send("word")
        for answer in ("because", "yes", "pw"):
            assert task.state in (State.INPUT_REQUIRED, State.AUTH_REQUIRED)
            task = await client.send(answer, task=task)
        assert task.text == "side\nword {'n': 1} because True pw"
        await checked(client, task.id)


async def test_errors_are_raised_in_the_thread() -> None:
    agent, caught = Agent("Plain"), list[str]()

    @agent.skill("do")
    def do(turn: SyncTurn) -> str:
        try:
            turn.progress(7)
        except Exception as exc:
            caught.append(type(exc).__name__)
        try:
            turn.call_tool("weather")
        except Exception as exc:
            caught.append(type(exc).__name__)
        raise turn.reject("No")

    async with Client(agent) as client:
        assert (await client.send("go")).state is State.REJECTED
    assert caught == ["AgentMisbehaved", "Unsupported"]


async def test_plain_functions_block_nobody() -> None:
    agent = Agent("Plain")
    together, go = threading.Barrier(8), threading.Event()
    blocked: list[int] = []

    @agent.skill("block")
    def block(turn: SyncTurn) -> str:
        together.wait(LIMIT)
        blocked.append(1)
        return "went" if go.wait(LIMIT) else "stayed"

    @agent.skill("quick")
    async def quick(turn: object) -> str:
        return "quick"

    async with Client(agent) as client:
        tasks = [asyncio.ensure_future(client.send("go", skill="block")) for _ in range(8)]
        await until(lambda: len(blocked) == 8)
        assert (await client.send("go", skill="quick")).text == "quick"
        go.set()
        assert {task.text for task in await asyncio.gather(*tasks)} == {"went"}


async def test_a_run_that_never_ends_in_a_thread_is_left_behind() -> None:
    agent, free, ended = Agent("Plain"), threading.Event(), threading.Event()

    @agent.skill("hang", timeout=0.1)
    def hang(turn: SyncTurn) -> str:
        free.wait(LIMIT)
        turn.say("after the end")
        turn.step("after the end", lambda: None)
        ended.set()
        return "too late"

    async with Client(agent) as client:
        task = await client.send("go")
        assert task.state is State.FAILED
        free.set()
        await until(ended.is_set)
        assert await client.get(task.id) == task


async def test_a_plain_function_runs_again_after_a_crash(memory: EngineHarness) -> None:
    agent, did, hang = Agent("Plain"), list[str](), threading.Event()

    @agent.skill("do")
    def do(turn: SyncTurn) -> str:
        turn.say("one")
        turn.step("a", did.append, "a")
        if not hang.is_set():
            hang.wait(LIMIT)
        return f"done in attempt {turn.attempt}"

    client = memory.client(agent)
    await client.engine.start()
    task = await client.send("go", wait=False)
    await until(lambda: did)
    client = await memory.restart(client)
    hang.set()
    task = await ended(client, task.id)
    assert task.text == "done in attempt 2"
    assert did == ["a"]
    assert [m.text for m in task.history] == ["go", "one"]
    await checked(client, task.id)
    await client.engine.stop(0)


NAME = contextvars.ContextVar("NAME", default="")


async def test_context_variables_come_along() -> None:
    agent = Agent("Plain")

    @agent.skill("name")
    def name(turn: SyncTurn) -> str:
        return NAME.get()

    NAME.set("trace-1")
    async with Client(agent) as client:
        assert (await client.send("go")).text == "trace-1"


async def test_a_plain_generator_is_closed_when_it_is_canceled() -> None:
    agent, begun, closed = Agent("Plain"), threading.Event(), threading.Event()

    @agent.skill("count")
    def count(turn: SyncTurn) -> Generator[str, None, None]:
        try:
            for number in range(100_000):
                time.sleep(0.002)  # it counts slowly
                yield str(number)
                begun.set()
        finally:
            closed.set()

    async with Client(agent) as client:
        task = await client.send("go", wait=False)
        await until(begun.is_set)
        assert (await client.cancel(task.id)).state is State.CANCELED
        await until(closed.is_set)


SCRIPT = """
import asyncio
from dragoman import Agent
from dragoman.testing import Client

agent = Agent("Plain")

@agent.skill("ask")
def ask(turn):
    return turn.ask("Well?")

async def main():
    async with Client(agent) as client:
        task = await client.send("go")
        print(task.state.value, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow  # starts a process
def test_a_waiting_plain_function_does_not_keep_the_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.returncode) == ("input-required\n", 0), done.stderr
