"""Agents that somebody else wrote: from the source document and the habits of public clients, on
the standard library and `websockets` alone. Nothing of ours is imported here."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import itertools
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from waiting import before_again

Request = dict[str, Any]
Skill = Callable[["Stranger", Request], Awaitable[None]]


def signed(ak: str, sk: str, agent_id: str) -> dict[str, str]:
    """The four headers of the source document."""
    stamp = str(int(time.time() * 1000))
    digest = hmac.digest(sk.encode(), stamp.encode(), hashlib.sha256)
    return {
        "x-access-key": ak,
        "x-sign": base64.b64encode(digest).decode(),
        "x-ts": stamp,
        "x-agent-id": agent_id,
    }


class Stranger:
    """An agent on one link or several, which it dials again whenever one breaks.

    Like the Go SDK, it takes every frame that is neither a clear nor a cancel for a message, routes
    a session to the link of its last request, and gives each response an id of its own. With
    `mirrors` it sends each frame over all its links, each time with ids of its own, as jiuwenclaw
    does. With `mute_after_clear` it drops all frames of a session that was cleared, and with
    `steers` a newer message takes the place of an older one of its session, which is never
    answered, as in the official plugin.
    """

    def __init__(
        self,
        url: str,
        ak: str,
        sk: str,
        agent_id: str,
        skill: Skill,
        *,
        links: int = 1,
        mirrors: bool = False,
        mute_after_clear: bool = False,
        steers: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.url, self._keys, self.agent_id = url, (ak, sk, agent_id), agent_id
        self._skill, self._links = skill, links
        self._mirrors, self._mute, self._steers, self._tls = mirrors, mute_after_clear, steers, tls
        self.sockets: dict[int, ClientConnection] = {}
        self.requests: list[Request] = []
        self.refusals: list[int] = []
        """The statuses of handshakes that were refused."""
        self.routes: dict[str, int] = {}
        self._cleared: set[str] = set()
        self._running: dict[str, list[asyncio.Task[None]]] = {}
        self._ids = itertools.count(1)

    async def dial(self, number: int) -> None:
        """Keeps one link open."""
        while True:
            try:
                async with connect(
                    self.url,
                    additional_headers=signed(*self._keys),
                    max_size=None,
                    ssl=self._tls,
                ) as socket:
                    init = {"msgType": "clawd_bot_init", "agentId": self.agent_id}
                    await socket.send(json.dumps(init))
                    self.sockets[number] = socket
                    async for body in socket:
                        await self._hear(number, json.loads(body))
            except (OSError, WebSocketException, TimeoutError) as exc:
                status = getattr(getattr(exc, "response", None), "status_code", 0)
                if status:
                    self.refusals.append(status)
            finally:
                self.sockets.pop(number, None)
            await before_again()

    async def _hear(self, number: int, request: Request) -> None:
        self.requests.append(request)
        session = request["params"]["sessionId"]
        method = request["method"]
        if self._mute and session in self._cleared:
            return
        self.routes[session] = number
        if method == "clearContext":
            self._cleared.add(session)
            done = {"status": {"state": "cleared"}}
            await self.respond(request, done, id=request["id"], task=request["id"])
            del self.routes[session]
        elif method == "tasks/cancel":
            self._stop(session)
            done = {"id": request["id"], "status": {"state": "canceled"}}
            await self.respond(request, done, id=request["id"], task=request["id"])
        elif any(
            "events" in part.get("data", {}) for part in request["params"]["message"]["parts"]
        ):
            pass  # the result of a command; whoever waits for it finds it in `requests`
        else:
            if self._steers:
                self._stop(session)
            work = asyncio.create_task(self._skill(self, request))
            self._running.setdefault(session, []).append(work)

    def _stop(self, session: str) -> None:
        for work in self._running.pop(session, []):
            work.cancel()

    def close(self) -> None:
        for session in tuple(self._running):
            self._stop(session)

    async def respond(
        self, request: Request, result: Any, *, id: str = "", task: str = "", **more: Any
    ) -> None:
        """Sends a response over the link of its session, or over all links."""
        session = request["params"]["sessionId"]
        if self._mirrors:
            targets = list(self.sockets.values())
        else:
            number = self.routes.get(session, 0)
            found = self.sockets.get(number) or next(iter(self.sockets.values()), None)
            targets = [found] if found is not None else []
        for socket in targets:
            number = next(self._ids)
            if result is not None and "artifact" in result:
                artifact = {**result["artifact"], "artifactId": f"artifact_{number}"}
                result = {**result, "artifact": artifact}
            detail = {"jsonrpc": "2.0", "id": id or f"msg_{number}", **more}
            if result is not None:
                detail["result"] = result
            envelope = {
                "msgType": "agent_response",
                "agentId": self.agent_id,
                "sessionId": session,
                "taskId": task or request["params"]["id"],
                "msgDetail": json.dumps(detail),
            }
            with suppress(WebSocketException):
                await socket.send(json.dumps(envelope))

    async def text(
        self, request: Request, text: str, *, append: bool = False, final: bool = False
    ) -> None:
        """Sends a piece of the answer."""
        await self.parts(request, {"kind": "text", "text": text}, append=append, final=final)

    async def parts(
        self, request: Request, *parts: Any, append: bool = False, final: bool = False
    ) -> None:
        """Sends an artifact."""
        result = {
            "taskId": request["params"]["id"],
            "kind": "artifact-update",
            "append": append,
            "lastChunk": True,
            "final": final,
            "artifact": {"parts": list(parts)},
        }
        await self.respond(request, result)

    def said(self, request: Request) -> str:
        """The text of a message."""
        parts = request["params"]["message"]["parts"]
        return "".join(part.get("text", "") for part in parts)

    def methods(self) -> list[str]:
        """The methods of all frames that arrived."""
        return [each["method"] for each in self.requests]


async def repeat(agent: Stranger, request: Request) -> None:
    """Answers a message with itself. A frame without words gets an answer too, as any other."""
    await agent.text(request, f"you said: {agent.said(request)}", final=True)


@asynccontextmanager
async def stranger(
    url: str, ak: str, sk: str, agent_id: str, skill: Skill = repeat, **about: Any
) -> AsyncIterator[Stranger]:
    """An agent that dials, and dials again."""
    agent = Stranger(url, ak, sk, agent_id, skill, **about)
    count = about.get("links", 1)
    dialling = [asyncio.create_task(agent.dial(number)) for number in range(count)]
    try:
        yield agent
    finally:
        agent.close()
        for task in dialling:
            task.cancel()
        await asyncio.gather(*dialling, return_exceptions=True)
