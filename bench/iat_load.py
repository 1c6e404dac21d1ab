"""The load of IAT: `execute` on one connection that carries many calls, and every answer checked.

Over HTTP/2 (RFC 9113) and over a WebSocket (RFC 6455), just as much of each as one connection to
one server needs. A call registers nothing; the session token is got once, with the secret.
"""

import asyncio
import base64
import os
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from .load import HOST, BrokenExchange, Line
from .wire import ECHO_TEXT, WrongAnswer

SECRET = "bench-secret-0123456789"
ME = "bench-host"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
STATUS_200 = 0x88
"""`:status: 200` in HPACK's static table."""
MOST_WINDOW = 2**31 - 1


class Payload(msgspec.Struct):
    session_token: str = ""
    status: str = ""
    result_summary: str = ""


class Header(msgspec.Struct):
    type: str
    parent_id: str = ""


class Envelope(msgspec.Struct):
    header: Header
    payload: Payload


_decode = msgspec.json.Decoder(Envelope).decode


def _said(number: int, token: str, payload: str) -> bytes:
    return (
        f'{{"header":{{"msg_id":"c{number}","parent_id":"","type":"request","from":"{ME}",'
        f'"to":"Bench","timestamp":1700000000}},"metadata":{{"trace_id":"","ttl":3,'
        f'"auth_token":"{token}"}},"payload":{payload}}}'
    ).encode()


def _check(answer: Envelope, body: bytes) -> None:
    if (answer.payload.status, answer.payload.result_summary) != ("completed", ECHO_TEXT):
        raise WrongAnswer(f"not the echo: {body!r}")


