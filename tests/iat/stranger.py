"""A sub-agent that somebody else wrote from the requirement's text alone: nested envelopes over
HTTP/1.1, with Python's standard library and nothing of ours."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from uuid import uuid4

Json = dict[str, Any]
SSE = "text/event-stream"
PATIENCE = 120.0


def envelope(
    kind: str,
    payload: Json,
    parent: str = "",
    *,
    sender: str = "stranger",
    to: str = "host",
    token: str = "",
) -> Json:
    """A message as §2.2 has it."""
    return {
        "header": {
            "msg_id": str(uuid4()),
            "parent_id": parent,
            "type": kind,
            "from": sender,
            "to": to,
            "timestamp": int(time.time()),
        },
        "metadata": {"trace_id": "t-1", "ttl": 3, "auth_token": f"bearer {token}"},
        "payload": payload,
    }


class Asked(NamedTuple):
    """One request to the stranger."""

    path: str
    headers: dict[str, str]
    said: Json

    @property
    def id(self) -> str:
        return str(self.said["header"]["msg_id"])

    @property
    def kind(self) -> str:
        return str(self.said["header"]["type"])

    @property
    def action(self) -> str:
        return str(self.said.get("payload", {}).get("action", ""))

    @property
    def payload(self) -> Json:
        return dict(self.said["payload"])


class Reply(NamedTuple):
    """How a request is answered."""

    body: bytes | Iterable[Json] = b""
    status: int = 200
    kind: str = "application/json"


def one(said: Json, status: int = 200) -> Reply:
    """One envelope as the whole answer."""
    return Reply(json.dumps(said).encode(), status)


def stream(events: Iterable[Json]) -> Reply:
    """A stream of envelopes."""
    return Reply(events, 200, SSE)


Work = Callable[["Stranger", Asked], Reply]


def done(asked: Asked, summary: str, **more: Any) -> Json:
    """The `done` of an execute."""
    payload = {"action": "done", "result_summary": summary, "usage_stats": {}, **more}
    return envelope("response", payload, asked.id)


class Stranger(ThreadingHTTPServer):
    """Listens on a port of loopback, at one path. Whatever is no `execute` it does not know."""

    daemon_threads = True

    def __init__(self, work: Work, path: str = "/", port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Endpoint)
        self.work, self.path = work, path
        self.asked: list[Asked] = []
        self.answers: dict[str, Json] = {}
        """The payloads of responses, by the id of what they answer."""
        self.changed = threading.Condition()
        self._opened: list[socket.socket] = []
        self.pages: dict[str, bytes] = {}
        """What GET returns, by path."""

    def get_request(self) -> tuple[socket.socket, Any]:
        opened, whose = super().get_request()
        self._opened.append(opened)
        return opened, whose

    def server_close(self) -> None:
        """Hangs up, too: the threads of open connections would answer for ever."""
        super().server_close()
        for opened in self._opened:
            with suppress(OSError):  # it was closed long ago
                opened.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Quiet: callers hang up as they like."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def reply(self, asked: Asked) -> Reply:
        """Answers one request at our path."""
        if asked.kind == "response":
            with self.changed:
                self.answers[asked.said["header"]["parent_id"]] = asked.payload
                self.changed.notify_all()
            return Reply(b"thanks", 202, "text/plain")
        if asked.action == "execute":
            return self.work(self, asked)
        if asked.kind == "notification":
            return Reply(b"", 202)
        error = {"error": f"unknown action {asked.action}"}
        return one(envelope("response", error, asked.id), 400)

    def wait_for(self, question: Json) -> Json:
        """Blocks until a question was answered."""
        id = question["header"]["msg_id"]
        with self.changed:
            assert self.changed.wait_for(lambda: id in self.answers, PATIENCE)
            return self.answers[id]

    def executes(self) -> list[Asked]:
        return [each for each in tuple(self.asked) if each.action == "execute"]


class _Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Stranger

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path)
        self._say(Reply(b"not found", 404, "text/plain") if page is None else Reply(page))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.server.path not in (self.path, "*"):
            self._say(Reply(b"not found", 404, "text/plain"))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.path, headers, json.loads(body))
        with self.server.changed:
            self.server.asked.append(asked)
            self.server.changed.notify_all()
        self._say(self.server.reply(asked))

    def _say(self, reply: Reply) -> None:
        self.send_response(reply.status)
        self.send_header("content-type", reply.kind)
        if isinstance(reply.body, bytes):
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)
            return
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        with suppress(BrokenPipeError, ConnectionResetError):
            for each in reply.body:
                self.wfile.write(b"data: " + json.dumps(each).encode() + b"\n\n")
                self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def running(agent: Stranger) -> Iterator[Stranger]:
    """The stranger, while it listens."""
    thread = threading.Thread(target=agent.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield agent
    finally:
        agent.shutdown()
        thread.join()
        agent.server_close()


def post(url: str, said: Json, **headers: str) -> tuple[int, Json]:
    """Sends one envelope to a host, and returns the status and the answer."""
    body = json.dumps(said).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            found = reply.read()
            return reply.status, json.loads(found) if found else {}
    except urllib.error.HTTPError as exc:
        found = exc.read()
        return exc.code, json.loads(found) if found else {}
