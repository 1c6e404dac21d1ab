"""A small HTTP server on a loopback port: remembers every request, answers as it is told."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from waiting import turns


@dataclass
class Request:
    """One request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    base: str

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def raw(self) -> bytes:
        """Everything that came, for looking whether something is in it."""
        return repr((self.target, self.headers, self.body)).encode()


@dataclass
class Response:
    """One answer."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def as_json(value: Any, status: int = 200, **headers: str) -> Response:
    return Response(
        status, msgspec.json.encode(value), {"content-type": "application/json"} | headers
    )


class LittleHttp:
    """Listens while it is entered."""

    def __init__(
        self, answer: Callable[[Request], Response], tls: ssl.SSLContext | None = None
    ) -> None:
        self.answer, self._tls = answer, tls
        self.heard: list[Request] = []
        self.port = 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> LittleHttp:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.transport.abort()
        await turns()  # what was closed has its last turn

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while line := await reader.readline():
                method, target, _ = line.decode("latin-1").split()
                headers: dict[str, str] = {}
                while (one := await reader.readline()) not in (b"\r\n", b""):
                    name, _, value = one.decode("latin-1").partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                request = Request(method, target, headers, body, self.url)
                self.heard.append(request)
                said = self.answer(request)
                head = {"content-length": str(len(said.body)), **said.headers}
                lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
                writer.write(f"HTTP/1.1 {said.status} X\r\n{lines}\r\n".encode() + said.body)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()
