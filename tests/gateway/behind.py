"""Gateways in front of agents, all on real ports of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman import Agent, Turn
from dragoman.core.auth_schemes import Secret
from dragoman.core.model import Blob
from dragoman.gateway import UpstreamAgent
from dragoman.server.agent_loader import load_agents
from dragoman.server.agent_names import by_name
from dragoman.settings import HostedAgent, Iat, Settings
from dragoman.testing.served import served
from waiting import until

SECRET = "an-open-secret-of-these-tests"
DIALECTS = (
    *("a2a-1.0", "a2a-1.0-rest", "a2a-1.0-grpc", "a2a-0.3", "a2a-0.3-rest", "a2a-0.3-grpc"),
    *("a2a-0.1", "a2a-go", "iat", "iat-ws"),
)


def settings(
    folder: Path, *, name: str = "", store: str = "memory:", grpc_port: int = 0, **more: Any
) -> Settings:
    """Settings of a server with an IAT secret, which its callers know."""
    (folder / "secret").write_text(SECRET)
    known = Settings()
    server = replace(known.server, store=store, allow_private=True)
    if grpc_port:
        server = replace(server, grpc=True, grpc_port=grpc_port)
    iat = Iat(secret=Secret(file=str(folder / "secret")), agent_id=name)
    return replace(known, **{"server": server, "iat": iat, **more})


def section(folder: Path, url: str, dialect: str = "", grpc_port: int = 0) -> dict[str, Any]:
    """The `[agents.NAME]` for an agent of ours at this address, called in this dialect."""
    host = url.partition("://")[2]
    secret = {"file": str(folder / "secret")}
    match dialect:
        case "iat":
            return {"url": f"iat+http://{host}/iat", "secret": secret, "agent_id": "worker"}
        case "iat-ws":
            return {"url": f"iat+ws://{host}/iat/ws", "secret": secret, "agent_id": "worker"}
        case "a2a-1.0-grpc" | "a2a-0.3-grpc":
            return {"url": f"a2a+grpc://127.0.0.1:{grpc_port}", "dialect": dialect}
        case "":
            return {"url": url}
    return {"url": url, "dialect": dialect}


class Gateway:
    """A gateway that runs."""

    def __init__(self, url: str, agents: Mapping[str, Agent]) -> None:
        self.url, self.agents = url, agents

    def at(self, name: str) -> str:
        """The address of an agent here."""
        return self.url if len(self.agents) == 1 else f"{self.url}/agents/{name}"

    def upstream(self, name: str) -> UpstreamAgent:
        """An agent that is elsewhere."""
        found = self.agents[name]
        assert isinstance(found, UpstreamAgent)
        return found

    async def known(self) -> None:
        """Waits until the cards of all agents are known."""
        for agent in self.agents.values():
            if isinstance(agent, UpstreamAgent):
                await until(lambda agent=agent: agent.dialect)


def hosted(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, HostedAgent]:
    """These `[agents.NAME]`, as settings have them."""
    return msgspec.convert(sections, dict[str, HostedAgent])


@asynccontextmanager
async def gateway(
    sections: Mapping[str, Mapping[str, Any]], own: Settings, *, wait: bool = True
) -> AsyncIterator[Gateway]:
    """A gateway with these `[agents.NAME]`."""
    own = replace(own, agents=hosted(sections))
    agents = by_name(load_agents((), own))
    async with served(agents, own) as url:
        found = Gateway(url, agents)
        if wait:
            await found.known()
        yield found


def worker(*, default: bool = True) -> Agent:
    """Does one of everything; without a `default`, callers name the skill."""
    agent = Agent("Worker", description="Works.", version="2.1.0")

    @agent.skill("echo", default=default, tags=["loud"])
    async def echo(turn: Turn) -> str:
        return turn.text.upper()

    @agent.skill("count")
    async def count(turn: Turn) -> AsyncIterator[str]:
        for number in range(int(turn.text)):
            yield f"{number} "

    @agent.skill("trip")
    async def trip(turn: Turn) -> str:
        city = await turn.ask("Which city?")
        days = await turn.ask("How many days?")
        return f"{days} days in {city}"

    @agent.skill("order")
    async def order(turn: Turn) -> str:
        if not await turn.approve("Buy it?", details={"price": 12}):
            raise turn.reject("Not approved")
        return "bought"

    @agent.skill("slow")
    async def slow(turn: Turn) -> str:
        await turn.say("begun")
        await asyncio.Event().wait()  # until it is canceled
        return "never"

    @agent.skill("file")
    async def file(turn: Turn) -> Blob:
        (given,) = turn.files
        assert isinstance(given, Blob)
        return Blob(given.content[::-1], filename="back.bin", media_type="application/x-back")

    @agent.skill("fail")
    async def fail(turn: Turn) -> str:
        raise turn.fail("No paper left", reason="paper")

    @agent.skill("refuse")
    async def refuse(turn: Turn) -> str:
        raise turn.reject("Not for me")

    @agent.skill("greet", may_reply=True)
    async def greet(turn: Turn) -> None:
        await turn.reply("hello yourself")

    @agent.skill("work")
    async def work(turn: Turn) -> str:
        await turn.say("looking", metadata={"n": 1})
        await turn.think("hm")
        await turn.progress(0.5, eta=2)
        return "found"

    @agent.skill("context")
    async def context(turn: Turn) -> dict[str, Any]:
        said = [message.text for message in await turn.conversation()]
        return {"context": turn.context_id, "said": said, "references": list(turn.references)}

    return agent
