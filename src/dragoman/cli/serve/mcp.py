"""`dragoman mcp`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
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
from dragoman.mcp import extra
from dragoman.mcp.tools import OfferedAgent
from dragoman.observability.log import set_up
from dragoman.server.agent_loader import load_agent, split_name
from dragoman.server.agent_names import slug
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
from .server_flags import ConfigFile

log = Logger("mcp")


def mcp(
    *agents: Annotated[
        str,
        Parameter(
            help="Python file with an agent (FILE or FILE:NAME), or the address of an agent in any "
            "dialect; NAME=FILE and NAME=URL give it a name."
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
    if not agents:
        raise ConfigError("Which agents? Give files or addresses: dragoman mcp FILE.py URL")
    set_up(settings.server.log_level)
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
            files = [each for each in given if not _is_address(each[1])]
            offered = await stack.enter_async_context(_local(files, settings)) if files else []
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


@asynccontextmanager
async def _local(
    files: Sequence[tuple[str, str]], settings: Settings
) -> AsyncIterator[list[OfferedAgent]]:
    """Yields the agents in files, which run in this process."""
    with redirect_stdout(sys.stderr):  # the client reads standard output
        loaded = [(name, load_agent(where)) for name, where in files]
    agents: dict[str, Agent] = {}
    for name, agent in loaded:
        name = name or (_name(agent.name) if len(loaded) > 1 else "")
        if name in agents:
            raise ConfigError(f"Two agents are called '{name}': write NAME=FILE for one of them.")
        agents[name] = agent
    peers, pool = engines_for(agents, settings)
    running = RunningPeers(peers.values(), pool.store if pool is not None else None)
    await running.start()
    try:
        yield [_offered(name, peers[name], agent.card) for name, agent in agents.items()]
    finally:
        await running.stop()


async def _remote(
    stack: AsyncExitStack, name: str, url: str, way: ConnectionOptions
) -> list[OfferedAgent]:
    """Returns the agent at an address, or None if it cannot be reached: the others can still be
    used."""
    if way.to and proof_at(url, way.dialect) is None:
        way = replace(way, to="")  # the name is only for the other addresses
    try:
        agent = await stack.enter_async_context(agent_at(url, way))
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
