"""`dragoman iat`: a host with a person at the terminal, and the list of sessions of an agent."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import threading
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from dragoman import settings as config
from dragoman.core.errors import ConfigError
from dragoman.iat import Host
from dragoman.iat.screen import Screen
from dragoman.iat.terminal import Terminal, clean
from dragoman.server.agent_loader import load_agent
from dragoman.server.serve import run
from dragoman.store import Store
from dragoman.store.sessions import TokenSession

from ..store_access import StoreUrl, opened, shown_time
from .server_flags import ConfigFile

iat = App(name="iat", help="Run a host that has sub-agents over IAT; list and end sessions.")

SHOWN = ("who", "agent", "owner", "since", "until", "tools")
"""The columns of the list of sessions."""
_AllowPrivate = Annotated[bool | None, Parameter(help="Call sub-agents back at private addresses.")]
_Insecure = Annotated[bool | None, Parameter(help="Let everyone register, without a secret.")]


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
    to: Annotated[str, Parameter(help="Which sub-agent does it. [default: the only one]")] = "",
    agent: Annotated[
        tuple[str, ...],
        Parameter(
            help="Address of an agent that does not register: URL, or NAME=URL for one that"
            " shares the secret; repeatable.",
            negative="",
        ),
    ] = (),
    allow_tool: Annotated[
        tuple[str, ...] | None, Parameter(help="Tools it may call. [default: all of the host's]")
    ] = None,
    allow_private: _AllowPrivate = None,
    insecure: _Insecure = None,
    config_file: ConfigFile = None,
) -> None:
    """Run an IAT host: sub-agents register with it, you give them work and approve what they ask.

    They share a secret with it: the variable IAT_SECRET, or `[iat] secret`. Agents that do not
    register are called at their --agent, and need no secret. Type `NAME: query`. Without a
    terminal, approvals wait for `dragoman approvals`. With --execute the exit code is 0 if it was
    completed, else 1.
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
    found = load_agent(file) if file else Host()
    if not isinstance(found, Host):
        raise ConfigError(f"{file} has an Agent, but no Host: from dragoman.iat import Host")
    for address in agent:
        found.add_address(address)
    if settings.iat.secret is None and not settings.server.insecure and not found.addresses:
        raise ConfigError("Sub-agents need a secret: set IAT_SECRET, or let everyone: --insecure.")
    codes: list[int] = []
    works: list[asyncio.Task[None]] = []
    person = sys.stdin.isatty()
    screen = _screen(watched=person and sys.stdout.isatty())
    terminal = Terminal(found, screen, person=person)

    async def work() -> None:
        if execute is not None:
            if person:
                works.append(asyncio.get_running_loop().create_task(terminal.read(_lines())))
            codes.append(0 if await terminal.execute(execute, to, allow_tool) else 1)
        else:
            await terminal.read(_lines())
            if not person:  # there is no input, but sub-agents and callers may still connect
                return
        os.kill(os.getpid(), signal.SIGTERM)

    def started(url: str) -> None:
        ws = url.replace("http", "ws", 1)
        print(f"{found.name} waits at {url}/iat and {ws}/iat/ws", flush=True)
        works.append(asyncio.get_running_loop().create_task(work()))

    run(found, settings, started)
    if person:
        screen.finish()
        kept = terminal.unfinished and not settings.server.store.startswith("memory:")
        print(f"{found.name} has ended.", "Its work goes on at the next start." if kept else "")
    sys.exit(codes[0] if codes else 0)


def _screen(*, watched: bool) -> Screen:
    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    if not watched:
        return Screen(write)
    colors = not os.environ.get("NO_COLOR")
    return Screen(write, columns=shutil.get_terminal_size().columns, colors=colors)


@iat.command
def sessions(
    *,
    as_json: Annotated[
        bool, Parameter(name=("--json", "-j"), help="One JSON object per line.")
    ] = False,
    store: StoreUrl = None,
) -> None:
    """List who has a session with an agent of this store, oldest first.

    A session begins with `register` or `HELO` and is shown by its token in every message. Tokens
    are not kept, so none is shown.
    """

    async def look(found: Store) -> list[TokenSession]:
        return await found.sessions.list_valid(None, None)

    kept = opened(store, look)
    if not kept and not as_json:
        print("Nobody has a session.")
    for one in kept:
        owner = f"{one.tenant}/{one.principal}".lstrip("/")
        since, until = shown_time(one.since), shown_time(one.until)
        tools = len({tool.name for tool in (*one.tools, *one.granted)})
        if as_json:
            told = (one.who, one.agent, owner, since, until, tools)
            print(msgspec.json.encode(dict(zip(SHOWN, told, strict=True))).decode())
        else:
            print(
                f"{clean(one.who)}  with {clean(one.agent)}  for {clean(owner)}  "
                f"since {since}  until {until}  tools {tools}"
            )


@iat.command
def revoke(
    *who: Annotated[str, Parameter(help="The agent or host, as `dragoman iat sessions` shows it.")],
    agent: Annotated[
        str | None, Parameter(help="Only its sessions with this agent. [default: all]")
    ] = None,
    store: StoreUrl = None,
) -> None:
    """End every session of an agent or host: its tokens are refused from the next second on.

    A running server on the same store notices this by itself, and refuses the next frame of an open
    WebSocket. An agent that still has the shared secret can register again, so change that too.
    """
    if not who:
        raise ConfigError("Whose sessions? Give a name that `dragoman iat sessions` shows.")

    async def work(found: Store) -> dict[str, int]:
        return {name: await found.sessions.revoke(name, agent) for name in who}

    ended = opened(store, work)
    for name, count in ended.items():
        if count:
            print(f"revoked  {clean(name)}  {count} session{'s' if count > 1 else ''}")
    if missing := [name for name, count in ended.items() if not count]:
        raise ConfigError(
            f"No session of {', '.join(map(clean, missing))}; see `dragoman iat sessions`."
        )


async def _lines() -> AsyncIterator[str]:
    """Yields the lines that are typed. A thread reads them, since a terminal cannot be awaited."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[str | None](64)

    def read() -> None:
        for line in sys.stdin:
            asyncio.run_coroutine_threadsafe(queue.put(line), loop)
        asyncio.run_coroutine_threadsafe(queue.put(None), loop)

    threading.Thread(target=read, daemon=True).start()
    while (line := await queue.get()) is not None:
        yield line
