"""One agent, spoken to by hand over either transport of the requirement: HTTP/2 with SSE, and
WebSocket. Whatever a test says through a `Wire` it says on both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from dragoman import Agent
from net.iat.sub_agent import SECRET, RunningAgent, open_server

WIRES = ("http2+sse", "websocket")
ROUNDS = 8
"""Pulses after which whatever was said is done."""
PATIENCE = 60.0


class Wire:
    """Envelopes to the agent of a server, and what comes back."""

    def __init__(self, server: RunningAgent, socket: ClientConnection | None = None) -> None:
        self.server, self._socket = server, socket
        self.who, self.token = "host-1", ""

    def envelope(self, action: str, kind: str = "request", **payload: Any) -> dict[str, Any]:
        """As the requirement has it, from us."""
        said = {"sender": self.who, "token": self.token, **payload}
        return self.server.envelope(action, kind, **said)

    async def stream(self, said: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Every envelope that a request is followed by, to its response."""
        if self._socket is None:
            async for _, _, told in self.server.stream(said):
                yield told
            return
        await self._socket.send(json.dumps(said))
        async for told in self._heard(said["header"]["msg_id"]):
            yield told

    async def _heard(self, parent: str) -> AsyncIterator[dict[str, Any]]:
        assert self._socket is not None
        while True:
            async with asyncio.timeout(PATIENCE):
                told = json.loads(await self._socket.recv())
            assert told["header"]["parent_id"] == parent, told
            yield told
            if told["header"]["type"] == "response":
                return

    async def execute(self, query: str, **payload: Any) -> AsyncIterator[dict[str, Any]]:
        """The same for an `execute`."""
        async for told in self.stream(self.envelope("execute", query=query, **payload)):
            yield told

    async def ask(self, action: str, **payload: Any) -> dict[str, Any]:
        """The payload of the one response."""
        said = self.envelope(action, **payload)
        if self._socket is None:
            return dict((await self.server.post(said)).json()["payload"])
        async for told in self.stream(said):
            if told["header"]["type"] == "response":
                return dict(told["payload"])
        raise AssertionError("it was not answered")

    async def tell(self, said: dict[str, Any]) -> dict[str, Any] | None:
        """What answers something that needs no answer: nothing, if all is well."""
        if self._socket is None:
            reply = await self.server.post(said)
            return dict(reply.json()["payload"]) if reply.content else None
        # What was said is worked on beside what comes next: several rounds give it its time.
        await self._socket.send(json.dumps(said))
        found = None
        for _ in range(ROUNDS):
            pulse = self.envelope("pulse")
            await self._socket.send(json.dumps(pulse))
            while True:
                async with asyncio.timeout(PATIENCE):
                    told = json.loads(await self._socket.recv())
                if told["header"]["parent_id"] == pulse["header"]["msg_id"]:
                    break
                found = dict(told["payload"])
        return found

    async def say(self, said: dict[str, Any]) -> None:
        """Says something while a stream is read, which tells what comes of it."""
        if self._socket is None:
            assert await self.tell(said) is None
        else:
            await self._socket.send(json.dumps(said))

    def answer(self, asked: dict[str, Any], **payload: Any) -> dict[str, Any]:
        """The response to a request of the agent's."""
        return self.envelope("", "response", parent_id=asked["header"]["msg_id"], **payload)


@asynccontextmanager
async def beside(
    server: RunningAgent, way: str, who: str = "host-2", **about: Any
) -> AsyncIterator[Wire]:
    """A wire to a server, with a session of its own."""
    if way == "http2+sse":
        wire = Wire(server)
        wire.who = who
        told = await wire.ask("register", agent_id=who, token=SECRET, **about)
        wire.token = told["session_token"]
        yield wire
        return
    async with connect(server.ws) as socket:
        wire = Wire(server, socket)
        wire.who = who
        told = await wire.ask("register", agent_id=who, token=SECRET, **about)
        wire.token = told["session_token"]
        yield wire


@asynccontextmanager
async def wired(agent: Agent | None, way: str, **about: Any) -> AsyncIterator[Wire]:
    """A server with this agent (else the one of `iat.server`), and a wire to it."""
    async with open_server(agent=agent) as server, beside(server, way, "host-1", **about) as wire:
        yield wire


async def until(steps: AsyncIterator[dict[str, Any]], action: str) -> list[dict[str, Any]]:
    """Envelopes up to the first of this action."""
    heard = []
    async for step in steps:
        heard.append(step)
        if step["payload"].get("action") == action:
            return heard
    raise AssertionError(f"no {action} in {heard}")
