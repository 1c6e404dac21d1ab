"""Sends raw HTTP requests one after the other, and keeps the last exchange as evidence.

This is deliberately a second HTTP client. The first (`security.outbound`) enforces the rules of
HTTP and turns every failure into an error of ours. The doctor must send malformed requests, see
responses unchanged, and run its checks one by one without an event loop. Both check addresses by
the same rules (`guard`).
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import httpcore2
from msgspec import Struct

from dragoman.core.errors import BadParams, ConfigError
from dragoman.security.outbound.address_scopes import Unreachable
from dragoman.security.outbound.failures import ConnectError, explained, is_web_page

from .check import Broken, Unknowable
from .guard import Guard, GuardedSockets

MOST_REQUESTS = 900
"""The largest number of requests of one examination, which must not become a load test."""
LARGEST = 64 * 1024 * 1024
SHORT = 400
Headers = Mapping[str, str]


class NoAnswer(Broken):
    """The connection failed, or there was no answer in time."""


def _ours(exc: Exception) -> Exception:
    """Returns our own error for a connection that could not be opened: only that is explained."""
    if not isinstance(exc, httpcore2.ConnectError):
        return exc
    found = ConnectError(str(exc))
    found.__cause__ = exc
    return found


class HttpAnswer(Struct, frozen=True):
    """An unchanged HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def type(self) -> str:
        """Returns the content type without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def json(self) -> Any:
        """Returns the body as a value. Raises `Broken` if it is not strict JSON in UTF-8."""
        return strict_json(self.body)


def strict_json(body: bytes | str) -> Any:
    """Parses JSON as RFC 8259 defines it: UTF-8 only, and no NaN."""

    def no(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    try:
        text = body.decode("utf-8") if isinstance(body, bytes) else body
        if is_web_page(text[:256].encode()):
            raise Broken("it is a web page, not JSON")
        return json.loads(text, parse_constant=no)
    except (ValueError, RecursionError) as exc:
        raise Broken(f"the body is not JSON: {exc}") from None


def _trusting(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise ConfigError(f"{ca} holds no certificates in PEM (--ca).") from None


class RawHttp:
    """Sends raw requests within limits, and remembers the last exchange."""

    def __init__(
        self, guard: Guard, timeout: float, headers: Mapping[str, str] | None = None, ca: str = ""
    ) -> None:
        self.guard = guard
        self.timeout = timeout
        self.ca = ca
        self.credentials = dict(headers or {})
        """The user's headers, which are sent with every request and appear in no report."""
        self.requests = 0
        self.sent = self.came = ""
        self._answered: set[str] = set()
        """The origins that have answered over HTTP."""
        self._dead = ""
        """Why the agent cannot be reached. It is set if the very first request had no answer, so
        that the others need not wait for theirs."""
        self._pool = httpcore2.ConnectionPool(
            _trusting(ca) if ca else None,
            max_connections=20,
            keepalive_expiry=5.0,
            network_backend=GuardedSockets(guard),
        )

    def close(self) -> None:
        """Closes the connections."""
        self._pool.close()

    def count(self) -> None:
        """Counts one more request."""
        self.requests += 1
        if self.requests > MOST_REQUESTS:
            raise Unknowable(f"more than {MOST_REQUESTS} requests, which suggests an endless loop")

    def note(self, sent: str, came: str) -> None:
        """Stores the evidence without secrets."""
        self.sent, self.came = self.veiled(sent), self.veiled(came)

    def veiled(self, text: str) -> str:
        """Returns a text without the user's secrets, on one short line."""
        for value in self.credentials.values():
            for secret in (value, value.rpartition(" ")[2]):
                if len(secret) > 3:
                    text = text.replace(secret, "***")
        return short(text)

    @contextmanager
    def anonymous(self) -> Iterator[None]:
        """Leaves the credentials out of the requests inside the block."""
        kept, self.credentials = self.credentials, {}
        try:
            yield
        finally:
            self.credentials = kept

    def ask(
        self, method: str, url: str, body: bytes = b"", headers: Headers | None = None
    ) -> HttpAnswer:
        """Sends a request and returns the whole answer."""
        with self.open(method, url, body, headers) as (status, fields, pieces):
            got = bytearray()
            deadline = time.monotonic() + self.timeout
            for piece in pieces:
                got += piece
                if len(got) > LARGEST or time.monotonic() > deadline:
                    break
        answer = HttpAnswer(status, fields, bytes(got))
        self.note(self.sent, f"{status} {answer.type} {got[:SHORT].decode('utf-8', 'replace')}")
        return answer

    @contextmanager
    def open(
        self, method: str, url: str, body: bytes = b"", headers: Headers | None = None
    ) -> Iterator[tuple[int, dict[str, str], Iterator[bytes]]]:
        """Sends a request and yields a response whose body is read as it arrives."""
        if self._dead:
            raise NoAnswer(self._dead)
        self.count()
        origin = "/".join(url.split("/", 3)[:3])
        self.note(f"{method} {url} {body[:SHORT].decode('utf-8', 'replace')}", "no answer")
        accept = {"accept": "application/json, text/event-stream"}
        fields = {**accept, **self.credentials, **(headers or {})}
        try:
            with self._respond(method, url, body, fields) as response:
                self._answered.add(origin)
                got: dict[str, str] = {}
                for name, value in response.headers:
                    key = name.decode("latin-1").lower()
                    text = value.decode("latin-1")
                    got[key] = f"{got[key]}, {text}" if key in got else text
                yield response.status, got, iter(response.iter_stream())
        except httpcore2.TimeoutException:
            raise self._failed(f"no answer within {self.timeout:g} s") from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as exc:
            known = origin in self._answered
            raise self._failed(explained(_ours(exc), origin, "it", known=known)) from None
        except Unreachable as exc:
            raise self._failed(f"it cannot be reached: {exc}") from None
        except BadParams as exc:
            raise self._failed(exc.message) from None
        except (httpcore2.UnsupportedProtocol, ValueError) as exc:
            raise self._failed(f"this address cannot be called: {exc}") from None

    @contextmanager
    def _respond(
        self, method: str, url: str, body: bytes, fields: Headers
    ) -> Iterator[httpcore2.Response]:
        """Sends a request, again if a kept connection ends without a byte of an answer.

        A server may close a connection that it has kept at any moment, also while our request is on
        its way: that is no fault of the agent (RFC 9112 §9.3.1). The attempts end, because each one
        uses up a connection, and a fresh one is not tried again.
        """
        connected = False

        def trace(event: str, _: Mapping[str, Any]) -> None:
            nonlocal connected
            connected = connected or event == "connection.connect_tcp.started"

        limits = dict.fromkeys(("connect", "read", "write", "pool"), self.timeout)
        with ExitStack() as stack:
            while True:
                streaming = self._pool.stream(
                    method,
                    url,
                    headers=[(k.encode(), v.encode()) for k, v in fields.items()],
                    content=body,
                    extensions={"timeout": limits, "trace": trace},
                )
                try:
                    response = stack.enter_context(streaming)
                except (httpcore2.NetworkError, httpcore2.RemoteProtocolError) as exc:
                    if connected or not _closed_unanswered(exc):
                        raise
                else:
                    break
            yield response

    def _failed(self, why: str) -> NoAnswer:
        if not self._answered:
            self._dead = why
        return NoAnswer(why)


