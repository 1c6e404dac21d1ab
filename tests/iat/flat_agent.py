"""A stand-in for the agents of the project that IAT came from (dialects §2): written in Go there,
flat, over HTTP/1.1 without authentication, and without `HELO`, `pulse`, `/iat` or `/manifest`.

It keeps every request, so tests can read what was said to it.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from waiting import until

SSE = "text/event-stream"


class Asked(NamedTuple):
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def said(self) -> dict[str, Any]:
        """The envelope in it."""
        return dict(json.loads(self.body))

    @property
    def action(self) -> str:
        """What it asks for, in either form."""
        said = self.said
        return str(said.get("action") or said.get("payload", {}).get("action"))


class FlatAgent(ThreadingHTTPServer):
    """Listens on a port of loopback."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Endpoint)
        self.asked: list[Asked] = []
        self._opened: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, Any]:
        """One more connection."""
        opened, whose = super().get_request()
        self._opened.append(opened)
        return opened, whose

    def server_close(self) -> None:
        """Hangs up, too: the threads of open connections would answer for ever."""
        super().server_close()
        for opened in self._opened:
            with suppress(OSError):  # it was closed long ago
                opened.shutdown(socket.SHUT_RDWR)

    @property
    def url(self) -> str:
        """Where it is; real agents listen at `/a2a` beneath it."""
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, asked: Asked) -> dict[str, Any]:
        """The one message that answers a message."""
        said = asked.said
        told: dict[str, Any] = {
            "id": said.get("id", ""),
            "from": said.get("to", ""),
            "to": said.get("from", ""),
            "type": "response",
            "action": "ignored",
            "payload": {},
            "trace": {"traceId": "", "spanId": "", "parentId": ""},
            "metadata": {},
            "timestamp": int(time.time() * 1000),
        }
        if said.get("type") != "request":  # the nested form has no type here, and no id
            return told
        if said.get("action") != "execute_task":
            return {**told, "action": "error", "payload": {"error": "unsupported action"}}
        content = said["payload"].get("content", "")
        if content == "fail":
            return {**told, "action": "task_result", "payload": {"error": "the model is away"}}
        return {**told, "action": "task_result", "payload": {"result": content.upper()}}

    def status(self, asked: Asked) -> int:
        """The HTTP status of an answer."""
        return 200

    def kind(self, asked: Asked) -> str:
        """The content type of an answer."""
        return "application/json"

    def count(self, action: str) -> int:
        """How often it was asked for this."""
        return sum(each.action == action for each in tuple(self.asked) if each.body)

    async def heard(self, action: str, times: int = 1) -> None:
        """Returns when it was asked for this so often."""
        await until(lambda: self.count(action) >= times)


class Echoing(FlatAgent):
    """Knows the greetings of the nested form, but not its `execute`."""

    def answer(self, asked: Asked) -> dict[str, Any]:
        """As the others, but for HELO and pulse."""
        if "header" not in asked.said or asked.action not in ("HELO", "pulse"):
            return super().answer(asked)
        header = asked.said["header"]
        answer = {"msg_id": "a", "parent_id": header["msg_id"], "type": "response"}
        return {"header": answer, "metadata": {}, "payload": {"action": asked.action, "ok": True}}


class Streaming(Echoing):
    """The same, but whoever asks for a stream gets one, of one event."""

    def kind(self, asked: Asked) -> str:
        """A stream for who wants one."""
        return SSE if SSE in asked.headers.get("accept", "") else "application/json"


class Liar(FlatAgent):
    """Says that it is somebody else, to be sent what that one would believe."""

    refuses = True

    def __init__(self, claims: str) -> None:
        super().__init__()
        self.claims = claims

    def answer(self, asked: Asked) -> dict[str, Any]:
        """A refusal or a welcome, of the name that it claims."""
        said = asked.said.get("header", {})
        answer = {"msg_id": "a", "parent_id": said.get("msg_id", ""), "type": "response"}
        answer |= {"from": self.claims, "to": said.get("from", "")}
        error = {"code": "unauthorized", "message": "Who is there?"}
        told: dict[str, Any] = {"action": "error", "error": error}
        if not self.refuses:
            told = {"action": asked.action, "agent_id": self.claims, "tools": [], "ok": True}
        return {"header": answer, "metadata": {}, "payload": told}

    def status(self, asked: Asked) -> int:
        """401 where it refuses."""
        return 401 if self.refuses else 200


class Welcoming(Liar):
    """The same, but it takes all that it is told."""

    refuses = False


class Endpoint(BaseHTTPRequestHandler):
    """One request to a `FlatAgent`."""

    protocol_version = "HTTP/1.1"
    server: FlatAgent

    def do_GET(self) -> None:
        """`/health`, and nothing else."""
        health = self.path == "/health"
        self._say(200 if health else 405 if self.path == "/a2a" else 404, b"ok" if health else b"")

    def do_POST(self) -> None:
        """One message in, one message out."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.path, headers, body)
        self.server.asked.append(asked)
        if self.path != "/a2a":
            self._say(404, b"404 page not found")
            return
        try:
            told = json.dumps(self.server.answer(asked)).encode()
        except ValueError:
            self._say(400, b"bad request")
            return
        kind = self.server.kind(asked)
        status = self.server.status(asked)
        self._say(status, b"data: " + told + b"\n\n" if kind == SSE else told, kind)

    def _say(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def running(agent: FlatAgent) -> Iterator[FlatAgent]:
    """The agent, while it listens."""
    thread = threading.Thread(target=agent.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield agent
    finally:
        agent.shutdown()
        thread.join()
        agent.server_close()
