"""An app that is asked over ASGI, from any address and through any proxy."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from dragoman import Agent, Turn
from dragoman.observability.log import Log
from dragoman.server.app import App, engine_for
from dragoman.settings import Server, Settings

CARD = "/.well-known/agent-card.json"


class Got(Struct):
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def desk(**options: Any) -> Agent:
    agent = Agent("Desk", **{"description": "Books trips", **options})

    @agent.skill("look", tags=["travel"])
    async def look(turn: Turn) -> str:
        return "three hotels"

    return agent


def app_for(agent: Agent | None = None, base: str = "https://desk.example", **sections: Any) -> App:
    """The app of an agent; `server` gives keys of [server]."""
    server = Server(**{"store": "memory:", "hosts": ("inner",), **sections.pop("server", {})})
    settings = Settings(server=server, **sections)
    agent = agent or desk()
    return App(agent, engine_for(agent, settings), settings, Log(), base)


async def ask(
    app: App,
    path: str = CARD,
    *,
    client: str = "192.0.2.9",
    scheme: str = "http",
    **headers: str,
) -> Got:
    """GET from this address; underscores in names of headers are hyphens."""
    pairs = [(n.replace("_", "-").encode(), v.encode("latin-1")) for n, v in headers.items()]
    if "host" not in headers:
        pairs.append((b"host", b"inner:8420"))
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": pairs,
        "scheme": scheme,
        "client": (client, 4711),
        "server": ("127.0.0.1", 8420),
    }
    got = Got(0, {}, b"")

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            got.status = message["status"]
            got.headers = {n.decode(): v.decode() for n, v in message["headers"]}
        else:
            got.body += message.get("body", b"")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    await app(scope, receive, send)
    return got
