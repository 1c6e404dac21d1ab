"""A stand-in for the servers of the platform and the phones behind them: real WebSockets on the
loopback interface, which check signatures, ask, and put answers together."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from itertools import count
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosedError
from websockets.http11 import Request, Response

from dragoman.dialects.xiaoyi.signing import verify
from waiting import until

AK, SK, AGENT = "ak-1", "sk-1", "ag-1"


class PhoneServer:
    """One server. `answers` holds the inner results by task."""

    def __init__(self) -> None:
        self.links: list[ServerConnection] = []
        self.frames: list[dict[str, Any]] = []
        self.answers: dict[str, list[dict[str, Any]]] = {}
        self.refuse = 0
        self.handshakes = 0
        self._ids = count(1)
        self._server: Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/openclaw/v1/ws/link"

    async def start(self) -> None:
        self._server = await serve(
            self._talk, "127.0.0.1", self.port, process_request=self._check, max_size=2**20
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def _check(self, connection: ServerConnection, request: Request) -> Response | None:
        self.handshakes += 1
        headers = request.headers
        status = self.refuse
        if not status and not (
            headers["X-Access-Key"] == AK and verify(SK, headers["x-ts"], headers["x-sign"])
        ):
            status = 401
        if not status and headers["x-agent-id"] != AGENT:
            status = 403
        assert request.path == "/openclaw/v1/ws/link"
        return connection.respond(HTTPStatus(status), "") if status else None

    async def _talk(self, connection: ServerConnection) -> None:
        self.links.append(connection)
        try:
            with suppress(ConnectionClosedError):  # the agent was killed
                async for said in connection:
                    self._hear(json.loads(said))
        finally:
            self.links.remove(connection)

    def _hear(self, frame: dict[str, Any]) -> None:
        self.frames.append(frame)
        if frame["msgType"] == "agent_response":
            inner = json.loads(frame["msgDetail"])
            self.answers.setdefault(frame["taskId"], []).append(inner)

    async def linked(self) -> ServerConnection:
        """Waits until an agent has introduced itself."""
        await until(lambda: self.links)
        await until(lambda: any(each["msgType"] == "clawd_bot_init" for each in self.frames))
        return self.links[-1]

    async def say(self, method: str, session: str = "se-1", task: str = "", **more: Any) -> str:
        """Sends a request in the shape of the source document, and returns its id."""
        id = f"rq-{next(self._ids)}"
        frame = {"jsonrpc": "2.0", "id": id, "method": method, "agentId": AGENT}
        frame |= {"sessionId": session, **({"taskId": task} if task else {}), **more}
        await (await self.linked()).send(json.dumps(frame))
        return id

    async def ask(self, text: str, task: str, session: str = "se-1", message: str = "") -> str:
        """Sends a message of the phone."""
        said = {"kind": "message", "role": "user", "parts": [{"kind": "text", "text": text}]}
        said["messageId"] = message or f"ms-{task}-{text}"
        params = {"id": task, "sessionId": session, "agentLoginSessionId": "ls-1", "message": said}
        about = {"deviceId": "dev-1", "conversationId": "cv-1"}
        return await self.say("message/stream", session, params=params, **about)

    def results(self, task: str) -> list[dict[str, Any]]:
        return [each["result"] for each in self.answers.get(task, ()) if "result" in each]

    def told(self, id: str) -> list[dict[str, Any]]:
        """The answers to one request."""
        return [
            each
            for answers in self.answers.values()
            for each in answers
            if str(each.get("id", "")).partition("#")[0] == id
        ]

    def finals(self, task: str) -> list[dict[str, Any]]:
        """The frames that end an answer."""
        return [each for each in self.results(task) if each.get("final")]

    async def final(self, task: str) -> dict[str, Any]:
        """Waits for the end of an answer."""
        await until(lambda: self.finals(task))
        return self.finals(task)[-1]

    def states(self, task: str) -> list[str]:
        return [each["status"]["state"] for each in self.results(task) if "status" in each]


def text_of(result: dict[str, Any]) -> str:
    """The text of an artifact update or of a status."""
    about = result.get("artifact") or result["status"].get("message", {"parts": []})
    return "".join(part.get("text", "") for part in about["parts"])


@asynccontextmanager
async def phone_server() -> AsyncIterator[PhoneServer]:
    """A server that listens."""
    server = PhoneServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
