"""Two agents of one display name on one server, and every way to ask each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx2

from dragoman import Agent, Turn
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.server.app import App, engines_for
from dragoman.server.serve import address, wind_down
from dragoman.settings import Server, Settings
from semantics import ways
from waiting import forever


def desk(greeting: str, **about: Any) -> Agent:
    """Agents of one display name and one skill: only their names on the server differ."""
    agent = Agent("Desk", description=f"Says {greeting}.", **about)

    @agent.skill("talk", default=True, cancel_grace=0.2)
    async def talk(turn: Turn) -> str:
        if turn.text == "ask":
            return f"{greeting} {await turn.ask('Who?')}"
        if turn.text == "wait":
            await forever()
        if turn.text == "past":
            return f"{greeting} {[each.text for each in await turn.conversation()]}"
        if turn.text == "crash":
            raise RuntimeError("it broke")
        return f"{greeting} {turn.text}"

    return agent


class TwoAgents:
    """A running server."""

    def __init__(self, app: App, url: str) -> None:
        self.app, self.url = app, url

    @asynccontextmanager
    async def open_server(self, name: str) -> AsyncIterator[ways.RunningServer]:
        """The agent of this name, for the ways of `semantics.ways`."""
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.app.ports['grpc']}")
        base = f"{self.url}/agents/{name}"
        async with httpx2.AsyncClient(base_url=base, timeout=60) as client:
            try:
                yield ways.RunningServer(self.app, client, channel)
            finally:
                await channel.close()


@asynccontextmanager
async def serving(
    served: Mapping[str, Agent] | None = None,
    /,
    *,
    store: str = "memory:",
    log: Log | None = None,
    base: str | None = None,
    several: bool | None = None,
    registers: Any = None,
    **sections: Any,
) -> AsyncIterator[TwoAgents]:
    """Alpha and beta, or these agents, over HTTP and gRPC on free ports."""
    server = sections.pop("server", {})
    known = {"store": store, "grpc": True, "grpc_port": 0, "allow_private": True}
    settings = Settings(server=Server(**{**known, **server}), **sections)
    named = {"alpha": desk("alpha"), "beta": desk("beta")} if served is None else served
    sock = bind("127.0.0.1", 0)
    url = address(sock)
    peers, pool = engines_for(named, settings, several=several)
    base = url if base is None else base
    log = log or Log("error")
    app = App(named, peers, settings, log, base, pool=pool, several=several, registers=registers)
    await app.start()
    listener = GranianServer(app.route, sock, settings.limits)
    listener.begin()
    try:
        yield TwoAgents(app, url)
    finally:
        await wind_down(app, listener)
        sock.close()
