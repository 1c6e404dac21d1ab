"""`dragoman iat host`: a host that has sub-agents work, with a person at the terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from .. import settings as config
from ..app import load_agent, run
from ..errors import ConfigError
from ..iat import Host
from ..iat.terminal import Terminal

iat = App(name="iat", help="Run a host that has sub-agents over IAT.")


@iat.command
def host(
    file: Annotated[
        str | None, Parameter(help="Python file with a Host and its tools, or FILE:NAME.")
    ] = None,
    /,
    *,
    listen: Annotated[str | None, Parameter(name="--host", help="Address to listen on.")] = None,
    port: Annotated[int | None, Parameter(help="HTTP port, 0 for a free one.")] = None,
    store: Annotated[str | None, Parameter(help="Where tasks and approvals live.")] = None,
    execute: Annotated[str | None, Parameter(help="Do this one thing, then end.")] = None,
    agent: Annotated[str, Parameter(help="Which sub-agent does it. [default: the only one]")] = "",
    allow_tool: Annotated[
        tuple[str, ...] | None,
        Parameter(help="Tools it may call. [default: all of the host's]", negative=()),
    ] = None,
    allow_private: Annotated[
        bool | None,
        Parameter(help="Call sub-agents back at private addresses.", negative=()),
    ] = None,
    insecure: Annotated[
        bool | None, Parameter(help="Let everyone register, without a secret.", negative=())
    ] = None,
    config_file: Annotated[
        Path | None, Parameter(name="--config", help="Settings file. [default: dragoman.toml]")
    ] = None,
) -> None:
    """Run an IAT host: sub-agents register with it, you give them work and approve what they ask.

    They share a secret with it: the variable IAT_SECRET, or `[iat] secret`. Type `NAME: query`.
    Without a terminal, approvals wait for `dragoman approvals`. With --execute the exit code is 0
    if it was completed, else 1.
    """
    flags = {
        "host": listen,
        "port": port,
        "store": store,
        "allow_private": allow_private,
        "insecure": insecure,
        "grpc": False,
        "log_level": "warning",
    }
    settings = config.load(flags, os.environ, config_file)
    if settings.iat.secret is None and not settings.server.insecure:
        raise ConfigError("Sub-agents need a secret: set IAT_SECRET, or let everyone: --insecure.")
    found = load_agent(file) if file else Host()
    if not isinstance(found, Host):
        raise ConfigError(f"{file} has an Agent, but no Host: from dragoman.iat import Host")
    codes: list[int] = []
    works: list[asyncio.Task[None]] = []
    person = sys.stdin.isatty()
    terminal = Terminal(found, lambda line: print(line, flush=True), person=person)

    async def work() -> None:
        if execute is not None:
            if person:
                works.append(asyncio.get_running_loop().create_task(terminal.read(_lines())))
            codes.append(0 if await terminal.execute(execute, agent, allow_tool) else 1)
        else:
            await terminal.read(_lines())
            if not person:  # nobody types, but sub-agents may still come and callers give work
                return
        os.kill(os.getpid(), signal.SIGTERM)

    def started(url: str) -> None:
        ws = url.replace("http", "ws", 1)
        print(f"{found.name} waits for sub-agents at {ws}/iat/ws and {url}/iat", flush=True)
        works.append(asyncio.get_running_loop().create_task(work()))

    run(found, settings, started)
    sys.exit(codes[0] if codes else 0)


async def _lines() -> AsyncIterator[str]:
    """What is typed. A thread reads, since a terminal cannot be waited for; it ends with us."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[str | None](64)

    def read() -> None:
        for line in sys.stdin:
            asyncio.run_coroutine_threadsafe(queue.put(line), loop)
        asyncio.run_coroutine_threadsafe(queue.put(None), loop)

    threading.Thread(target=read, daemon=True).start()
    while (line := await queue.get()) is not None:
        yield line
