"""Methods of the agent's own, beyond the protocol (A2A 0.3 §3.5.5)."""

from __future__ import annotations

import pytest

from dragoman import Agent, Turn
from dragoman.core.errors import AgentMisbehaved, BadParams, ConfigError, UnknownMethod
from dragoman.core.model import Json
from dragoman.core.operations import Invoke
from dragoman.core.peer import Context
from dragoman.testing import Client


def desk() -> Agent:
    agent = Agent("Desk")

    @agent.skill("echo")
    async def echo(turn: Turn) -> str:
        return turn.text

    @agent.method("myorg.desk/add")
    async def add(caller: Context, a: int, b: int = 1) -> dict[str, Json]:
        return {"sum": a + b, "for": caller.principal}

    @agent.method("myorg.desk/plain")
    def plain(caller: Context) -> list[int]:
        return [1, 2]

    @agent.method("myorg.desk/liar")
    async def liar(caller: Context) -> int:
        return "three"  # type: ignore[return-value]  # what is tested

    return agent


async def invoke(client: Client, method: str, params: Json = None) -> Json:
    return await client.engine.call(Invoke(method=method, params=params), client.context)


async def test_a_method_answers_with_its_result() -> None:
    async with Client(desk()) as client:
        assert await invoke(client, "myorg.desk/add", {"a": 2}) == {"sum": 3, "for": "anonymous"}
        assert await client.invoke("myorg.desk/add", a=2, b=2) == {"sum": 4, "for": "anonymous"}
        assert await invoke(client, "myorg.desk/plain") == [1, 2]


async def test_wrong_parameters_are_refused_with_their_path() -> None:
    async with Client(desk()) as client:
        with pytest.raises(BadParams, match=r"Expected `int`, got `str` - at `\$.a`"):
            await invoke(client, "myorg.desk/add", {"a": "2"})
        with pytest.raises(BadParams, match="unknown field `c`"):
            await invoke(client, "myorg.desk/add", {"a": 2, "c": 3})
        with pytest.raises(BadParams):
            await invoke(client, "myorg.desk/add", [2])


async def test_a_result_that_breaks_its_annotation_is_told() -> None:
    async with Client(desk()) as client:
        with pytest.raises(AgentMisbehaved):
            await invoke(client, "myorg.desk/liar")


async def test_an_unknown_method_is_told() -> None:
    async with Client(desk()) as client:
        with pytest.raises(UnknownMethod, match=r"myorg\.desk/none"):
            await invoke(client, "myorg.desk/none")


@pytest.mark.parametrize(
    "name", ["do", "message/send", "SendMessage", "a.b", "a.b/", "", "a b.c/d"]
)
def test_a_name_without_a_namespace_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="namespace"):
        Agent("Desk").method(name)


def test_a_name_is_taken_once() -> None:
    agent = desk()
    with pytest.raises(ConfigError, match="two methods"):
        agent.method("myorg.desk/add")
