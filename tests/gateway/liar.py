"""An agent that answers whatever a test wants: A2A 1.0 over JSON-RPC, on a real port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from dragoman.net.http.asgi import Receive, Scope, Send, answer
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.settings import Limits
from waiting import turns

Script = Callable[[str, dict[str, Any]], AsyncIterator[Any]]
"""`script(method, params)`: what is answered. A dict is a result, bytes are sent as they are, an
`Exception` is raised there, which cuts the connection."""


class Liar:
    """What the agent says of itself, and what it was asked."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.url = ""
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.more: dict[str, Any] = {}
        """Members of the card that are other than usual."""
        self.extensions: list[str] = []
        self.cards = 0
        self.revalidated = 0

    def count(self, method: str) -> int:
        """How often it was asked this."""
        return sum(asked == method for asked, _ in self.asked)

    def card(self) -> dict[str, Any]:
        skill = {"id": "s", "name": "s", "description": "s", "tags": ["s"]}
        interface = {"url": self.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return {
            "name": "Liar",
            "description": "Lies.",
            "version": "1",
            "supportedInterfaces": [interface],
            "capabilities": {
                "streaming": True,
                "extensions": [{"uri": uri} for uri in self.extensions],
            },
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [skill],
            **self.more,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        if scope["method"] == "GET":
            await self._show(scope, headers, send)
            return
        said = b""
        while (message := await receive())["type"] == "http.request":
            said += message.get("body", b"")
            if not message.get("more_body"):
                break
        body = json.loads(said)
        self.headers.append(headers)
        self.asked.append((body["method"], body.get("params", {})))
        streams = "Streaming" in body["method"] or "Subscribe" in body["method"]
        kind = b"text/event-stream" if streams else b"application/json"
        start = {"type": "http.response.start", "status": 200}
        await send({**start, "headers": [(b"content-type", kind)]})
        left = asyncio.ensure_future(receive())  # the server does not tell `send`
        async for piece in self.script(body["method"], body.get("params", {})):
            await turns()
            if left.done():
                return
            if isinstance(piece, Exception):
                raise piece
            if not isinstance(piece, bytes):
                key = "error" if "code" in piece else "result"
                told = {"jsonrpc": "2.0", "id": body["id"], key: piece}
                piece = json.dumps(told).encode()
                piece = b"data: " + piece + b"\n\n" if streams else piece
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        left.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _show(self, scope: Scope, headers: dict[str, str], send: Send) -> None:
        if not scope["path"].endswith("/agent-card.json"):
            await answer(send, 404)
            return
        body = json.dumps(self.card()).encode()
        etag = f'"{hash(body)}"'
        self.cards += 1
        if headers.get("if-none-match") == etag:
            self.revalidated += 1
            await answer(send, 304, extra=((b"etag", etag.encode()),))
            return
        await answer(send, 200, body, extra=((b"etag", etag.encode()),))


@asynccontextmanager
async def lying(script: Script, port: int = 0) -> AsyncIterator[Liar]:
    """The agent, on a port of this machine."""
    liar = Liar(script)
    sock = bind("127.0.0.1", port)
    liar.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    listener = GranianServer(liar, sock, Limits())
    listener.begin()
    try:
        yield liar
    finally:
        listener.refuse()
        await listener.end(0.1)


def task(state: str = "WORKING", id: str = "t1", **more: Any) -> dict[str, Any]:
    """A task, as a stream or an answer tells it."""
    status = {"state": f"TASK_STATE_{state}"}
    return {"task": {"id": id, "contextId": "c1", "status": status, **more}}


def status(state: str, text: str = "", id: str = "t1") -> dict[str, Any]:
    """An update of the state."""
    told: dict[str, Any] = {"state": f"TASK_STATE_{state}"}
    if text:
        parts = [{"text": text}]
        told["message"] = {"messageId": f"m{text}", "role": "ROLE_AGENT", "parts": parts}
    return {"statusUpdate": {"taskId": id, "contextId": "c1", "status": told}}


def chunk(text: str, id: str = "t1", *, append: bool = False) -> dict[str, Any]:
    """A piece of an artifact."""
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    update = {"taskId": id, "contextId": "c1", "artifact": artifact, "append": append}
    return {"artifactUpdate": update}


NOT_FOUND = {"code": -32001, "message": "Task not found"}
