"""A sub-agent behind a real socket, and the smallest host that speaks to it by hand."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx2

from dragoman import Agent, Turn
from dragoman.core.auth_schemes import Secret
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.server.app import App, engine_for
from dragoman.server.serve import address, wind_down
from dragoman.settings import Iat, Limits, Rates, Server, Settings
from waiting import forever

SECRET = "a-secret-of-hosts-and-agents"
STORES = {"sqlite": "sqlite:///{}/tasks.db", "file": "file://{}/tasks"}
os.environ["TEST_IAT_SECRET"] = SECRET
DEFAULTS = Limits()

READ = {
    "name": "read_file",
    "description": "Reads a file.",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
    "returns": {"type": "string"},
}


def make_agent() -> Agent:
    agent = Agent("go-agent", description="Works for hosts.")

    @agent.skill("work", default=True)
    async def work(turn: Turn) -> Any:
        await turn.think(f"Thinking of {turn.text}.")
        await turn.log("2 files read", level="debug", files=2)
        await turn.progress(0.5, eta=1)
        await turn.usage(tokens=812)
        match turn.text.split()[0]:
            case "read":
                found = await turn.call_tool("read_file", path="pkg/b.go")
                yield f"{found} and {turn.context}"
            case "misread":
                yield await turn.call_tool("read_file", file=1)
            case "delete":
                agreed = await turn.approve("delete pkg/old.go", details={"path": "pkg/old.go"})
                yield "deleted" if agreed else "left alone"
            case "ask":
                yield f"you said {await turn.ask('Which one?')}"
            case "wait":
                await forever()
            case "fail":
                raise turn.fail("could not", reason="no_luck")
            case _:
                for word in turn.text.split():
                    yield word.upper() + " "

    @agent.skill("add", description="Adds.")
    async def add(turn: Turn, a: int, b: int) -> int:
        return a + b

    return agent


class RunningAgent:
    """A running agent, and envelopes to it."""

    def __init__(
        self, app: App, listener: GranianServer, url: str, client: httpx2.AsyncClient
    ) -> None:
        self.app, self.listener, self.url, self.client = app, listener, url, client
        self.token = ""
        self._ids = count(1)

    @property
    def ws(self) -> str:
        return self.url.replace("http", "ws") + "/iat/ws"

    def envelope(self, action: str, kind: str = "request", **payload: Any) -> dict[str, Any]:
        """One of the nested form, as the requirement has it."""
        header = {
            "msg_id": payload.pop("msg_id", f"h{next(self._ids)}"),
            "parent_id": payload.pop("parent_id", ""),
            "type": kind,
            "from": payload.pop("sender", "host-1"),
            "to": "go-agent",
            "timestamp": int(time.time()),
        }
        metadata: dict[str, Any] = {"trace_id": "tr-9", "ttl": payload.pop("ttl", 3)}
        if token := payload.pop("token", self.token):
            metadata["auth_token"] = f"bearer {token}"
        metadata |= payload.pop("metadata", {})
        body = {"action": action, **payload} if action else payload
        return {"header": header, "metadata": metadata, "payload": body}

    async def post(self, said: Any, path: str = "/iat", **headers: str) -> httpx2.Response:
        return await self.client.post(path, json=said, headers=headers)

    async def ask(self, action: str, **payload: Any) -> dict[str, Any]:
        """The payload of the answer."""
        reply = await self.post(self.envelope(action, **payload))
        assert reply.status_code == 200, reply.text
        return dict(reply.json()["payload"])

    async def join(self, action: str = "register", **payload: Any) -> dict[str, Any]:
        """Introduces the host with the shared secret; keeps the token."""
        told = await self.ask(action, agent_id="host-1", token=SECRET, **payload)
        self.token = told["session_token"]
        return told

    async def stream(self, said: Any, path: str = "/iat", **headers: str) -> AsyncIterator[Any]:
        """Every event: its SSE id and name beside its envelope."""
        headers = {"accept": "text/event-stream", **headers}
        async with self.client.stream("POST", path, json=said, headers=headers) as reply:
            assert reply.status_code == 200, await reply.aread()
            mark = name = ""
            async for line in reply.aiter_lines():
                if line.startswith("id: "):
                    mark = line[4:]
                elif line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    yield mark, name, json.loads(line[6:])


def signed(body: bytes, stamp: int | None = None, secret: str = SECRET) -> dict[str, str]:
    """The headers that sign a body."""
    when = str(int(time.time()) if stamp is None else stamp)
    told = hmac.new(secret.encode(), when.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {
        "x-iat-timestamp": when,
        "x-iat-signature": told,
        "content-type": "application/json",
    }


@asynccontextmanager
async def open_server(
    folder: Path | None = None,
    *,
    insecure: bool = False,
    agent: Agent | None = None,
    kind: str = "sqlite",
    limits: Limits = DEFAULTS,
    calls_per_minute: int = 0,
    **iat: Any,
) -> AsyncIterator[RunningAgent]:
    """An agent that listens on a free port of loopback."""
    store = STORES[kind].format(folder) if folder else "memory:"
    settings = Settings(
        server=Server(store=store, insecure=insecure),
        limits=limits,
        rates=Rates(calls_per_minute=calls_per_minute),
        iat=Iat(secret=Secret(env="TEST_IAT_SECRET"), **iat),
    )
    agent = agent or make_agent()
    sock: socket.socket = bind("127.0.0.1", 0)
    url = address(sock)
    app = App(agent, engine_for(agent, settings), settings, Log("error"), url)
    await app.start()
    listener = GranianServer(app.route, sock, settings.limits)
    listener.begin()
    client = httpx2.AsyncClient(base_url=url, http1=False, http2=True, timeout=60)
    try:
        yield RunningAgent(app, listener, url, client)
    finally:
        await client.aclose()
        await wind_down(app, listener)
