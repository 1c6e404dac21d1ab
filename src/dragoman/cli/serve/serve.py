"""`dragoman serve`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dragoman.core.errors import ConfigError

from ..terminal_style import bold, cyan, say
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

if TYPE_CHECKING:
    from dragoman.agent import Agent


def serve(
    *files: Annotated[
        str,
        Parameter(
            help="Python file or package.module with the agent, or FILE:NAME; NAME may be a "
            "function that makes it. Several are served at /agents/NAME; NAME=FILE gives a name. "
            "[default: those of \\[agents.NAME] in the settings]"
        ),
    ],
    host: Host = None,
    port: Port = None,
    grpc: Grpc = None,
    grpc_port: GrpcPort = None,
    grpc_url: Annotated[
        str | None,
        Parameter(help="Where others reach gRPC, as HOST:PORT; needed with --public-url."),
    ] = None,
    mcp: Annotated[
        bool | None,
        Parameter(
            help="Offer the skills as MCP tools at /mcp. [default: if the extra is installed]",
            negative="--no-mcp",
        ),
    ] = None,
    store: StoreFlag = None,
    public_url: Annotated[
        str | None, Parameter(help="Where others reach this agent; stands on its card.")
    ] = None,
    register: Annotated[
        str | None,
        Parameter(help="Gateway to register with while it runs. [token: DRAGOMAN_REGISTRY_TOKEN]"),
    ] = None,
    signing_key: Annotated[
        tuple[str, ...] | None,
        Parameter(help="Key that signs the card, or a folder of them; the newest signs."),
    ] = None,
    workspace: Annotated[
        str | None, Parameter(help="Folder that tools may touch, and nothing outside of it.")
    ] = None,
    allow_private: Annotated[
        bool | None, Parameter(help="Let addresses given by others lie in private networks.")
    ] = None,
    insecure: Insecure = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    iat_host: Annotated[
        str | None,
        Parameter(
            help="IAT host to register with: NAME=ws://... or NAME=http://... [secret: IAT_SECRET]"
        ),
    ] = None,
    reload: Annotated[
        bool | None, Parameter(alias="-r", help="Start again when a file in the folder changes.")
    ] = None,
    workers: Workers = None,
    watchdog: Annotated[
        float | None,
        Parameter(
            help="End with exit code 70 when the event loop is blocked for this many seconds."
        ),
    ] = None,
    check: Annotated[
        bool,
        Parameter(
            help="Only check that it would start: settings, secrets and agents.", negative=()
        ),
    ] = False,
    config_file: Annotated[
        Path | None,
        Parameter(name=("--config", "-c"), help="Settings file. [default: dragoman.toml]"),
    ] = None,
) -> None:
    """Serve the agent in a Python file, or several agents, until Ctrl-C.

    One agent is served at the address itself, several at /agents/NAME below it.

    Flags beat `DRAGOMAN_SERVER_<KEY>` variables, which beat dragoman.toml.
    """
    # `--help` needs none of this.
    from dragoman import settings as config
    from dragoman.net.grpc.service import asked_for
    from dragoman.server.agent_loader import folder_in, load_agents
    from dragoman.server.agent_names import by_name
    from dragoman.server.serve import run, shown

    flags = {
        "host": host,
        "port": port,
        "grpc": grpc,
        "grpc_port": grpc_port,
        "grpc_url": grpc_url,
        "mcp": mcp,
        "store": store,
        "public_url": public_url,
        "register": register,
        "signing_keys": signing_key,
        "workspace": workspace,
        "allow_private": allow_private,
        "insecure": insecure,
        "log_level": log_level,
        "log_format": log_format,
        "iat_host": iat_host,
        "reload": reload,
        "workers": workers,
        "watchdog": watchdog,
    }
    settings = config.load(flags, os.environ, config_file)
    if not check:
        set_up_json_log(settings)
    if not files and not settings.agents:
        raise ConfigError("Which agent? Give its file: dragoman serve FILE.py")
    if settings.server.reload and not check:
        from .reload import watch

        given = files or [each.file for each in settings.agents.values()]
        folders = [folder_in(each) for each in given]
        if not all(folders):
            load_agents(files, settings)  # raises the error: there is nothing to watch
        watch([each for each in folders if each is not None])
        return
    agents = by_name(load_agents(files, settings))
    if check or settings.policy or settings.skills:
        from .start_check import check_start, unknown_agents

        if check:
            check_start(agents, settings)
            say(f"{len(agents)} agents; nothing is wrong with the settings.")
            return
        for problem in unknown_agents(agents, settings, others_come=False):
            say(problem)
    own = all(each.keeps_tasks for each in agents.values())
    kept = "the backend's own" if own else shown(settings.server.store)
    listed = settings.server.grpc_listed and asked_for(settings)
    run(agents, settings, lambda url: announce(agents, url, kept, grpc_listed=listed))


def announce_grpc() -> None:
    """Prints what it means for some clients that the card lists gRPC."""
    say("  gRPC   is on the card. Clients that want one origin there, such as Google ADK by")
    say("         URL, refuse the card: set grpc_listed = false for them")


def announce(
    agents: Mapping[str, Agent], url: str, store: str, *, grpc_listed: bool = False
) -> None:
    """Prints what is served at which address."""
    from dragoman.net.http.mount_point import AGENTS

    for name, agent in agents.items():
        where = url if len(agents) == 1 else f"{url}{AGENTS}/{name}"
        say(f"{bold(agent.name)} listens at {cyan(f'{where}/')}  (all of A2A, and IAT)")
        say(f"  card   {where}/.well-known/agent-card.json")
    if len(agents) > 1:
        say(f"  list   {url}{AGENTS}")
    if grpc_listed:
        announce_grpc()
    say(f"  store  {store}")
    say("  Ctrl-C stops it")