class Calls(Line):
    """One connection that carries calls by number, whatever it speaks."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._ready: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.token = SECRET

    @abstractmethod
    async def open(self, port: int) -> None:
        """Greets, and registers with the secret for a token."""

    @abstractmethod
    def _ask(self, number: int, body: bytes) -> None:
        """Sends a call."""

    async def register(self) -> None:
        """Trades the secret for a session token."""
        payload = '{"action":"register","agent_name":"bench-host","tools":[]}'
        self.token = _decode(await self._call(0, payload)).payload.session_token

    async def execute(self, number: int) -> None:
        """One round trip; raises unless the text comes back, completed."""
        await self._execute(number, ',"stream":false')

    async def follow(self, number: int) -> None:
        """The same with all that is told on the way, where the wire tells it."""
        await self._execute(number, "")

    async def _execute(self, number: int, how: str) -> None:
        task = f'{{"action":"execute","query":"{ECHO_TEXT}"{how}}}'
        body = await self._call(number, task)
        _check(_decode(body), body)

    async def _call(self, number: int, payload: str) -> bytes:
        done = self._calls[number] = asyncio.get_running_loop().create_future()
        self._ask(number, _said(number, self.token, payload))
        try:
            return await done
        finally:
            del self._calls[number]

    def _answered(self, number: int, body: bytes) -> None:
        done = self._calls.get(number)
        if done is not None and not done.done():
            done.set_result(body)

    def _fail(self, error: Exception) -> None:
        for waits in (self._ready, *self._calls.values()):
            if not waits.done():
                waits.set_exception(error)


class Http2(Calls):
    """`POST /iat` over one HTTP/2 connection with prior knowledge, a stream for each call."""

    def __init__(self) -> None:
        super().__init__()
        self._bodies: dict[int, list[bytes]] = {}
        self._numbers: dict[int, int] = {}
        self._next = 1
        self._head = b""

    async def open(self, port: int) -> None:
        fields = (
            *((":method", "POST"), (":scheme", "http"), (":path", "/iat")),
            *((":authority", f"{HOST}:{port}"), ("content-type", "application/json")),
            ("accept", "application/json"),
        )
        self._head = b"".join(map(_literal, fields))
        window = (MOST_WINDOW - 65_535).to_bytes(4)
        self._write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self._write(_frame(SETTINGS, 0, 0, b"") + _frame(WINDOW_UPDATE, 0, 0, window))
        await self._ready
        await self.register()

    def _ask(self, number: int, body: bytes) -> None:
        stream, self._next = self._next, self._next + 2
        self._numbers[stream] = number
        self._bodies[stream] = []
        head = _frame(HEADERS, END_HEADERS, stream, self._head)
        self._write(head + _frame(DATA, END_STREAM, stream, body))

    def _step(self) -> bool:
        pending = self._pending
        if len(pending) < 9:
            return False
        end = 9 + int.from_bytes(pending[:3])
        if len(pending) < end:
            return False
        kind, flags, stream = pending[3], pending[4], int.from_bytes(pending[5:9])
        body, self._pending = pending[9:end], pending[end:]
        self._frame(kind, flags, stream, body)
        return True

    def _frame(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == HEADERS:
            if body[0] != STATUS_200:
                raise BrokenExchange(f"not HTTP 200: {body!r}")
        elif kind == DATA:
            self._bodies[stream].append(body)
        elif kind == SETTINGS and not flags & ACK:
            self._write(_frame(SETTINGS, ACK, 0, b""))
            self._ready.set_result(b"")
        elif kind == PING and not flags & ACK:
            self._write(_frame(PING, ACK, 0, body))
        elif kind in (RST_STREAM, GOAWAY):
            raise BrokenExchange(f"the server gave up on stream {stream}: {body!r}")
        if flags & END_STREAM and kind in (HEADERS, DATA):
            self._answered(self._numbers.pop(stream), b"".join(self._bodies.pop(stream)))


class WebSocket(Calls):
    """`GET /iat/ws`: every call and every word of its answer is a text frame."""

    _upgraded = False

    async def open(self, port: int) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        self._write(
            f"GET /iat/ws HTTP/1.1\r\nHost: {HOST}:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            "\r\n".encode()
        )
        await self._ready
        await self.register()

    def _ask(self, number: int, body: bytes) -> None:
        # A mask of zeros is a mask: what the server does with it costs the same.
        self._write(b"\x81\xfe" + len(body).to_bytes(2) + b"\0\0\0\0" + body)

    def _step(self) -> bool:
        pending = self._pending
        if not self._upgraded:
            end = pending.find(b"\r\n\r\n")
            if end < 0:
                return False
            if not pending.startswith(b"HTTP/1.1 101"):
                raise BrokenExchange(f"no WebSocket: {pending[:200]!r}")
            self._pending, self._upgraded = pending[end + 4 :], True
            self._ready.set_result(b"")
            return True
        if len(pending) < 4:
            return False
        length, start = pending[1], 2
        if length == 126:
            length, start = int.from_bytes(pending[2:4]), 4
        elif length == 127:
            length, start = int.from_bytes(pending[2:10]), 10
        if len(pending) < start + length:
            return False
        body, self._pending = pending[start : start + length], pending[start + length :]
        if pending[0] != 0x81:
            raise BrokenExchange(f"not a text frame: {pending[:1]!r} {body!r}")
        self._heard(body)
        return True

    def _heard(self, body: bytes) -> None:
        said = _decode(body)
        if said.header.type == "response":  # before it, notifications and chunks
            self._answered(int(said.header.parent_id.removeprefix("c")), body)


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    head = len(body).to_bytes(3), bytes((kind, flags)), stream.to_bytes(4), body
    return b"".join(head)


def _literal(field: tuple[str, str]) -> bytes:
    """A header that no table remembers, letters as they are (RFC 7541 §6.2.2)."""
    name, value = (text.encode() for text in field)
    return bytes((0, len(name))) + name + bytes((len(value),)) + value


@asynccontextmanager
async def line(kind: Callable[[], Calls], port: int) -> AsyncIterator[Any]:
    """One open connection, registered; closed in the end."""
    loop = asyncio.get_running_loop()
    _, opened = await loop.create_connection(kind, HOST, port)
    try:
        async with asyncio.timeout(5):
            await opened.open(port)
        yield opened
    finally:
        opened.close()
        await asyncio.sleep(0)
