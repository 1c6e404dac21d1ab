"""Hosts and sub-agents on real ports of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from dragoman import Agent, Message, Turn
from dragoman.core.auth_schemes import Secret
from dragoman.core.events import Ask, Asked, Stamped
from dragoman.dialects.iat.wire import Envelope, Kind, envelope_out
from dragoman.iat import Host
from dragoman.settings import Iat, Settings
from dragoman.testing.served import served

SECRET = "an-open-secret-of-these-tests"
WAYS = ("ws", "http")


def settings(
    folder: Path, name: str, *, host: str = "", memory: bool = True, **server: Any
) -> Settings:
    """Settings of one process, with the secret that all of them share."""
    (folder / "secret").write_text(SECRET)
    store = "memory:" if memory else f"sqlite:///{folder}/{name}.db"
    known = Settings()
    return replace(
        known,
        server=replace(known.server, store=store, allow_private=True, **server),
        iat=Iat(secret=Secret(file=str(folder / "secret")), host=host, agent_id=name),
    )


def at(url: str, way: str) -> str:
    """The host's address, for this way."""
    return url.replace("http:", f"{way}:")


def joining(url: str, way: str, host: str = "engine") -> str:
    """What an agent is given to join a host: its name, and its address."""
    return f"{host}={at(url, way)}"


def worker() -> Agent:
    """Does all that a sub-agent can: thinks, logs, calls a tool, asks for approval, streams."""
    agent = Agent("Worker", description="Works.")

    @agent.skill("work")
    async def work(turn: Turn) -> AsyncIterator[str]:
        await turn.think("How large is it?")
        size = await turn.call_tool("size", path=turn.text)
        await turn.log("measured", level="debug", size=size)
        yield f"{turn.text} has "
        yield f"{size} bytes"
        if await turn.approve("Delete it?", details={"path": turn.text}):
            yield ", deleted"
        else:
            yield ", kept"
        await turn.usage(tokens=7)

    return agent


def engine_host(**about: Any) -> Host:
    """A host with two tools."""
    host = Host("engine", description="Has sub-agents.", **about)

    @host.tool
    def size(path: str) -> int:
        """How large a file is."""
        return len(path)

    @host.tool
    async def shout(words: str) -> str:
        """Louder."""
        return words.upper()

    return host


@asynccontextmanager
async def team(
    folder: Path, host: Host, agents: dict[str, Agent], way: str = "ws", **about: Any
) -> AsyncIterator[str]:
    """A host and the agents that joined it; the host's address."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(served(host, settings(folder, host.name, **about)))
        for name, agent in agents.items():
            own = settings(folder, name, host=joining(url, way, host.name))
            await stack.enter_async_context(served(agent, own))
        for name in agents:
            await host.find(name, 5)
        yield url


def registering(name: str, endpoint: str, host: str = "engine") -> bytes:
    """The `register` of an agent at this address."""
    said = Envelope(
        kind=Kind.REQUEST,
        action="register",
        payload={"agent_id": name, "endpoint": endpoint, "tools": []},
        id=uuid4().hex,
        sender=name,
        to=host,
    )
    return envelope_out(said)


Decide = Callable[[Asked], Awaitable[object]]


async def story(
    host: Host, query: str, decide: object = None, **about: Any
) -> tuple[list[Stamped], Any]:
    """All that happened, and the task at its end; approvals are answered with `decide`."""
    seen: list[Stamped] = []
    answering: list[asyncio.Task[None]] = []
    task_id = ""
    async for batch in host.execute(query, **about):
        for entry in batch.entries:
            assert not isinstance(entry, Message)
            seen.append(entry)
            task_id = entry.task_id
            event = entry.event
            if isinstance(event, Asked) and event.kind is Ask.APPROVAL and decide is not None:
                value = {"approved": decide}
                asked = host.answer(task_id, event.question, value)
                answering.append(asyncio.get_running_loop().create_task(asked))
    await asyncio.gather(*answering)
    from dragoman.core.operations import GetTask
    from dragoman.iat.host import OPERATOR

    assert host.peer is not None
    return seen, await host.peer.call(GetTask(task_id=task_id), OPERATOR)
