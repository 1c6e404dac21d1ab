"""`dragoman mcp`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, redirect_stdout
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from dragoman import __version__
from dragoman import settings as config
from dragoman.agent import Agent
from dragoman.core.card import Card
from dragoman.core.errors import ConfigError, DragomanError, PeerUnreachable
from dragoman.core.log import Logger
from dragoman.core.peer import ANYONE, Context, Peer
from dragoman.gateway.upstream_agent import UpstreamAgent
from dragoman.mcp import extra
from dragoman.mcp.tools import OfferedAgent
from dragoman.observability.log import set_up
from dragoman.server.agent_loader import load_agent, load_agents, split_name
from dragoman.server.agent_names import by_name, slug
from dragoman.server.engines import engines_for
from dragoman.server.running_peers import RunningPeers
from dragoman.settings import Settings

from ..session_options import (
    INTERRUPTED,
    ConnectionOptions,
    agent_at,
    interruptible,
    proof_at,
)
from ..waiting import Wait
from .server_flags import ConfigFile

log = Logger("mcp")
CARD_TIMEOUT_SECONDS = 10.0
"""How long the start waits for the cards of agents elsewhere."""


def mcp(
    *agents: Annotated[
        str,
        Parameter(
            help="Python file with an agent (FILE or FILE:NAME), or the address of an agent in any "
            "dialect; NAME=FILE and NAME=URL give it a name. "
            "[default: those of \\[agents.NAME] in the settings]"
        ),
    ],
    store: Annotated[
        str | None,
        Parameter(
            help="Where the tasks of agents in files live: sqlite:///PATH, file:///DIR or memory:. "
            "[default: sqlite:///dragoman.db]"
        ),
    ] = None,
    log_level: Annotated[
        str, Parameter(help="How much to log on standard error: debug, info, warning or error.")
    ] = "warning",
    config_file: ConfigFile = None,
    way: ConnectionOptions = ConnectionOptions(),  # noqa: B008  frozen
) -> None:
    """Offer the skills of agents as MCP tools, on standard input and output.

    An MCP client starts this command. Every skill is a tool; those of several agents are called
    AGENT__SKILL. What an agent asks is asked of the user, and a call that is canceled cancels its
    task.

    A server offers the same at /mcp over streamable HTTP: see `dragoman serve`.
    """
    extra.require()
    flags = {"store": store, "log_level": log_level}
    settings = config.load(flags, os.environ, config_file)
    if not agents and not settings.agents:
        raise ConfigError(
            "Which agents? Give files or addresses: dragoman mcp FILE.py URL, "
            "or name them in the settings: [agents.NAME]"
        )
    set_up(settings.server.log_level, settings.server.log_format)
    given = [split_name(each) for each in agents]
    try:
        asyncio.run(_serve(given, settings, way))
    except asyncio.CancelledError:
        sys.exit(INTERRUPTED)


async def _serve(
    given: Sequence[tuple[str, str]], settings: Settings, way: ConnectionOptions
) -> None:
    from dragoman.mcp.stdio import serve_stdio
    from dragoman.mcp.tool_server import ToolServer

    with interruptible(signal.SIGINT, signal.SIGTERM):
        async with AsyncExitStack() as stack:
            agents = _loaded(given, settings)
            offered = await stack.enter_async_context(_local(agents, settings)) if agents else []
            for name, url in given:
                if _is_address(url):
                    offered += await _remote(stack, name, url, way)
            if not offered:
                raise PeerUnreachable("None of these agents can be reached.")
            named = _unique(offered)
            callers = {each.name: ANYONE for each in named}
            tools = ToolServer(
                "Dragoman",
                __version__,
                {each.name: each for each in named},
                lambda request: callers,
                several=len(named) > 1,
            )
            await serve_stdio(tools.server, settings.limits.body_size)


def _is_address(where: str) -> bool:
    return "://" in where


def _loaded(given: Sequence[tuple[str, str]], settings: Settings) -> dict[str, Agent]:
    """Returns the agents in these files, or those of the settings if nothing is given."""
    with redirect_stdout(sys.stderr):  # the client reads standard output
        if not given:
            return by_name(load_agents((), settings))
        files = [each for each in given if not _is_address(each[1])]
        loaded = [(name, load_agent(where)) for name, where in files]
    agents: dict[str, Agent] = {}
    for name, agent in loaded:
        name = name or (_name(agent.name) if len(loaded) > 1 else "")
        if name in agents:
            raise ConfigError(f"Two agents are called '{name}': write NAME=FILE for one of them.")
        agents[name] = agent
    return agents


@asynccontextmanager
async def _local(
    agents: Mapping[str, Agent], settings: Settings
) -> AsyncIterator[list[OfferedAgent]]:
    """Yields the agents that run in this process. One that only relays is asked for its card before
    its tools are listed."""
    peers, pool = engines_for(agents, settings)
    running = RunningPeers(peers.values(), pool.store if pool is not None else None)
    elsewhere = [each for each in agents.values() if isinstance(each, UpstreamAgent)]
    services = [each.service() for each in elsewhere]
    await running.start()
    try:
        await asyncio.gather(*(_learn_card(each) for each in elsewhere))
        for service in services:
            await service.start()
        yield [_offered(name, peers[name], agent.card) for name, agent in agents.items()]
    finally:
        for service in services:
            await service.stop()
        await running.stop()


async def _learn_card(agent: UpstreamAgent) -> None:
    """Asks an agent elsewhere for its card. One that is silent is offered without its skills, until
    a later check reaches it."""
    try:
        async with asyncio.timeout(CARD_TIMEOUT_SECONDS):
            await agent.check()
    except TimeoutError:
        pass
    if not agent.dialect:
        log.error("An agent cannot be reached", agent=agent.served_as, address=agent.pool.url)


async def _remote(
    stack: AsyncExitStack, name: str, url: str, way: ConnectionOptions
) -> list[OfferedAgent]:
    """Returns the agent at an address, or None if it cannot be reached: the others can still be
    used."""
    if way.to and proof_at(url, way.dialect) is None:
        way = replace(way, to="")  # the name is only for the other addresses
    wait = Wait(url, response_timeout=way.timeout)
    try:
        agent = await stack.enter_async_context(agent_at(url, way, wait=wait))
        wait.rest()
    except ConfigError:
        raise
    except DragomanError as exc:
        log.error("An agent cannot be reached", address=url, why=exc.message)
        return []
    return [_offered(name, agent, lambda: agent.card)]


def _offered(name: str, peer: Peer, card: Callable[[], Card]) -> OfferedAgent:
    async def read(caller: Context) -> Card:
        return card()

    return OfferedAgent(name=name or _name(card().name), peer=peer, card=read)


def _name(title: str) -> str:
    """Returns a name that is derived from the agent's own, which may have no character that is
    allowed in a name."""
    try:
        return slug(title)
    except ConfigError:
        return "agent"


def _unique(offered: Sequence[OfferedAgent]) -> list[OfferedAgent]:
    names = [each.name for each in offered]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"Two agents are called '{twice}': give one another name with NAME=FILE or NAME=URL."
        )
    return list(offered)
