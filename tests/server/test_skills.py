"""`/agents/-/skills/{id}` asks the best agent that has a skill, in every dialect."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from dragoman import Agent, Turn
from dragoman.client import connect
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.errors import StoreUnavailable, TaskNotFound
from dragoman.core.model import State
from dragoman.server.registry import skill_mounts
from server.two_agents import TwoAgents, serving
from waiting import until


def translator(name: str, **about: Any) -> Agent:
    agent = Agent(name, description=f"{name} translates.", **about)
    agent.gate = asyncio.Event()  # type: ignore[attr-defined]

    @agent.skill("translate", description="Translates a text.", tags=("words",))
    async def translate(turn: Turn) -> str:
        if turn.text == "ask":
            return f"{name} {await turn.ask('Which?')}"
        if turn.text == "wait":
            await agent.gate.wait()  # type: ignore[attr-defined]
        return f"{name} {turn.text}"

    @agent.skill("other", description="Does something else.", default=True)
    async def other(turn: Turn) -> str:
        return f"{name} other"

    return agent


def three() -> dict[str, Agent]:
    silent = Agent("Silent", description="Has another skill.")

    @silent.skill("hum", description="Hums.", default=True)
    async def hum(turn: Turn) -> str:
        return "hm"

    return {"one": translator("one"), "two": translator("two"), "silent": silent}


def at(two: TwoAgents, skill: str = "translate") -> str:
    return f"{two.url}/agents/-/skills/{skill}"


@pytest.mark.parametrize(
    "dialect", ["a2a-1.0", "a2a-1.0-rest", "a2a-0.3", "a2a-0.3-rest", "a2a-0.1", "a2a-1.0-grpc"]
)
async def test_a_skill_is_asked_in_every_dialect_and_its_agents_take_turns(dialect: str) -> None:
    async with (
        serving(three()) as running,
        connect(at(running), dialect=dialect, allow_private=True) as agent,
    ):
        said = {(await agent.send("hi")).text for _ in range(4)}
        assert said == {"one hi", "two hi"}


async def test_the_card_is_that_of_the_skill() -> None:
    async with serving(three()) as running, httpx2.AsyncClient(timeout=60) as client:
        card = (await client.get(f"{at(running)}/.well-known/agent-card.json")).json()
        assert [each["id"] for each in card["skills"]] == ["translate"]
        assert card["url"] == f"{at(running)}/"
        for path in (
            at(running, "nothing"),
            f"{running.url}/agents/-",
            f"{running.url}/agents/-/x",
        ):
            assert (await client.get(path)).status_code == 404


@pytest.mark.parametrize("forgets", [False, True])
async def test_later_calls_about_a_task_reach_its_agent(forgets: bool) -> None:
    async with serving(three()) as running, connect(at(running), allow_private=True) as agent:
        asked = [await agent.send("ask") for _ in range(4)]
        if forgets:  # as after a restart
            for mount, _ in running.app.skills._made.values():
                mount.peer._chosen.clear()
        for task in asked:
            assert task.state is State.INPUT_REQUIRED
            assert (await agent.get(task.id)).id == task.id
        answers = {(await agent.answer(task, "that")).text for task in asked}
        assert answers == {"one that", "two that"}
        with pytest.raises(TaskNotFound):
            await agent.get("01900000-0000-7000-8000-000000000000")


async def test_a_conversation_stays_with_one_agent() -> None:
    async with serving(three()) as running, connect(at(running), allow_private=True) as agent:
        first = await agent.send("hi")
        said = {(await agent.send("hi", context_id=first.context_id)).text for _ in range(4)}
        assert said == {first.text}


async def test_the_agent_with_the_least_to_do_is_asked() -> None:
    agents = three()
    async with serving(agents) as running, connect(at(running), allow_private=True) as agent:
        busy = await agent.send("wait", wait=False)
        runs = {name: running.app.mounts[name].peer.runner.runs for name in ("one", "two")}
        await until(lambda: any(runs.values()))
        (free,) = [name for name, found in runs.items() if not found]
        assert {(await agent.send("hi")).text for _ in range(4)} == {f"{free} hi"}
        for each in ("one", "two"):
            agents[each].gate.set()  # type: ignore[attr-defined]
        async with agent.watch(busy) as stream:
            assert (await stream.result()).text.endswith("wait")


@pytest.mark.slow  # takes two seconds
async def test_an_agent_that_is_away_is_not_asked() -> None:
    async with serving(three()) as running, connect(at(running), allow_private=True) as agent:
        await agent.send("hi")
        (mount, _), *_ = running.app.skills._made.values()
        mount.peer._online = lambda name: name == "two"
        assert {(await agent.send("hi")).text for _ in range(4)} == {"two hi"}
        mount.peer._online = lambda name: False
        with pytest.raises(StoreUnavailable, match="translate"):
            await agent.send("hi")


async def test_agents_that_come_and_go_are_asked_or_not() -> None:
    async with serving(three()) as running, connect(at(running), allow_private=True) as agent:
        await running.app.remove_agent("one")
        assert {(await agent.send("hi")).text for _ in range(3)} == {"two hi"}
        await running.app.add_agent("four", translator("four"))
        assert {(await agent.send("hi")).text for _ in range(4)} == {"two hi", "four hi"}


async def test_callers_are_authenticated_and_agents_with_schemes_of_their_own_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("T", "ann-token-of-sixteen")
    tokens = Tokens(callers={"ann": Known(secret=Secret(env="T"))})
    agents = {"one": translator("one"), "two": translator("two", auth={"own": tokens})}
    async with serving(agents, auth={"all": tokens}) as running:
        async with httpx2.AsyncClient(timeout=60) as client:
            assert (await client.post(at(running), json={})).status_code == 401
        async with connect(at(running), auth="ann-token-of-sixteen", allow_private=True) as agent:
            assert {(await agent.send("hi")).text for _ in range(3)} == {"one hi"}


async def test_the_mounts_of_skills_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skill_mounts, "MOST_MOUNTS", 2)
    async with serving(three()) as running, httpx2.AsyncClient(timeout=60) as client:
        for skill in ("translate", "other", "hum"):
            page = f"{at(running, skill)}/.well-known/agent-card.json"
            assert (await client.get(page)).status_code == 200
        assert list(running.app.skills._made) == ["other", "hum"]
