"""Raw HTTP, one request after the other, and a memory of the last one for the evidence.

This is a second HTTP client on purpose. The first (`security.outbound`) keeps the rules, refuses
what breaks them and turns every failure into an error of ours; the doctor must send what no sound
client sends, see answers untouched, and work through its checks one by one, without an event loop.
Both check addresses by the same rules (`guard`).
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpcore2
from msgspec import Struct

from dragoman.core.errors import BadParams, ConfigError
from dragoman.security.outbound.address_scopes import Unreachable
from dragoman.security.outbound.failures import explained, is_web_page

from .check import Broken, Unknowable
from .guard import Guard, GuardedSockets

MOST_REQUESTS = 900
"""A doctor must not be a load test."""
LARGEST = 64 * 1024 * 1024
SHORT = 400
Headers = Mapping[str, str]


class NoAnswer(Broken):
    """The connection failed or nothing came in time."""


class HttpAnswer(Struct, frozen=True):
    """What came back, untouched."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def type(self) -> str:
        """The content type without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def json(self) -> Any:
        """The body; `Broken` if it is not strict JSON in UTF-8."""
        return strict_json(self.body)


def strict_json(body: bytes | str) -> Any:
    """Reads JSON as RFC 8259 has it: no NaN, nothing but UTF-8."""

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
    """Asks, within limits, and remembers the last exchange."""

    def __init__(
        self, guard: Guard, timeout: float, headers: Mapping[str, str] | None = None, ca: str = ""
    ) -> None:
        self.guard = guard
        self.timeout = timeout
        self.ca = ca
        self.credentials = dict(headers or {})
        """Goes with every request and into no report."""
        self.requests = 0
        self.sent = self.came = ""
        self._answered = False
        self._dead = ""
        """Why nobody is there: the very first request had no answer, and the others need not wait
        for theirs."""
        self._pool = httpcore2.ConnectionPool(
            _trusting(ca) if ca else None,
            max_connections=20,
            keepalive_expiry=5.0,
            network_backend=GuardedSockets(guard),
        )

    def close(self) -> None:
        """Ends the connections."""
        self._pool.close()

    def count(self) -> None:
        """One more request."""
        self.requests += 1
        if self.requests > MOST_REQUESTS:
            raise Unknowable(f"more than {MOST_REQUESTS} requests; something goes round in circles")

    def note(self, sent: str, came: str) -> None:
        """Keeps the evidence, without secrets."""
        self.sent, self.came = self.veiled(sent), self.veiled(came)

    def veiled(self, text: str) -> str:
        """A text without the user's secrets, on one line that fits."""
        for value in self.credentials.values():
            for secret in (value, value.rpartition(" ")[2]):
                if len(secret) > 3:
                    text = text.replace(secret, "***")
        return short(text)

    @contextmanager
    def anonymous(self) -> Iterator[None]:
        """Meanwhile nothing proves who asks."""
        kept, self.credentials = self.credentials, {}
        try:
            yield
        finally:
            self.credentials = kept

    def ask(
        self, method: str, url: str, body: bytes = b"", headers: Headers | None = None
    ) -> HttpAnswer:
        """One exchange, read to its end."""
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
        """An answer whose body is read as it comes."""
        if self._dead:
            raise NoAnswer(self._dead)
        self.count()
        self.note(f"{method} {url} {body[:SHORT].decode('utf-8', 'replace')}", "no answer")
        accept = {"accept": "application/json, text/event-stream"}
        fields = {**accept, **self.credentials, **(headers or {})}
        limits = dict.fromkeys(("connect", "read", "write", "pool"), self.timeout)
        try:
            with self._pool.stream(
                method,
                url,
                headers=[(k.encode(), v.encode()) for k, v in fields.items()],
                content=body,
                extensions={"timeout": limits},
            ) as response:
                self._answered = True
                got: dict[str, str] = {}
                for name, value in response.headers:
                    key = name.decode("latin-1").lower()
                    text = value.decode("latin-1")
                    got[key] = f"{got[key]}, {text}" if key in got else text
                yield response.status, got, iter(response.iter_stream())
        except httpcore2.TimeoutException:
            raise self._failed(f"no answer within {self.timeout:g} s") from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as exc:
            origin = "/".join(url.split("/", 3)[:3])
            raise self._failed(explained(exc, origin, "it")) from None
        except Unreachable as exc:
            raise self._failed(f"it cannot be reached: {exc}") from None
        except BadParams as exc:
            raise self._failed(exc.message) from None
        except (httpcore2.UnsupportedProtocol, ValueError) as exc:
            raise self._failed(f"this address cannot be asked: {exc}") from None

    def _failed(self, why: str) -> NoAnswer:
        if not self._answered:
            self._dead = why
        return NoAnswer(why)


def short(text: str) -> str:
    """One line that fits."""
    line = " ".join(text.split())
    return line if len(line) <= SHORT else f"{line[:SHORT]}..."


class SseFrame(Struct, frozen=True):
    """One event of a stream as it stood on the wire."""

    data: str
    name: str = ""
    lines: int = 1


def frames(pieces: Iterator[bytes]) -> Iterator[SseFrame]:
    """Server-sent events; comments and ids are left out."""
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
