"""`dragoman gateway`: agents of every dialect behind one address, in every dialect."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from dragoman import settings as config
from dragoman.agent import Agent
from dragoman.core.dialect import Dialect
from dragoman.core.errors import ConfigError
from dragoman.core.log import Logger
from dragoman.dialects import DIALECTS
from dragoman.dialects.losses import lost_between
from dragoman.gateway import UpstreamAgent
from dragoman.gateway.configuration import registered
from dragoman.net.grpc.service import asked_for
from dragoman.net.http.mount_point import AGENTS
from dragoman.server.agent_loader import load_agents
from dragoman.server.agent_names import by_name
from dragoman.server.serve import run, shown
from dragoman.server.workers import current_worker, settings_of_worker
from dragoman.settings import Settings

from ..formatting import line
from ..json_output import show
from ..store_access import AsJson, has_link_keys
from ..terminal_style import bold, cyan, say
from .serve import announce_grpc
from .server_flags import (
    Grpc,
    GrpcPort,
    Host,
    Insecure,
    LogFormat,
    LogLevel,
    Port,
    StoreFlag,
    Workers,
    set_up_json_log,
)
from .settings_watch import SettingsWatch
from .start_check import check_start, unknown_agents

gateway = App(
    name="gateway",
    help="Serve agents that are elsewhere, in any dialect, in every dialect.",
)
gateway.command("dragoman.cli.serve.gateway_status:status", name="status")
REACHED = 5.0
"""The seconds after the start in which the gateway reports which agents it has reached."""
SMALLEST = 'Write one:\n\n  [agents.alpha]\n  url = "http://127.0.0.1:9001"\n'

log = Logger("gateway")

Registry = Annotated[
    bool | None,
    Parameter(
        help="Serve agents that are registered, too; then every agent is at /agents/NAME. "
        "[default: unless there is exactly one]",
        negative="--no-registry",
    ),
]
File = Annotated[Path | None, Parameter(help="Settings file. [default: dragoman.toml]")]


@gateway.default
def serve(
    file: File = None,
    /,
    *,
    host: Host = None,
    port: Port = None,
    grpc: Grpc = None,
    grpc_port: GrpcPort = None,
    store: StoreFlag = None,
    public_url: Annotated[
        str | None, Parameter(help="Where others reach the gateway; stands on the cards.")
    ] = None,
    insecure: Insecure = None,
    registry: Registry = None,
    watch: Annotated[
        bool,
        Parameter(
            help="Follow the settings file: its agents come, change and go with it. Then every "
            "agent is at /agents/NAME.",
            negative=(),
        ),
    ] = False,
    workers: Workers = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Serve the agents of the settings until Ctrl-C: those at an address and those in files.

    Each `[agents.NAME]` has a `url`, in any dialect, or a `file`. It is served at /agents/NAME in
    every dialect, or at / if it is the only one. With an IAT secret, sub-agents register at /iat.
    With keys for XiaoYi links in the store, agents dial in, and no other agent is needed.
    """
    flags = {
        "host": host,
        "port": port,
        "grpc": grpc,
        "grpc_port": grpc_port,
        "store": store,
        "public_url": public_url,
        "insecure": insecure,
        "workers": workers,
        "log_level": log_level,
        "log_format": log_format,
    }
    settings, agents = _loaded(file, flags, registry=bool(registry), starts=True)
    several = len(agents) != 1 or bool(registry) or watch
    registers = several and registry is not False
    host_side = registers and settings.iat.enabled and settings.iat.secret is not None
    path = file or Path(config.FILE)
    for problem in unknown_agents(agents, settings, others_come=bool(registry) or watch):
        log.warning(problem)
    run(
        agents,
        settings,
        lambda url: announce(agents, settings, url, several=several, host_side=host_side),
        several=several,
        registers=registered(settings) if registers else None,
        beside=SettingsWatch(
            path,
            lambda: _of_this_process(_settings(path, flags, registry=bool(registry) or not agents)),
            _of_this_process(settings),
            agents,
        ).run
        if watch
        else None,
    )


@gateway.command
def check(file: File = None, /, *, registry: Registry = None) -> None:
    """Check the settings of a gateway without calling any agent: whatever the gateway would refuse
    at its start. The exit code is 2 if something is wrong, and the message names the line."""
    settings, agents = _loaded(file, {}, registry=bool(registry))
    several = len(agents) != 1 or bool(registry)
    registers = registered(settings) if several and registry is not False else None
    check_start(agents, settings, several=several, registers=registers, others_come=bool(registry))
    for name, agent in agents.items():
        say(f"{bold(name)}  {_where(agent, settings, name)}")
    say(f"{len(agents)} agents; nothing is wrong with the settings.")