def _closed_unanswered(exc: Exception) -> bool:
    """Returns whether the other side ended the connection before its answer began."""
    if isinstance(exc, httpcore2.RemoteProtocolError):
        return "without sending" in str(exc)
    return isinstance(exc, httpcore2.ReadError | httpcore2.WriteError)


def short(text: str) -> str:
    """Returns a text as one short line."""
    line = " ".join(text.split())
    return line if len(line) <= SHORT else f"{line[:SHORT]}..."


class SseFrame(Struct, frozen=True):
    """A server-sent event as it was received."""

    data: str
    name: str = ""
    lines: int = 1


def frames(pieces: Iterator[bytes]) -> Iterator[SseFrame]:
    """Yields server-sent events; comments and ids are left out."""
    rest, name, lines = b"", "", 0
    data: list[str] = []
    for piece in pieces:
        *ready, rest = (rest + piece).replace(b"\r\n", b"\n").split(b"\n")
        for raw in ready:
            line = raw.decode("utf-8", "surrogateescape").rstrip("\r")
            if not line:
                if data:
                    yield SseFrame("\n".join(data), name, lines)
                data, name, lines = [], "", 0
            elif line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
                lines += 1
            elif line.startswith("event:"):
                name = line[6:].strip()
    if data:
        yield SseFrame("\n".join(data), name, lines)
