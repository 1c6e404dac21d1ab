"""Agents that were met are remembered: after a restart, and for `dragoman lite agents`."""

from __future__ import annotations

import json
from pathlib import Path

from cli.run import dragoman
from dragoman import State, Task
from dragoman.client import connect
from lite.room import living, new_hub
from lite.test_room_agents import appears, gateway


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


async def test_they_are_listed(tmp_path: Path) -> None:
    hub, store = new_hub(), f"sqlite:///{tmp_path}/gate.db"
    async with living(hub=hub), gateway(hub, store=store) as gate:
        await appears(gate.url, "desk")
    listed = dragoman("lite", "agents", "--store", store, cwd=tmp_path)
    assert "desk  Desk (talk, shout)  desk in room of here" in listed.stdout
    (line,) = dragoman("lite", "agents", "--json", "--store", store, cwd=tmp_path).stdout.split(
        "\n"
    )[:-1]
    found = json.loads(line)
    assert (found["name"], found["channel"], found["sender"]) == ("desk", "here", "desk")
    assert found["card"]["protocol"] == "a2a-lite/1.0"
