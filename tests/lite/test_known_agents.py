"""Agents that were met are remembered: after a restart, and for `dragoman lite agents`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.run import dragoman
from dragoman import State, Task
from dragoman.client import connect
from lite.room import living, member, new_hub
from lite.test_room_agents import CARD, appears, gateway, listed


async def test_agents_that_were_met_are_served_after_a_restart(tmp_path: Path) -> None:
    hub, store = new_hub(), f"sqlite:///{tmp_path}/gate.db"
    async with living(hub=hub), gateway(hub, store=store) as gate:
        await appears(gate.url, "desk")
    # Nobody is asked this time: what is known is in the store.
    async with living(hub=hub), gateway(hub, store=store, discover=False) as gate:
        await appears(gate.url, "desk")
        async with connect(f"{gate.url}/agents/desk", allow_private=True) as agent:
            assert (await agent.send("hello")).text == "HELLO"


async def test_a_task_goes_on_when_the_gateway_starts_again(tmp_path: Path) -> None:
    hub, store = new_hub(), f"sqlite:///{tmp_path}/gate.db"
    async with living(hub=hub):
        async with gateway(hub, store=store) as gate:
            await appears(gate.url, "desk")
            async with connect(f"{gate.url}/agents/desk", allow_private=True) as agent:
                task = await agent.send("ask")
                assert isinstance(task, Task)
                assert task.state is State.INPUT_REQUIRED
        async with gateway(hub, store=store) as gate:
            await appears(gate.url, "desk")
            async with connect(f"{gate.url}/agents/desk", allow_private=True) as agent:
                done = await agent.send("Kyoto", task=task.id)
                assert done.text == "You said Kyoto."


@pytest.mark.slow  # starts processes
async def test_an_agent_of_another_version_is_shown_as_unsupported(tmp_path: Path) -> None:
    hub, store = new_hub(), f"sqlite:///{tmp_path}/gate.db"
    card = CARD.replace("1.0", "2.0").replace("desk", "next").replace("Desk", "Next")
    async with member(hub, "next") as other, gateway(hub, store=store) as gate, living(hub=hub):
        await other.hears("discover")
        await other.say(f"[A2A:card]\n{card}")
        await other.say("[A2A:discover]")
        await other.hears("card")
        assert "next" not in await listed(gate.url)
    shown = dragoman("lite", "agents", "--store", store, cwd=tmp_path).stdout
    assert "next  Next (not supported: it speaks a2a-lite/2.0)" in shown


@pytest.mark.slow  # starts processes
async def test_they_are_listed(tmp_path: Path) -> None:
    hub, store = new_hub(), f"sqlite:///{tmp_path}/gate.db"
    async with living(hub=hub), gateway(hub, store=store) as gate:
        await appears(gate.url, "desk")
    shown = dragoman("lite", "agents", "--store", store, cwd=tmp_path)
    assert "desk  Desk (talk, shout)  desk in room of here" in shown.stdout
    (line,) = dragoman("lite", "agents", "--json", "--store", store, cwd=tmp_path).stdout.split(
        "\n"
    )[:-1]
    found = json.loads(line)
    assert (found["name"], found["channel"], found["sender"]) == ("desk", "here", "desk")
    assert found["card"]["protocol"] == "a2a-lite/1.0"
