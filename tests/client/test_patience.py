"""When a stream that had begun is given up: never while the other side answers, and not by count.

The limits are tiny, and what a task or a network does takes many times as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from client.cutter import Cutter, cutting
from client.our_server import QUICK, open_server
from dragoman import Agent, Turn, connect
from dragoman.client import Events, RemoteAgent
from dragoman.core.errors import PeerUnreachable
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.core.model import State
from waiting import until

SHORT = replace(QUICK, idle=0.2, patience=0.2, answer=10, retries=2)
DIALECTS = ["a2a-1.0", "a2a-0.3-rest", "a2a-1.0-grpc"]


def quiet_agent(going: asyncio.Event) -> Agent:
    agent = Agent("Quiet", description="Says two words, in its own time")

    @agent.skill("two", default=True)
    async def two(turn: Turn) -> AsyncIterator[str]:
        yield "one "
        await going.wait()
        yield "two"

    return agent


@asynccontextmanager
async def behind(
    dialect: str, *, cursor: bool = True, streams: bool = True, patience: float = SHORT.patience
) -> AsyncIterator[tuple[RemoteAgent, Cutter, asyncio.Event]]:
    """An agent behind a proxy that does nothing yet."""
    going = asyncio.Event()
    async with open_server(quiet_agent(going)) as served:
        grpc = dialect.endswith("grpc")
        to = served.app.ports["grpc"] if grpc else served.port
        async with cutting(to, 1, strip=not cursor) as (proxy, port):
            proxy.on = False
            card = served.card(cursor=cursor, **{"grpc" if grpc else "http": port})
            card = replace(card, streaming=streams)
            address = served.url.replace(str(served.port), str(port)) if not grpc else served.url
            limits = replace(SHORT, patience=patience)
            async with connect(address, card=card, dialect=dialect, limits=limits) as agent:
                yield agent, proxy, going
            going.set()


async def first_word(events: Events) -> None:
    async for event in events:
        if isinstance(event, Stamped) and isinstance(event.event, ArtifactChunk):
            return


async def ends_well(events: Events) -> None:
    async for _ in events:
        pass
    assert events.task is not None
    assert (events.task.state, events.task.text) == (State.COMPLETED, "one two")


async def tried(proxy: Cutter, rest: asyncio.Task[None], times: int) -> None:
    """Waits for so many more connections; the stream must not end meanwhile."""
    goal = proxy.connections + times

    def enough() -> bool:
        assert not rest.done(), f"it was given up after {proxy.connections - goal + times} tries"
        return proxy.connections >= goal

    await until(enough)


@pytest.mark.parametrize("cursor", [True, False], ids=["cursor", "no-cursor"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_task_that_is_silent_for_long_is_waited_for(dialect: str, cursor: bool) -> None:
    async with behind(dialect, cursor=cursor) as (agent, _, going):
        events = agent.stream("go")
        await first_word(events)
        rest = asyncio.create_task(ends_well(events))
        done, _ = await asyncio.wait({rest}, timeout=5 * SHORT.patience)
        assert not done, "it was given up"
        going.set()
        await rest


@pytest.mark.slow  # takes two seconds
@pytest.mark.parametrize("dialect", DIALECTS[:2])
async def test_a_network_that_stalls_is_waited_for(dialect: str) -> None:
    async with behind(dialect) as (agent, proxy, going):
        events = agent.stream("go")
        await first_word(events)
        proxy.flows.clear()
        rest = asyncio.create_task(ends_well(events))
        await tried(proxy, rest, 3)  # the stream fell silent, and so did those that followed
        going.set()
        done, _ = await asyncio.wait({rest}, timeout=5 * SHORT.patience)
        assert not done, "it was given up"
        proxy.flows.set()
        await rest


@pytest.mark.slow  # takes two seconds
@pytest.mark.parametrize("streams", [True, False], ids=["stream", "polled"])
async def test_a_server_that_is_away_is_given_time_not_tries(streams: bool) -> None:
    async with behind("a2a-1.0", streams=streams, patience=30) as (agent, proxy, going):
        events = agent.stream("go")
        await first_word(events)
        proxy.on, proxy.after = True, lambda: 0
        proxy.cut_all()
        rest = asyncio.create_task(ends_well(events))
        await tried(proxy, rest, 12)  # 3 of them are all that one call tries
        proxy.on = False
        going.set()
        await rest


async def test_what_never_comes_back_is_given_up_after_some_tries() -> None:
    async with behind("a2a-1.0") as (agent, proxy, _):
        events = agent.stream("go")
        await first_word(events)
        before = proxy.connections
        proxy.on, proxy.after = True, lambda: 0
        proxy.cut_all()
        with pytest.raises(PeerUnreachable):
            await ends_well(events)
        assert proxy.connections - before >= 3
