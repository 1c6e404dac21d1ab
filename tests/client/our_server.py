"""Our own server on a real socket, for the client to talk to in every dialect."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from msgspec.structs import replace

from dragoman import Agent, Turn, connect
from dragoman.client import ClientLimits, RemoteAgent, SharedSecret
from dragoman.core.auth_schemes import Secret
from dragoman.core.card import Card
from dragoman.core.dialect import Wire
from dragoman.core.model import Blob
from dragoman.core.peer import Context
from dragoman.dialects import DIALECTS
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.server.app import App, engine_for
from dragoman.server.serve import address
from dragoman.settings import Iat, Push, Server, Settings
from waiting import forever

NAMES = [
    each.name
    for each in DIALECTS.values()
    if each.callee is not None and not each.listens and each.name != "iat-flat"
    if each.wire is not Wire.CHAT
]
"""The dialects in which an agent is called at an address of ours."""
SCHEMES = {"iat": "iat+http", "iat-ws": "iat+ws"}
"""Dialects whose agents are called by an address of their own, without a card."""
SECRET = "the-secret-of-the-desk"
os.environ["TEST_DESK_SECRET"] = SECRET
AUTH = SharedSecret(SECRET, to="Desk")
QUICK = ClientLimits(backoff=0.01, backoff_most=0.05, retries=30, poll=0.02, idle=3, patience=20)
CURSOR = "urn:dragoman:cursor:1"


def make_agent() -> Agent:
    agent = Agent("Desk", description="Does a little of everything")

    @agent.skill("echo", default=True)
    async def echo(turn: Turn) -> str:
        return turn.text.upper()

    @agent.skill("story")
    async def story(turn: Turn) -> AsyncIterator[object]:
        for number in range(int(turn.text)):
            if number % 7 == 3:
                await turn.say(f"at {number}")
            if number % 11 == 5:
                await turn.artifact({"number": number}, name=f"facts-{number}")
            yield f"{number} "
            await asyncio.sleep(0.004)  # its work

    @agent.skill("trip")
    async def trip(turn: Turn) -> str:
        city = await turn.ask("Which city?")
        if not await turn.approve(f"Book {city}?"):
            raise turn.reject("Not approved")
        return f"A trip to {city}"

    @agent.skill("slow")
    async def slow(turn: Turn) -> str:
        await forever()
        return "done"

    @agent.skill("files")
    async def files(turn: Turn) -> object:
        return [
            Blob(p.content[::-1], filename=f"../{p.filename}", media_type=p.media_type)
            for p in turn.parts
            if isinstance(p, Blob)
        ]

    @agent.skill("greet", may_reply=True)
    async def greet(turn: Turn) -> None:
        await turn.reply("hello yourself")

    @agent.skill("plan")
    async def plan(turn: Turn, city: str, days: int = 3) -> dict[str, int]:
        return {city: days}

    @agent.method("desk.tools/add")
    async def add(caller: Context, a: int, b: int) -> int:
        return a + b

    return agent


class OurServer:
    """A running server."""

    def __init__(self, app: App, port: int) -> None:
        self.app, self.port = app, port
        self.url = f"http://127.0.0.1:{port}"

    def at(self, dialect: str, port: int = 0) -> str:
        """The address for a dialect: some have their own."""
        url = f"{SCHEMES.get(dialect, 'http')}://127.0.0.1:{port or self.port}"
        return f"{url}/a2a-go" if dialect == "a2a-go" else url

    def connect(
        self, dialect: str, *, port: int = 0, card: Card | None = None, **about: Any
    ) -> AbstractAsyncContextManager[RemoteAgent]:
        """Talks to it in a dialect, through another port perhaps."""
        about = {"limits": QUICK, **about}
        if dialect in SCHEMES:
            about = {"auth": AUTH, **about}
        elif card is None:
            card = self.card()
        return connect(self.at(dialect, port), card=card, dialect=dialect, **about)

    def card(self, *, cursor: bool = True, http: int = 0, grpc: int = 0) -> Card:
        """The card, as it may be changed on the way: other ports, no cursor."""
        card = self.app.mounts[""].card_at(self.url)
        extensions = tuple(e for e in card.extensions if cursor or e.uri != CURSOR)
        interfaces = tuple(
            replace(
                each,
                url=each.url.replace(
                    str(self.app.ports["grpc"] if each.binding == "GRPC" else self.port),
                    str((grpc if each.binding == "GRPC" else http) or "0"),
                )
                if (grpc if each.binding == "GRPC" else http)
                else each.url,
            )
            for each in card.interfaces
        )
        return replace(card, extensions=extensions, interfaces=interfaces)


@asynccontextmanager
async def open_server(agent: Agent | None = None, **settings: Any) -> AsyncIterator[OurServer]:
    """A server on free ports."""
    agent = agent or make_agent()
    server = Server(
        grpc=True, grpc_port=0, store="memory:", allow_private=True, hosts=(".example",)
    )
    iat = Iat(secret=Secret(env="TEST_DESK_SECRET"))
    known = Settings(server=server, push=Push(enabled=True), iat=iat, **settings)
    sock = bind("127.0.0.1", 0)
    base = address(sock)
    app = App(agent, engine_for(agent, known), known, Log("error"), base)
    await app.start()
    listener = GranianServer(app.route, sock, known.limits)
    listener.begin()
    try:
        yield OurServer(app, int(base.rpartition(":")[2]))
    finally:
        listener.refuse()
        await app.stop()
        await listener.end(1.0)