@gateway.command
def losses(
    *,
    caller: Annotated[
        str | None, Parameter(name="--from", help="The dialect that the caller speaks.")
    ] = None,
    agent: Annotated[
        str | None, Parameter(name="--to", help="The dialect that the agent speaks.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a translation between two dialects cannot carry, for every pair or for some."""
    pairs: list[dict[str, Any]] = [
        {"from": one.name, "to": other.name, "lost": list(lost_between(one, other))}
        for one in _dialects(caller, served=True)
        for other in _dialects(agent, served=False)
    ]
    if as_json:
        for pair in pairs:
            show(pair)
        return
    for pair in pairs:
        lost = "; ".join(pair["lost"]) or "nothing"
        say(f"{bold(pair['from'] + ' -> ' + pair['to'])}  {lost}")


def _dialects(name: str | None, *, served: bool) -> list[Dialect]:
    """Returns the dialect of this name, or all dialects: those that we serve, or those that we
    call."""
    known = {each.name: each for each in DIALECTS.values() if each.callee is not None or not served}
    if name is None:
        return list(known.values())
    if name not in known:
        raise ConfigError(f"There is no dialect '{name}'; there are: {', '.join(known)}.")
    return [known[name]]


def _loaded(
    file: Path | None,
    flags: Mapping[str, object],
    *,
    registry: bool = False,
    starts: bool = False,
) -> tuple[Settings, Mapping[str, Agent]]:
    path = file or Path(config.FILE)
    if path.is_file() or file is None:
        settings = config.load(flags, os.environ, path if path.is_file() else None)
        if not settings.agents and (settings.channels or has_link_keys(settings.server.store)):
            return settings, {}  # all agents dial in, or are met in chat rooms
    settings = _settings(path, flags, registry=registry)
    if starts:
        set_up_json_log(settings)
    return settings, by_name(load_agents((), settings), several=registry)


def _of_this_process(settings: Settings) -> Settings:
    worker = current_worker()
    return settings if worker is None else settings_of_worker(settings, worker)


def _settings(path: Path, flags: Mapping[str, object], *, registry: bool) -> Settings:
    if not path.is_file():
        raise ConfigError(f"There is no file {path}. {SMALLEST}")
    settings = config.load(flags, os.environ, path)
    if not settings.agents and not registry:
        raise ConfigError(f"{path} names no agents. {SMALLEST}")
    return settings


def announce(
    agents: Mapping[str, Agent],
    settings: Settings,
    url: str,
    *,
    several: bool | None = None,
    host_side: bool = False,
) -> None:
    """Prints which agents are served at which addresses, and in which dialect each is called.
    `host_side` says whether sub-agents may register."""
    several = len(agents) > 1 if several is None else several
    say(f"{bold('The gateway')} listens at {cyan(f'{url}/')}")
    for name, agent in agents.items():
        here = f"{url}{AGENTS}/{name}/" if several else f"{url}/"
        say(f"  {bold(name)}  {cyan(here)}  {_where(agent, settings, name)}")
    if several:
        say(f"  list   {url}{AGENTS}")
    if host_side:
        say(f"  IAT    sub-agents register at {url}/iat")
    if settings.server.grpc_listed and asked_for(settings):
        announce_grpc()
    say(f"  store  {shown(settings.server.store)}")
    say("  Ctrl-C stops it")
    upstream = [agent for agent in agents.values() if isinstance(agent, UpstreamAgent)]
    if settings.server.workers > 1:
        return  # this process calls no agent itself
    _telling.append(asyncio.get_running_loop().create_task(_tell(upstream)))


_telling: list[asyncio.Task[None]] = []
"""References to running tasks, because asyncio holds only weak ones."""


async def _tell(agents: list[UpstreamAgent]) -> None:
    """Prints in which dialect each agent is called, as soon as it is reached."""
    waiting = list(agents)
    until = asyncio.get_running_loop().time() + REACHED
    while waiting and asyncio.get_running_loop().time() < until:
        for agent in [each for each in waiting if each.dialect]:
            waiting.remove(agent)
            say(f"  {bold(agent.served_as)}  {line(agent.name)} speaks {agent.dialect}")
        await asyncio.sleep(0.1)
    for agent in waiting:
        what = f"cannot be reached at {agent.pool.url}; it is served, and asked again"
        say(f"  {bold(agent.served_as)}  {what}")


def _where(agent: Agent, settings: Settings, name: str) -> str:
    if isinstance(agent, UpstreamAgent):
        return f"asks {agent.pool.url}"
    return f"runs {settings.agents[name].file}"
