"""Agents that are linked to one of two gateways on one store are served by both. The gateway that
has the link runs their tasks, and when the link moves, the runs move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, State, Task, Turn
from dragoman.client import ClientLimits, RemoteAgent, connect
from dragoman.core.errors import DragomanError, Forbidden
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.gateway.configuration import registered
from dragoman.iat import Host
from dragoman.server.services.iat_host import HostService
from dragoman.settings import Server, Settings
from dragoman.store.registry import AgentHealth, RegistryEntry, Source
from dragoman.testing.served import served
from dragoman.xiaoyi.outbound_link import SigningKeys
from gateway import behind
from gateway import test_sub_agents as sub_agents
from lite import test_room_agents as room_agents
from lite.room import living, new_hub
from postgres import store_url
from replicas.balancer import Balancer, balancing
from server.two_agents import TwoAgents, desk, serving
from waiting import until
from xiaoyi.links import AGENT, PATH, Gateway, gateway
from xiaoyi.test_agent_links import linked


def an_agent() -> Agent:
    agent = Agent("Phone agent", description="Answers phones.")
    agent.gate = asyncio.Event()  # type: ignore[attr-defined]

    @agent.skill("talk")
    async def talk(turn: Turn) -> AsyncIterator[str]:
        if turn.text == "wait":
            yield "begun "
            await agent.gate.wait()  # type: ignore[attr-defined]
            yield "and done"
        elif turn.text == "ask":
            yield f"You said {await turn.ask('几点？')}"
        else:
            yield "echo: "
            yield turn.text

    return agent


class Dialled:
    """Two gateways, and an agent that has dialled one of them through a balancer."""

    def __init__(self, one: Gateway, two: Gateway, balancer: Balancer, agent: Agent) -> None:
        self.one, self.two, self._balancer = one, two, balancer
        self.gate: asyncio.Event = agent.gate  # type: ignore[attr-defined]

    def move(self, to: Gateway | None) -> None:
        """Cuts the link. The agent dials again, and reaches this gateway, or nobody."""
        self._balancer.move(*([_port(to)] if to is not None else ()))

    def runs_at(self, door: Gateway) -> int:
        """How many tasks of the agent a gateway runs."""
        mount = door.app.mounts.get(AGENT)
        return len(mount.peer.runner.runs) if mount is not None else 0  # type: ignore[attr-defined]


def _port(door: Gateway) -> int:
    return int(door.url.rpartition(":")[2])


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
async def dialled(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Dialled]:
    monkeypatch.setenv("DRAGOMAN_SECRET_KEY", "k" * 32)
    sqlite = request.param == "sqlite"
    store = f"sqlite:///{tmp_path}/dragoman.db" if sqlite else store_url(tmp_path)
    async with (
        asyncio.timeout(300),
        gateway(store=store) as one,
        gateway(store=store) as two,
        balancing([_port(one)]) as balancer,
        dialling(one, balancer) as agent,
    ):
        for door in (one, two):
            await door.appears()
        yield Dialled(one, two, balancer, agent)


@asynccontextmanager
async def dialling(door: Gateway, balancer: Balancer) -> AsyncIterator[Agent]:
    class Server:
        url = balancer.url.replace("http:", "ws:") + PATH

    agent, keys = an_agent(), SigningKeys(AGENT, door.ak, door.sk)
    async with linked(Server(), keys=keys, agent=agent):  # type: ignore[arg-type]
        yield agent


def at(door: Gateway) -> RemoteAgent:
    limits = ClientLimits(retries=0)
    return connect(f"{door.url}/agents/{AGENT}", limits=limits)  # type: ignore[return-value]


async def _begun(agent: RemoteAgent) -> Task:
    """A task on which the agent works."""
    task = await agent.send("wait", wait=False)
    assert isinstance(task, Task)

    async def begun() -> bool:
        return (await agent.get(task.id)).text == "begun "

    await until(begun)
    return task


async def _in_state(agent: RemoteAgent, task: Task, state: State) -> Task:
    async def there() -> Task | None:
        found = await agent.get(task.id)
        return found if found.state is state else None

    found = await until(there)
    assert isinstance(found, Task)
    return found


async def test_every_gateway_serves_an_agent_that_one_is_linked_to(dialled: Dialled) -> None:
    async with at(dialled.one) as one, at(dialled.two) as two:
        for caller, other in ((two, one), (one, two)):
            done = await caller.send("hello")
            assert isinstance(done, Task)
            assert (done.state, done.text) == (State.COMPLETED, "echo: hello")
            assert (await other.get(done.id)).text == "echo: hello"
            pieces = [
                event.event.artifact.text
                async for event in caller.stream("me")
                if isinstance(event, Stamped) and isinstance(event.event, ArtifactChunk)
            ]
            assert "".join(pieces) == "echo: me"
            # A question is answered at the other gateway, and a cancel comes from there.
            asking = await caller.send("ask")
            assert asking.state is State.INPUT_REQUIRED
            assert (await other.send("八点", task=asking.id)).text == "You said 八点"
            waiting = await _begun(caller)
            assert (await other.cancel(waiting.id)).state is State.CANCELED
            assert not dialled.runs_at(dialled.two)


async def test_when_the_link_moves_the_run_moves(dialled: Dialled) -> None:
    async with at(dialled.one) as one, at(dialled.two) as two:
        waiting, asking = await _begun(two), await two.send("ask")
        assert isinstance(asking, Task)
        assert asking.state is State.INPUT_REQUIRED
        assert dialled.runs_at(dialled.one) == 2
        dialled.move(dialled.two)
        # The task that runs goes on there; the one that waits for its caller is no work yet.
        await until(lambda: not dialled.runs_at(dialled.one))
        await until(lambda: dialled.runs_at(dialled.two))
        dialled.gate.set()
        assert (await _in_state(one, waiting, State.COMPLETED)).text == "begun and done"
        assert (await one.send("八点", task=asking.id)).text == "You said 八点"
        assert (await one.send("again")).text == "echo: again"
        assert not dialled.runs_at(dialled.one)


async def test_without_a_link_callers_are_told_so_and_tasks_wait(dialled: Dialled) -> None:
    async with at(dialled.one) as one, at(dialled.two) as two:
        waiting = await _begun(two)
        dialled.move(None)
        for door in (dialled.one, dialled.two):
            await door.appears(health="offline")
        for caller in (one, two):
            with pytest.raises(DragomanError, match="try again later") as refused:
                await caller.send("hello")
            assert refused.value.retry
        assert (await two.get(waiting.id)).state is State.WORKING
        dialled.gate.set()
        dialled.move(dialled.two)
        assert (await _in_state(one, waiting, State.COMPLETED)).text == "begun and done"
        assert (await one.send("hello")).text == "echo: hello"


@pytest.mark.slow  # takes several seconds
async def test_the_agents_of_a_process_that_has_ended_are_offline(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/dragoman.db"
    ended = RegistryEntry(
        name="lost",
        source=Source.LINK,
        owner="xiaoyi/lost",
        health=AgentHealth.UP,
        holder="a worker that has ended",
    )
    async with asyncio.timeout(300), gateway(store=store) as door:
        assert door.app.registry is not None
        await door.app.registry.store.put(ended)
        await door.appears("lost", health="offline")
        async with connect(f"{door.url}/agents/lost", limits=ClientLimits(retries=0)) as agent:
            with pytest.raises(DragomanError, match="try again later"):
                await agent.send("hello")


@asynccontextmanager
async def gateway_of_sub_agents(folder: Path, store: str) -> AsyncIterator[TwoAgents]:
    """A gateway where sub-agents register over IAT."""
    known = behind.settings(folder)
    about = {"several": True, "registers": registered(known), "iat": known.iat}
    async with serving({"desk": desk("hi")}, store=store, **about) as found:
        yield found


@pytest.mark.slow  # takes several seconds
async def test_a_sub_agent_on_a_websocket_of_one_gateway_is_served_by_both(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/dragoman.db"
    async with (
        asyncio.timeout(300),
        gateway_of_sub_agents(tmp_path, store) as one,
        gateway_of_sub_agents(tmp_path, store) as two,
        balancing([int(one.url.rpartition(":")[2])]) as balancer,
        served(behind.worker(), sub_agents.joining(tmp_path, balancer.url, "ws")),
    ):
        for door in (one, two):
            await sub_agents.appears(door.url, "worker")
        # The other gateway knows the card, too, which follows the registration.
        await until(lambda: knows_card(two.url))
        async with (
            connect(f"{one.url}/agents/worker") as here,
            connect(f"{two.url}/agents/worker") as there,
        ):
            assert {"echo", "count"} <= {skill.id for skill in there.card.skills}
            await sub_agents.everything(there)
            asking = await there.send("go", skill="trip")
            assert isinstance(asking, Task)
            balancer.move(int(two.url.rpartition(":")[2]))
            await until(lambda: one.app.mounts["worker"].agent.elsewhere)
            asking = await here.answer(asking, "Rome")
            asking = await here.answer(asking, "3")
            assert (asking.state, asking.text) == (State.COMPLETED, "3 days in Rome")
            await sub_agents.everything(here)


async def knows_card(url: str) -> bool:
    """Whether a gateway knows the card of the sub-agent, not only its name."""
    async with connect(f"{url}/agents/worker") as agent:
        return (agent.card.name, agent.card.version) == ("Worker", "2.1.0")


async def test_a_name_belongs_to_the_sub_agent_that_answers_at_another_gateway(
    tmp_path: Path,
) -> None:
    store = f"sqlite:///{tmp_path}/dragoman.db"
    async with (
        asyncio.timeout(300),
        gateway_of_sub_agents(tmp_path, store) as one,
        gateway_of_sub_agents(tmp_path, store) as two,
        AsyncExitStack() as first,
    ):
        joining = sub_agents.joining(tmp_path, one.url, "ws")
        await first.enter_async_context(served(behind.worker(), joining))
        await sub_agents.appears(two.url, "worker")
        here, there = (each.app.service(HostService).agent for each in (one, two))
        assert isinstance(here, Host)
        assert isinstance(there, Host)
        refused: list[str] = []
        check = there.check_claim

        async def counted(met: Any, peer: Any) -> None:
            try:
                await check(met, peer)
            except Forbidden as exc:
                refused.append(exc.message)
                raise

        two.app.service(HostService).check_claim = counted
        async with served(behind.worker(), sub_agents.joining(tmp_path, two.url, "ws")):
            await until(lambda: refused)
            assert "worker" in here.agents
            assert "worker" not in there.agents
            await first.aclose()  # the first one leaves, so the name is free
            await until(lambda: "worker" in there.agents)
            await until(lambda: one.app.mounts["worker"].agent.elsewhere)


async def test_an_agent_in_a_room_that_one_gateway_has_joined_is_served_by_both(
    tmp_path: Path,
) -> None:
    store = f"sqlite:///{tmp_path}/dragoman.db"
    hub = new_hub()
    make = registered(Settings(server=Server(allow_private=True)))
    async with (
        asyncio.timeout(300),
        living(hub=hub),
        room_agents.gateway(hub, store=store) as one,
        serving({"office": desk("hi")}, several=True, registers=make, store=store) as two,
    ):
        for door in (one, two):
            await room_agents.appears(door.url, "desk")
        async with connect(f"{two.url}/agents/desk", allow_private=True) as agent:
            assert {skill.id for skill in agent.card.skills} == {"talk", "shout"}
            task = await agent.send("hello")
            assert isinstance(task, Task)
            assert (task.state, task.text) == (State.COMPLETED, "HELLO")
