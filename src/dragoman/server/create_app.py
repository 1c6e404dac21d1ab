"""Makes the ASGI app for a server that is not ours."""

from __future__ import annotations

import os
from pathlib import Path

from dragoman import settings as config
from dragoman.core.errors import ConfigError
from dragoman.observability.log import HostLog
from dragoman.security.allowed_hosts import AllowedHosts
from dragoman.security.call_policy import CallPolicy
from dragoman.settings import Settings

from .agent_loader import load_agents
from .agent_names import Agents, by_name
from .app import App
from .engines import engines_for


def create_app(
    agents: Agents | None = None,
    settings: Settings | None = None,
    *,
    several: bool | None = None,
    policy: CallPolicy | None = None,
) -> App:
    """Returns an ASGI app, which any ASGI server can run.

    One agent is served at `/`, several at `/agents/{name}`. A mapping gives each agent its name;
    otherwise the name is derived from the agent's own. Without `agents`, the variable
    `DRAGOMAN_AGENT=file.py:name` or the sections `[agents.NAME]` of the settings name them.

    With `several`, a single agent is served at `/agents/{name}` too, or none at first. Agents can
    then be added and removed with `App.add_agent` and `App.remove_agent`.

    `policy(caller, agent, operation, skill, task)` may refuse calls to any of them, like
    `[[policy]]` in the settings.
    """
    if settings is None:
        path = os.environ.get("DRAGOMAN_CONFIG")
        settings = config.load(None, os.environ, Path(path) if path else None)
    if agents is None:
        where = os.environ.get("DRAGOMAN_AGENT", "")
        if not where and not settings.agents:
            raise ConfigError("Which agent? Set DRAGOMAN_AGENT=file.py:name")
        agents = load_agents([where] if where else [], settings)
    named = by_name(agents, several=several)
    log = HostLog(settings.server.log_level)
    # The address that the server is bound to is not known here.
    hosts = AllowedHosts(settings.server, anywhere=True, origins=settings.cors.origins)
    peers, pool = engines_for(named, settings, several=several)
    base = settings.server.public_url
    return App(
        *(named, peers, settings, log, base),
        pool=pool,
        hosts=hosts,
        several=several,
        policy=policy,
    )
