"""One server with one agent, reached over HTTP and gRPC at once, and its callers' tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import httpx2

from dragoman import Agent, Turn
from dragoman.core.auth_schemes import ApiKeys, Known, Passwords, Secret, Tokens
from dragoman.core.model import Blob, Data, Link
from dragoman.core.peer import Context
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.server.app import App, engine_for
from dragoman.server.serve import address
from dragoman.settings import Limits, Server, Settings
from waiting import forever

BODY = 64 * 1024
"""What a request may hold here, in bytes."""
UNICODE = "naïve 你好 🐉 e\u0301 \u202eRTL \u0000nul \u2028 line\r\nend \\ \" ' </script>"


def make_agent() -> Agent:
    """One skill for each thing a task can do."""
    agent = Agent("Everything", description="Does one of everything.")

    @agent.skill("echo", default=True)
    async def echo(turn: Turn) -> str:
        return turn.text.upper()

    @agent.skill("same")
    async def same(turn: Turn) -> object:
        return list(turn.parts)

    @agent.skill("about")
    async def about(turn: Turn) -> dict[str, Any]:
        return {
            "text": turn.text,
            "metadata": {k: v for k, v in turn.metadata.items() if k != "skillId"},
            "references": list(turn.references),
            "accepts": list(turn.accepts),
            "data": turn.data,
            "kinds": [type(part).__name__ for part in turn.parts],
        }

    @agent.skill("count")
    async def count(turn: Turn) -> AsyncIterator[str]:
        for number in range(int(turn.text)):
            yield f"{number} "

    @agent.skill("trip")
    async def trip(turn: Turn) -> str:
        city = await turn.ask("Which city?")
        days = await turn.ask("How many days?")
        return f"{days} days in {city}"

    @agent.skill("order")
    async def order(turn: Turn) -> str:
        if not await turn.approve("Buy it?", details={"price": 12}):
            raise turn.reject("Not approved")
        return "bought"

    @agent.skill("secret")
    async def secret(turn: Turn) -> str:
        token = await turn.need_auth({"shop": {"type": "http", "scheme": "bearer"}})
        return f"{len(token)} letters"

    @agent.skill("slow")
    async def slow(turn: Turn) -> str:
        await turn.say("begun")
        await forever()  # until it is canceled
        return "never"

    @agent.skill("several")
    async def several(turn: Turn) -> None:
        await turn.artifact("one ", name="story", description="In two pieces", last=False)
        await turn.artifact("two", name="story", append=True)
        await turn.artifact({"n": 1}, name="facts", metadata={"source": "us"})
        await turn.artifact(Blob(b"\x00\xff", filename="a.bin", media_type="application/x-a"))
        await turn.artifact(Link("https://files.example/x", media_type="text/csv"), name="link")

    @agent.skill("work")
    async def work(turn: Turn) -> str:
        await turn.say("looking")
        await turn.think("hm")
        await turn.progress(0.5, eta=2)
        return "found"

    @agent.skill("greet", may_reply=True)
    async def greet(turn: Turn) -> None:
        await turn.reply("hello yourself")

    @agent.skill("refuse")
    async def refuse(turn: Turn) -> str:
        raise turn.reject("Not for me")

    @agent.skill("fail")
    async def fail(turn: Turn) -> str:
        raise turn.fail("No paper left", reason="paper")

    @agent.skill("crash")
    async def crash(turn: Turn) -> str:
        raise RuntimeError("secret words")

    @agent.skill("typed")
    async def typed(turn: Turn, city: str, days: int = 3) -> dict[str, Any]:
        return {"city": city, "days": days}

    @agent.skill("numbers")
    async def numbers(turn: Turn) -> Data:
        return Data({"whole": 7, "half": 0.5, "edge": 2**53, "big": 2**60, "tiny": 1e-300})

    @agent.skill("unicode")
    async def unicode(turn: Turn) -> str:
        assert turn.text == UNICODE, "it did not arrive as it was"
        return turn.text

    @agent.skill("hidden", extended=True, scopes=("deep",))
    async def hidden(turn: Turn) -> str:
        return "deep"

    @agent.method("example.sums/add")
    async def add(caller: Context, first: int, second: int) -> int:
        return first + second

    return agent


class RunningServer(NamedTuple):
    """A running server, and what callers need to reach it."""

    app: App
    http: httpx2.AsyncClient
    channel: Any


CALLERS = {
    "alice": (("acme", "globex"), ("deep",)),
    "bob": (("acme",), ()),
}
"""Who may come: tenants (the first is the usual one) and scopes. `token` names their tokens."""


def token(name: str) -> str:
    return f"the-token-of-{name}-himself"


@asynccontextmanager
async def serving(agent: Agent, settings: Settings) -> AsyncIterator[tuple[App, str]]:
    """The agent on free ports of loopback, and its address."""
    sock = bind("127.0.0.1", 0)
    base = address(sock)
    app = App(agent, engine_for(agent, settings), settings, Log("error"), base)
    await app.start()
    listener = GranianServer(app, sock, settings.limits)
    listener.begin()
    try:
        yield app, base
    finally:
        listener.refuse()
        await app.stop()
        await listener.end(1)


@asynccontextmanager
async def open_server(folder: Path, agent: Agent | None = None) -> AsyncIterator[RunningServer]:
    """As `dragoman serve` would: HTTP and gRPC; callers show a token, a key or a password."""
    known = {}
    for name, (tenants, scopes) in CALLERS.items():
        file = folder / name
        file.write_text(token(name))
        file.chmod(0o600)
        known[name] = Known(secret=Secret(file=str(file)), tenants=tenants, scopes=scopes)
    settings = Settings(
        server=Server(store="memory:", grpc=True, grpc_port=0, allow_private=True),
        auth={
            "token": Tokens(callers=known),
            "key": ApiKeys(callers=known),
            "password": Passwords(callers=known),
        },
        limits=Limits(body_size=BODY),
    )
    async with serving(agent or make_agent(), settings) as (app, base):
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{app.ports['grpc']}")
        try:
            async with httpx2.AsyncClient(base_url=base, timeout=60) as client:
                yield RunningServer(app, client, channel)
        finally:
            await channel.close()
