"""`@agent.on_start`, `@agent.on_stop` and `@agent.lifespan`: what they open is on `turn.state`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman import Agent, State, SyncTurn, Turn
from dragoman.core.errors import ConfigError
from dragoman.testing import Client


def desk() -> tuple[Agent, list[str]]:
    agent, told = Agent("Desk"), []

    @agent.lifespan
    async def books(state: Any) -> AsyncIterator[dict[str, str]]:
        async with asyncio.TaskGroup():  # must be left in the task that entered it
            told.append("books open")
            yield {"book": "atlas"}
            told.append("books closed")

    @agent.on_start
    async def connect(state: Any) -> None:
        told.append(f"connect after {state.book}")
        state.connection = "line 1"

    @agent.on_start
    def count() -> None:
        told.append("count")

    @agent.on_stop
    async def hang_up(state: Any) -> None:
        told.append(f"hang up {state.connection}")

    @agent.on_stop
    def lights_out() -> None:
        told.append("lights out")

    @agent.skill("look", default=True)
    async def look(turn: Turn) -> str:
        told.append("work")
        return f"{turn.state.book}, {turn.state.connection}"

    @agent.skill("plain")
    def plain(turn: SyncTurn) -> str:
        return str(turn.state.book)

    return agent, told


async def test_everything_is_open_before_the_first_task_and_closed_after_the_last() -> None:
    agent, told = desk()
    async with Client(agent) as client:
        assert (await client.send("x")).text == "atlas, line 1"
        assert (await client.send("x", skill="plain")).text == "atlas"
        assert told == ["books open", "connect after atlas", "count", "work"]
    assert told[4:] == ["lights out", "hang up line 1", "books closed"]


async def test_two_servers_of_one_agent_have_a_state_each() -> None:
    agent, told = desk()
    async with Client(agent) as one, Client(agent) as two:
        one.engine.runner.state.book = "novel"
        assert (await one.send("x")).text == "novel, line 1"
        assert (await two.send("x")).text == "atlas, line 1"
    assert told.count("books closed") == 2


async def test_a_start_that_fails_is_told_and_what_was_open_is_closed() -> None:
    agent, told = desk()

    @agent.on_start
    async def fails() -> None:
        raise ConnectionError("nobody there")

    with pytest.raises(ConfigError, match="`Desk` cannot start: ConnectionError: nobody there"):
        async with Client(agent):
            pass
    assert told == ["books open", "connect after atlas", "count", "books closed"]


async def test_a_stop_that_fails_keeps_no_other_from_stopping(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent, told = desk()

    @agent.on_stop
    async def fails() -> None:
        raise ConnectionError("nobody there")

    async with Client(agent) as client:
        assert (await client.send("x")).state is State.COMPLETED
    assert told[-1] == "books closed"
    assert "did not stop as it should" in caplog.text
