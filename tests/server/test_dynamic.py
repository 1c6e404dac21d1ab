"""Agents come and go on a server that runs, and nobody else notices."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest

from dragoman import Agent, Turn
from dragoman.app import create_app
from dragoman.client import connect
from dragoman.core.errors import ConfigError
from dragoman.core.model import Message, Role, State, Text
from dragoman.core.operations import GetTask, SendMessage
from dragoman.settings import Server, Settings
from semantics.ways import WAYS
from server.two_agents import TwoAgents, desk, serving
from waiting import until


def say(text: str, **about: Any) -> SendMessage:
    message = Message(message_id="m", role=Role.USER, parts=(Text(text),), **about)
    return SendMessage(message=message)


class Gate:
    """An agent whose task says `one`, and `two` when the gate is opened."""

    def __init__(self, name: str) -> None:
        self.opened = asyncio.Event()
        self.agent = Agent(name, description="Waits.")

        @self.agent.skill("wait", default=True, cancel_grace=0.2)
        async def wait(turn: Turn) -> str:
            await turn.say("one")
            await self.opened.wait()
            return "two"


async def text_of(two: TwoAgents, name: str, said: str = "hi") -> str:
    async with connect(f"{two.url}/agents/{name}", allow_private=True) as agent:
        return (await agent.send(said)).text


async def listed(two: TwoAgents) -> list[str]:
    async with httpx2.AsyncClient(base_url=two.url, timeout=60) as client:
        return [each["name"] for each in (await client.get("/agents")).json()["agents"]]


@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_that_was_added_answers_in_every_dialect(way: str) -> None:
    async with serving() as two:
        await two.app.add_agent("gamma", desk("gamma"))
        async with two.open_server("gamma") as running:
            heard = await WAYS[way].ask(running, say("hi"), headers={"dragoman-agent": "gamma"})
            assert heard.error is None
            assert heard.answer.text == "gamma hi"
        assert await text_of(two, "alpha") == "alpha hi"


@pytest.mark.parametrize("way", WAYS)
async def test_an_agent_that_was_removed_answers_no_more_calls(way: str) -> None:
    async with serving() as two:
        await two.app.remove_agent("beta")
        async with two.open_server("beta") as running:
            if "GRPC" in way.upper():
                heard = await WAYS[way].ask(running, say("hi"), headers={"dragoman-agent": "beta"})
                assert heard.error is not None
                assert "no agent called beta" in str(heard.error)
            else:
                assert (await running.client.post("", json={})).status_code == 404
        assert await text_of(two, "alpha") == "alpha hi"


async def test_lists_metrics_and_cards_know_at_once() -> None:
    async with serving() as two, httpx2.AsyncClient(base_url=two.url, timeout=60) as client:
        await two.app.add_agent("gamma", desk("gamma"))
        assert await listed(two) == ["alpha", "beta", "gamma"]
        card = (await client.get("/agents/gamma/.well-known/agent-card.json")).json()
        assert card["url"] == f"{two.url}/agents/gamma/"
        assert 'agent="gamma"' in (await client.get("/metrics")).text
        await two.app.remove_agent("alpha")
        assert await listed(two) == ["beta", "gamma"]
        assert 'agent="alpha"' not in (await client.get("/metrics")).text
        assert (await client.get("/agents/alpha/.well-known/agent-card.json")).status_code == 404


async def test_a_server_for_several_agents_may_have_one_or_none() -> None:
    async with serving({}, several=True) as two, httpx2.AsyncClient(timeout=60) as client:
        assert await listed(two) == []
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await client.get(two.url + path)).status_code == 200
        assert (await client.post(two.url, json={})).status_code == 404
        await two.app.add_agent("only", desk("only"))
        assert await text_of(two, "only") == "only hi"
        assert (await client.post(two.url, json={})).status_code == 404
        await two.app.remove_agent("only")
        assert await listed(two) == []


async def test_streams_of_others_go_on_while_agents_come_and_go() -> None:
    gate = Gate("Gate")
    agents = {"gate": gate.agent, "beta": desk("beta")}
    async with (
        serving(agents, server={"insecure": True}) as two,
        connect(f"{two.url}/agents/gate", allow_private=True) as http,
        connect(f"{two.url}/agents/gate", dialect="a2a-1.0-grpc", allow_private=True) as rpc,
        connect(f"{two.url}/agents/gate".replace("http", "iat+ws"), allow_private=True) as socket,
    ):

        async def heard(agent: Any) -> str:
            async with agent.stream("hi") as stream:
                told = (await stream.result()).text
                assert stream.connections == 1  # or it was dropped, and resumed
                return told

        async with asyncio.TaskGroup() as group:
            streams = [group.create_task(heard(each)) for each in (http, rpc, socket)]
            await until(lambda: len(two.app.mounts["gate"].peer.runner.runs) == 3)
            await two.app.remove_agent("beta")
            await two.app.add_agent("gamma", desk("gamma"))
            await two.app.replace_agent("gamma", desk("other"))
            assert await text_of(two, "gamma") == "other hi"
            gate.opened.set()
        assert [each.result().endswith("two") for each in streams] == [True] * 3


async def test_a_run_of_a_removed_agent_may_end_in_its_grace_and_its_stream_tells() -> None:
    gate = Gate("Gate")
    async with (
        serving({"gate": gate.agent, "beta": desk("beta")}) as two,
        connect(f"{two.url}/agents/gate", allow_private=True) as agent,
    ):
        runs = two.app.mounts["gate"].peer.runner.runs

        async def heard() -> str:
            async with agent.stream("hi") as stream:
                told = (await stream.result()).text
                assert stream.connections == 1
                return told

        async with asyncio.TaskGroup() as group:
            stream = group.create_task(heard())
            await until(lambda: bool(runs))
            leaving = group.create_task(two.app.remove_agent("gate", grace=60))
            await until(lambda: "gate" not in two.app.mounts)
            assert not leaving.done()
            gate.opened.set()
        assert stream.result().endswith("two")


async def test_what_a_removed_agent_leaves_is_resumed_when_it_comes_back() -> None:
    gate = Gate("Gate")
    async with serving({"gate": gate.agent, "beta": desk("beta")}) as two:
        async with connect(f"{two.url}/agents/gate", allow_private=True) as agent:
            task = await agent.send("hi", wait=False)
        await two.app.remove_agent("gate", grace=0.1)
        gate.opened.set()
        await two.app.add_agent("gate", gate.agent)
        async with connect(f"{two.url}/agents/gate", allow_private=True) as agent:

            async def ended() -> bool:
                return (await agent.get(task.id)).state is State.COMPLETED

            await until(ended)


@pytest.mark.parametrize("dialect", ["a2a-1.0", "a2a-1.0-grpc"])
async def test_a_replaced_agent_finishes_its_stream_with_the_code_it_began_with(
    dialect: str,
) -> None:
    gate = Gate("Gate")
    async with (
        serving({"gate": gate.agent, "beta": desk("beta")}) as two,
        connect(f"{two.url}/agents/gate", dialect=dialect, allow_private=True) as agent,
    ):
        runs = two.app.mounts["gate"].peer.runner.runs

        async def heard() -> str:
            async with agent.stream("hi") as stream:
                told = (await stream.result()).text
                assert stream.connections == 1  # or it was dropped, and resumed
                return told

        async with asyncio.TaskGroup() as group:
            stream = group.create_task(heard())
            await until(lambda: bool(runs))
            (task_id,) = runs
            await two.app.replace_agent("gate", desk("new"))
            assert await text_of(two, "gate") == "new hi"
            async with two.open_server("gate") as running:
                found = await WAYS["JSON-RPC 1.0"].ask(running, GetTask(task_id=task_id))
                assert found.answer.state is State.WORKING
            gate.opened.set()
        assert stream.result().endswith("two")


async def test_a_name_is_taken_once_and_must_be_one() -> None:
    async with serving() as two:
        with pytest.raises(ConfigError, match="at /agents/alpha already"):
            await two.app.add_agent("alpha", desk("x"))
        for wrong in ("-", "Alpha", "a/b", "", "x" * 64):
            with pytest.raises(ConfigError, match="cannot be the name"):
                await two.app.add_agent(wrong, desk("x"))
        with pytest.raises(LookupError):
            await two.app.remove_agent("nobody")


async def test_the_only_agent_of_a_server_stays_alone() -> None:
    app = create_app(desk("one"), Settings(server=Server(store="memory:")))
    with pytest.raises(ConfigError, match="several=True"):
        await app.add_agent("two", desk("two"))


async def test_an_agent_that_cannot_be_served_changes_nothing() -> None:
    async with serving() as two:
        wrong = desk("x")
        wrong.scopes = ("admin",)  # but there are no credentials that could have it
        with pytest.raises(ConfigError, match="scopes"):
            await two.app.add_agent("gamma", wrong)
        with pytest.raises(ConfigError, match="scopes"):
            await two.app.replace_agent("alpha", wrong)
        assert await listed(two) == ["alpha", "beta"]
        assert await text_of(two, "alpha") == "alpha hi"


async def test_an_idle_agent_costs_no_task_no_thread_and_no_lease(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    async with serving(store=store) as two:

        def cost() -> tuple[int, int, int]:
            locks = len(list((tmp_path / "store.db-workers").iterdir()))
            return len(asyncio.all_tasks()), threading.active_count(), locks

        before = cost()
        for number in range(100):
            await two.app.add_agent(f"more-{number}", desk(str(number)))
        assert await text_of(two, "more-99") == "99 hi"
        # The answer itself may have left a thread or a task behind, but not one for each agent.
        assert all(now < then + 20 for now, then in zip(cost(), before, strict=True))
        for number in range(100):
            await two.app.remove_agent(f"more-{number}")
        assert await text_of(two, "alpha") == "alpha hi"


async def test_the_due_tasks_of_one_of_several_agents_are_found(tmp_path: Path) -> None:
    """Nobody looks for each of them every second: one question tells which have something due."""
    gate = Gate("Gate")
    store = f"sqlite:///{tmp_path}/store.db"
    async with serving({"gate": gate.agent, "beta": desk("beta")}, store=store) as two:
        async with connect(f"{two.url}/agents/gate", allow_private=True) as agent:
            task = await agent.send("hi", wait=False)
        await two.app.remove_agent("gate", grace=0)
    gate.opened.set()
    async with (
        serving({"gate": gate.agent, "beta": desk("beta")}, store=store) as two,
        connect(f"{two.url}/agents/gate", allow_private=True) as agent,
    ):

        async def ended() -> bool:
            return (await agent.get(task.id)).state is State.COMPLETED

        await until(ended)


async def test_grpc_health_stays_while_agents_change() -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    async with serving({}, several=True) as two:
        where = f"127.0.0.1:{two.app.ports['grpc']}"
        async with grpc.aio.insecure_channel(where) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            await two.app.add_agent("one", desk("one"))
            await two.app.remove_agent("one")
            reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=60)
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
