"""A gateway where agents dial in, and a stand-in for such an agent that writes its own frames."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
from websockets.asyncio.client import ClientConnection, connect

from dragoman.gateway.configuration import registered
from dragoman.server.services.links import LinkService
from dragoman.settings import Server, Settings, XiaoYi
from server.two_agents import TwoAgents, desk, serving
from waiting import until

AGENT = "ag-1"
PATH = "/openclaw/v1/ws/link"
Skill = Callable[["StandIn", dict[str, Any]], Awaitable[None]]


class Gateway:
    """A running gateway."""

    def __init__(self, running: TwoAgents, ak: str, sk: str) -> None:
        self.app, self.url, self.ak, self.sk = running.app, running.url, ak, sk
        self.service = running.app.service(LinkService)

    @property
    def link_url(self) -> str:
        return self.url.replace("http:", "ws:") + PATH

    def headers(self, *, agent: str = AGENT, off: float = 0.0, **more: str) -> dict[str, str]:
        """The headers of a handshake, by a clock that is off by so many seconds."""
        stamp = str(int((time.time() + off) * 1000))
        found = {
            "x-access-key": self.ak,
            "x-sign": signature(self.sk, stamp),
            "x-ts": stamp,
            "x-agent-id": agent,
        }
        return {**found, **more}

    async def listed(self) -> dict[str, Any]:
        """The agents, by their names."""
        async with httpx2.AsyncClient(timeout=60) as client:
            found = (await client.get(f"{self.url}/agents")).json()
        return {each["name"]: each for each in found["agents"]}

    async def appears(self, name: str = AGENT, health: str = "up") -> None:
        """Waits until an agent is listed in this way."""

        async def there() -> bool:
            return (await self.listed()).get(name, {}).get("health") == health

        await until(there)


def signature(sk: str, stamp: str) -> str:
    return base64.b64encode(hmac.digest(sk.encode(), stamp.encode(), hashlib.sha256)).decode()


@asynccontextmanager
async def gateway(*agent_ids: str, store: str = "memory:", **xiaoyi: Any) -> AsyncIterator[Gateway]:
    """A gateway with one agent of its own and a pair of keys for these agents."""
    settings = Settings(server=Server(allow_private=True))
    async with serving(
        {"desk": desk("hi")},
        several=True,
        registers=registered(settings),
        store=store,
        xiaoyi=XiaoYi(**xiaoyi),
    ) as running:
        ring = running.app.service(LinkService).ring
        key, secret = await ring.add(agent_ids or (AGENT,))
        yield Gateway(running, key.access_key, secret)


class StandIn:
    """An agent that somebody else wrote: it dials, and answers as its skill says."""

    def __init__(self, socket: ClientConnection, skill: Skill, agent: str) -> None:
        self.socket, self.agent = socket, agent
        self._skill = skill
        self.requests: list[dict[str, Any]] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def read(self) -> None:
        async for body in self.socket:
            request = json.loads(body)
            self.requests.append(request)
            if request["method"] == "message/stream":
                task = asyncio.create_task(self._skill(self, request))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
            elif request["method"] == "tasks/cancel":
                for task in self.tasks:
                    task.cancel()
                done = {"id": request["id"], "status": {"state": "canceled"}}
                await self.respond(request, request["id"], done, task=request["id"])
            elif request["method"] == "clearContext":
                await self.respond(
                    request, request["id"], {"status": {"state": "cleared"}}, task=request["id"]
                )

    async def respond(
        self, request: dict[str, Any], id: str, result: Any, *, task: str = "", **more: Any
    ) -> None:
        detail = {"jsonrpc": "2.0", "id": id, "result": result, **more}
        await self.socket.send(
            json.dumps(
                {
                    "msgType": "agent_response",
                    "agentId": self.agent,
                    "sessionId": request["params"]["sessionId"],
                    "taskId": task or request["params"]["id"],
                    "msgDetail": json.dumps(detail),
                }
            )
        )

    async def text(
        self, request: dict[str, Any], text: str, *, append: bool = False, final: bool = False
    ) -> None:
        result = {
            "taskId": request["params"]["id"],
            "kind": "artifact-update",
            "append": append,
            "lastChunk": final,
            "final": final,
            "artifact": {"artifactId": "a-1", "parts": [{"kind": "text", "text": text}]},
        }
        await self.respond(request, f"o-{time.monotonic_ns()}", result)

    async def status(
        self, request: dict[str, Any], state: str, text: str = "", *, final: bool = False
    ) -> None:
        status: dict[str, Any] = {"state": state}
        if text:
            status["message"] = {"role": "agent", "parts": [{"kind": "text", "text": text}]}
        result = {
            "taskId": request["params"]["id"],
            "kind": "status-update",
            "final": final,
            "status": status,
        }
        await self.respond(request, f"o-{time.monotonic_ns()}", result)


async def echo(agent: StandIn, request: dict[str, Any]) -> None:
    """Streams as the source document says."""
    said = request["params"]["message"]["parts"][0]["text"]
    await agent.status(request, "working")
    await agent.text(request, said)
    await agent.text(request, "!", append=True)
    await agent.text(request, f"{said}!", final=True)


@asynccontextmanager
async def dialled_in(
    door: Gateway,
    skill: Skill = echo,
    *,
    agent: str = AGENT,
    waits: bool = True,
    announces: str = "",
) -> AsyncIterator[StandIn]:
    """An agent with one link, which announces what it understands beyond the source document."""
    headers = {**door.headers(agent=agent), "dragoman-link": announces}
    async with connect(door.link_url, additional_headers=headers, max_size=None) as socket:
        found = StandIn(socket, skill, agent)
        await socket.send(json.dumps({"msgType": "clawd_bot_init", "agentId": agent}))
        reading = asyncio.create_task(found.read())
        try:
            if waits:
                await door.appears(agent)
            yield found
        finally:
            reading.cancel()
            for task in found.tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await reading
