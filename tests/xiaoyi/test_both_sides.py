"""Our agent on its link to our own gateway: a caller of A2A sees a normal task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragoman import Agent, State, Task
from dragoman.client import connect
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.xiaoyi.outbound_link import SigningKeys
from waiting import until
from xiaoyi.links import AGENT, Gateway, gateway
from xiaoyi.test_agent_links import an_agent, linked


class _Server:
    def __init__(self, url: str) -> None:
        self.url = url


@asynccontextmanager
async def both(agent: Agent | None = None) -> AsyncIterator[Gateway]:
    """A gateway that our agent has dialled."""
    async with asyncio.timeout(240), gateway() as door:
        keys = SigningKeys(AGENT, door.ak, door.sk)
        async with linked(_Server(door.link_url), keys=keys, agent=agent):  # type: ignore[arg-type]
            await door.appears()
            yield door


async def test_a_caller_of_a2a_gets_the_answer_of_an_agent_on_a_link() -> None:
    async with both() as door, connect(f"{door.url}/agents/{AGENT}") as caller:
        task = await caller.send("hello")
        assert isinstance(task, Task)
        assert (task.state, task.text) == (State.COMPLETED, "echo: hello")
        long = await caller.send("long")
        assert long.text == "长" * 9000
        failed = await caller.send("fail")
        assert isinstance(failed, Task)
        assert failed.state is State.FAILED


async def test_the_pieces_of_a_stream_come_through() -> None:
    async with both() as door, connect(f"{door.url}/agents/{AGENT}") as caller:
        pieces = [
            event.event.artifact.text
            async for event in caller.stream("stream")
            if isinstance(event, Stamped) and isinstance(event.event, ArtifactChunk)
        ]
        assert "".join(pieces) == "HELLO"


async def test_a_question_goes_up_and_its_answer_down() -> None:
    async with both() as door, connect(f"{door.url}/agents/{AGENT}") as caller:
        task = await caller.send("ask")
        assert isinstance(task, Task)
        assert task.state is State.INPUT_REQUIRED
        assert task.status.message is not None
        assert task.status.message.text == "几点？"
        done = await caller.send("八点", task=task.id)
        assert done.text == "You said 八点"


async def test_a_cancel_goes_down() -> None:
    async with both() as door, connect(f"{door.url}/agents/{AGENT}") as caller:
        task = await caller.send("wait", wait=False)
        assert isinstance(task, Task)

        async def works() -> bool:
            return (await caller.get(task.id)).state is State.WORKING

        await until(works)
        assert (await caller.cancel(task.id)).state is State.CANCELED


async def test_an_agent_that_comes_back_goes_on_with_its_task() -> None:
    agent = an_agent()
    async with both(agent) as door, connect(f"{door.url}/agents/{AGENT}") as caller:
        task = await caller.send("wait", wait=False)
        assert isinstance(task, Task)

        async def works() -> bool:
            return (await caller.get(task.id)).state is State.WORKING

        await until(works)
        for socket in tuple(door.app.server.sockets):
            socket.end("gone")
        agent.gate.set()  # type: ignore[attr-defined]

        async def done() -> bool:
            return (await caller.get(task.id)).state is State.COMPLETED

        await until(done)
        assert (await caller.get(task.id)).text == "echo: wait"
