"""`serve --check` and `gateway check`: finds what a start would refuse, without starting.

The whole app is made as at the start, over a store in memory: no port is opened, no file written
and nobody called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.agent import Agent
from dragoman.core.errors import ConfigError
from dragoman.observability.log import Log
from dragoman.security import tls
from dragoman.server.agent_names import title_slug
from dragoman.settings import Settings
from dragoman.settings.checks import agents_named

from ..store_access import has_link_keys
from ..terminal_style import say

if TYPE_CHECKING:
    from dragoman.gateway.registry import Factory


def check_start(
    agents: Mapping[str, Agent],
    settings: Settings,
    *,
    several: bool | None = None,
    registers: Factory | None = None,
    others_come: bool = False,
) -> None:
    """Raises the `ConfigError` with which a server of these agents would not start, and prints what
    is odd."""
    from dragoman.server.app import App
    from dragoman.server.engines import engines_for
    from dragoman.server.serve import check_agent
    from dragoman.store import open_store

    for agent in agents.values():
        check_agent(settings, agent)
    tls.check(settings.tls)
    open_store(settings.server.store)  # it is not opened: only its address is read
    for problem in unknown_agents(agents, settings, others_come=others_come):
        say(problem)
    trial = replace(settings, server=replace(settings.server, store="memory:", audit=""))

    async def make() -> None:
        peers, pool = engines_for(agents, trial, several=several)
        App(
            agents,
            peers,
            trial,
            Log("error"),
            trial.server.public_url,
            pool=pool,
            several=several,
            check=partial(check_agent, settings),
            registers=registers,
        )

    asyncio.run(make())


def unknown_agents(
    agents: Mapping[str, Agent], settings: Settings, *, others_come: bool
) -> list[str]:
    """Returns what the settings say about agents that are not there.

    A rule that misspells its agent allows what it should refuse. So that is a `ConfigError`, unless
    agents may come that are not in the settings: `others_come`, or they meet us in rooms, register
    as IAT sub-agents or dial in."""
    known = [name or title_slug(agent.name) for name, agent in agents.items()]
    found = [
        f"{place}: there is no agent '{name}'; there are: {', '.join(known) or 'none'}."
        for place, name in agents_named(settings)
        if name not in known
    ]
    if not found:
        return []
    iat = settings.iat.enabled and settings.iat.secret is not None
    others_come = others_come or bool(settings.channels) or (iat and len(agents) > 1)
    if not others_come and not has_link_keys(settings.server.store):
        hint = "If it is one that registers later, start the gateway with --registry."
        raise ConfigError(f"{found[0]} {hint}")
    return found
