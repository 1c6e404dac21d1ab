"""Steps: done once, recorded, and the same value the first time and replayed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

import pytest
from msgspec import Struct

from dragoman import Agent, Answer, State, Turn
from dragoman.testing import Client
from engine.harness import EngineHarness, checked, ended, until
from waiting import forever, turns


class Found(Struct):
    name: str
    n: int = 0


@dataclass
class Seen:
    at: date


async def twice(server: EngineHarness, run: Any) -> tuple[object, object]:
    """What a step gives the first time, and after a crash; it must be done once."""
    agent, values, calls = Agent("Stepper"), list[object](), list[int]()

    @agent.skill("step")
    async def skill(turn: Turn) -> None:
        calls.append(1)
        values.append(await run(turn))
        if len(calls) == 1:
            await forever()

    client = server.client(agent)
    await client.engine.start()
    task = await client.send("go", wait=False)
    await until(lambda: values)
    client = await server.restart(client)
    task = await ended(client, task.id)
    assert task.state is State.COMPLETED, task.status.message
    await checked(client, task.id)
    await client.engine.stop(0)
    first, again = values
    return first, again


def bare() -> Any:
    return {"t": (1, 2)}


def typed() -> Found:
    return Found("x", 2)


def typed_list() -> list[Found]:
    return [Found("x")]


def a_date() -> date:
    return date(2026, 4, 1)


def a_dataclass() -> Seen:
    return Seen(date(2026, 4, 1))


def nothing() -> None:
    return None


def a_tuple() -> tuple[int, str]:
    return 1, "x"


def some_bytes() -> bytes:
    return b"\x00\xff"


def an_answer() -> str:
    return Answer("yes")


def any_object() -> object:
    return {"a": 1}


def a_mapping() -> Mapping[str, int]:
    return {"a": 1}


def an_iterable() -> Iterable[int]:
    return [1, 2]


async def a_coroutine() -> Found:
    await turns()
    return Found("async")


def an_awaitable() -> Awaitable[int]:
    return _three()


async def _three() -> int:
    return 3


def large() -> int:
    return 2**80


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (bare, {"t": [1, 2]}),
        (typed, Found("x", 2)),
        (typed_list, [Found("x")]),
        (a_date, date(2026, 4, 1)),
        (a_dataclass, Seen(date(2026, 4, 1))),
        (nothing, None),
        (a_tuple, (1, "x")),
        (some_bytes, b"\x00\xff"),
        (an_answer, "yes"),
        (any_object, {"a": 1}),
        (a_mapping, {"a": 1}),
        (an_iterable, [1, 2]),
        (a_coroutine, Found("async")),
        (an_awaitable, 3),
        (large, 2**80),
        (lambda: "lambda", "lambda"),
        (partial(int, "7"), 7),
        (dict, {}),
    ],
    ids=lambda value: getattr(value, "__name__", None) or type(value).__name__,
)
async def test_a_value_is_the_same_the_first_time_and_replayed(
    tmp_path: Any, function: Any, expected: object
) -> None:
    calls: list[int] = []

    async def run(turn: Turn) -> object:
        value = await turn.step("it", function)
        await turn.step("count", calls.append, 1)
        return value

    first, again = await twice(EngineHarness("memory:"), run)
    assert first == again == expected
    assert type(first) is type(again) is type(expected)
    assert calls == [1]


async def test_arguments_reach_the_function() -> None:
    def add(a: int, b: int = 0, *, c: int = 0) -> int:
        return a + b + c

    async def run(turn: Turn) -> int:
        return await turn.step("add", add, 1, 2, c=3)

    assert await twice(EngineHarness("memory:"), run) == (6, 6)


async def test_names_keys_and_numbers_keep_steps_apart() -> None:
    did: list[str] = []

    def do(what: str) -> str:
        did.append(what)
        return what

    async def run(turn: Turn) -> list[str]:
        return [
            await turn.step("do", do, "a"),
            await turn.step("do", do, "b"),
            await turn.step("other", do, "c"),
            await turn.step("do", do, "d", key="mine"),
            await turn.step("elsewhere", do, "e", key="mine"),
        ]

    first, again = await twice(EngineHarness("memory:"), run)
    assert first == again == ["a", "b", "c", "d", "e"]
    assert did == ["a", "b", "c", "d", "e"]


async def test_a_plain_function_runs_beside_the_loop() -> None:
    agent, threads = Agent("Stepper"), list[str]()

    @agent.skill("step")
    async def skill(turn: Turn) -> None:
        await turn.step("here", lambda: threads.append(threading.current_thread().name))

    async with Client(agent) as client:
        await client.send("go")
    assert threads
    assert threads[0] != threading.main_thread().name


async def test_a_step_returns_after_its_record_is_committed() -> None:
    agent, seen = Agent("Stepper"), list[int]()

    @agent.skill("step")
    async def skill(turn: Turn) -> None:
        await turn.step("one", lambda: 1)
        claim = client.engine.runner.runs[turn.task_id].writer.claim
        seen.append(len(await client.store.records(claim)))

    async with Client(agent) as client:
        assert (await client.send("go")).state is State.COMPLETED
    assert seen == [1]


async def test_a_step_that_fails_is_not_recorded() -> None:
    agent, tries = Agent("Stepper"), list[int]()

    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("no network")
        return "done"

    @agent.skill("step")
    async def skill(turn: Turn) -> str:
        while True:
            try:
                return await turn.step("flaky", flaky, key="flaky")
            except ConnectionError:
                await turns()

    async with Client(agent) as client:
        assert (await client.send("go")).text == "done"
    assert len(tries) == 3


def lies() -> int:
    return "three"  # type: ignore[return-value]


def gives_a_socket() -> object:
    return threading.Lock()


@pytest.mark.parametrize(
    ("function", "words"), [(lies, "int"), (gives_a_socket, "JSON")], ids=["lies", "socket"]
)
async def test_mistakes_in_steps_are_explained(function: Any, words: str) -> None:
    agent = Agent("Stepper")

    @agent.skill("step")
    async def skill(turn: Turn) -> None:
        await turn.step("odd", function)

    async with Client(agent) as client:
        task = await client.send("go")
        assert task.state is State.FAILED
        assert task.status.message is not None
        assert words in task.status.message.text
        assert "odd" in task.status.message.text


async def test_steps_may_run_together() -> None:
    async def slow(n: int) -> int:
        await turns(10 * (3 - n))  # the first takes longest
        return n

    async def run(turn: Turn) -> list[int]:
        return list(await asyncio.gather(*(turn.step(f"s{n}", slow, n) for n in range(3))))

    assert await twice(EngineHarness("memory:"), run) == ([0, 1, 2], [0, 1, 2])
