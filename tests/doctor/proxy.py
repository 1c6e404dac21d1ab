"""A proxy in front of a sound agent that can spoil what goes through it: one switch, one fault."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc

from dragoman.doctor.requests import RPC_METHODS

OPS = {name: op for names in RPC_METHODS.values() for op, name in names.items()}
REST = [
    ("card", r"GET /\.well-known/.*"),
    ("send", r"\w+ /message:send"),
    ("stream", r"POST /message:stream"),
    ("list", r"GET /tasks"),
    ("cancel", r"POST /tasks/[^/]*:cancel"),
    ("subscribe", r"\w+ /tasks/[^/]*:subscribe"),
    ("get", r"GET /tasks/[^/]+"),
    ("push.list", r"GET /tasks/[^/]+/pushNotificationConfigs"),
    ("push.set", r"POST /tasks/[^/]+/pushNotificationConfigs"),
    ("push.get", r"GET /tasks/[^/]+/pushNotificationConfigs/.+"),
    ("push.delete", r"DELETE /tasks/[^/]+/pushNotificationConfigs/.+"),
    ("extended", r"GET /(extendedAgentCard|card)"),
]


@dataclass
class Asked:
    """A request on its way in."""

    verb: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def rpc(self) -> bool:
        return self.verb == "POST" and self.path == "/"

    @property
    def op(self) -> str:
        """What is asked for, in one word, or nothing that is known."""
        if self.rpc:
            value = self.json
            method = value.get("method") if isinstance(value, dict) else None
            return OPS.get(method, "") if isinstance(method, str) else ""
        route = f"{self.verb} {self.path.partition('?')[0].removeprefix('/v1')}"
        return next((op for op, pattern in REST if re.fullmatch(pattern, route)), "")

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


@dataclass
class Told:
    """An answer on its way out."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    events: Iterator[dict[str, Any]] | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def put(self, value: Any) -> None:
        """Another body."""
        self.body = json.dumps(value).encode()


@dataclass(frozen=True)
class Fault:
    """What is spoiled, and which checks must see it."""

    turns: tuple[str, ...]
    ask: Callable[[Asked], Told | None] = lambda asked: None
    """May change the request, or answer in the agent's place."""
    tell: Callable[[Asked, Told], None] = lambda asked, told: None
    """May change the answer;"""
    events: Callable[[Asked, Iterator[dict[str, Any]]], Iterator[dict[str, Any]]] | None = None
    """or the events of a stream."""
    on: str = "jsonrpc-1.0"


SOUND = Fault(())


@dataclass
class Proxy:
    """Where the doctor goes. `fault` is the switch."""

    upstream: int
    port: int = 0
    fault: Fault = SOUND
    grpc_port: int = 0
    grpc_says: str = "NOT_FOUND"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, asked: Asked) -> Told:
        fault = self.fault
        told = fault.ask(asked)
        if told is None:
            told = self._pass_on(asked)
            if told.events is not None and fault.events is not None:
                told.events = _closing(told.events, fault.events(asked, told.events))
        fault.tell(asked, told)
        if asked.op == "card":
            there = f"127.0.0.1:{self.upstream}".encode()
            told.body = told.body.replace(there, f"127.0.0.1:{self.port}".encode())
            if fault.on.startswith("grpc"):
                odd = rf'"127.0.0.1:{self.grpc_port}","\1":"GRPC"'.encode()
                grpc_url = rb'"[^"]+","(protocolBinding|transport)":"GRPC"'
                told.body = re.sub(grpc_url, odd, told.body)
        return told

    def _pass_on(self, asked: Asked) -> Told:
        connection = HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        try:
            connection.request(asked.verb, asked.path, asked.body or None, asked.headers)
            response = connection.getresponse()
            headers = {key.lower(): value for key, value in response.getheaders()}
            for name in ("transfer-encoding", "content-length", "connection"):
                headers.pop(name, None)
            if headers.get("content-type", "").startswith("text/event-stream"):
                events = _events(connection, response)
                return Told(response.status, headers, events=events)
            told = Told(response.status, headers, response.read())
        except OSError:
            connection.close()
            raise
        connection.close()
        return told


def _events(connection: HTTPConnection, response: Any) -> Iterator[dict[str, Any]]:
    try:
        for line in response:
            if line.startswith(b"data:"):
                yield json.loads(line[5:])
    finally:
        response.close()
        connection.close()


def _closing(coming: Any, changed: Iterator[Any]) -> Iterator[Any]:
    """What was spoiled; the agent's own stream ends with it."""
    try:
        yield from changed
    finally:
        coming.close()


def _handler(proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            drop = ("host", "content-length", "connection")
            headers = {k.lower(): v for k, v in self.headers.items() if k.lower() not in drop}
            told = proxy.answer(Asked(self.command, self.path, headers, self.rfile.read(length)))
            self.close_connection = True
            self.send_response_only(told.status)
            for key, value in told.headers.items():
                self.send_header(key, value)
            self.send_header("connection", "close")
            if told.events is None:
                self.send_header("content-length", str(len(told.body)))
                self.end_headers()
                if told.status != 304:
                    self.wfile.write(told.body)
                return
            self.end_headers()  # the stream ends with the connection
            try:
                self._write(told.events)
            finally:
                getattr(told.events, "close", lambda: None)()

        def _write(self, events: Iterator[Any]) -> None:
            for event in events:
                data = event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n"
                self.wfile.write(data.encode())
                self.wfile.flush()

        def handle(self) -> None:
            with suppress(OSError):  # one side has seen enough
                super().handle()

        def log_message(self, format: str, *args: Any) -> None:
            pass

        do_GET = do_POST = do_PUT = do_DELETE = _do  # noqa: N815

    return Handler


@contextmanager
def standing_before(port: int) -> Iterator[Proxy]:
    """A proxy for the agent at this port."""
    proxy = Proxy(port)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(proxy))
    server.daemon_threads = True
    server.block_on_close = False
    proxy.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    odd = grpc.server(ThreadPoolExecutor(2))
    odd.add_generic_rpc_handlers((_Odd(proxy),))
    proxy.grpc_port = odd.add_insecure_port("127.0.0.1:0")
    odd.start()
    try:
        yield proxy
    finally:
        odd.stop(0).wait(5)
        server.shutdown()
        thread.join(5)
        server.server_close()


class _Odd(grpc.GenericRpcHandler):
    """A gRPC server that says the same to everything, and never why."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy

    def service(self, details: Any) -> Any:
        def answer(body: bytes, context: Any) -> bytes:
            if self.proxy.grpc_says != "OK":
                context.abort(grpc.StatusCode[self.proxy.grpc_says], "no")
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)
