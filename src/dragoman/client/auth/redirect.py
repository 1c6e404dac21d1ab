"""The loopback redirect of a login: serves one page for one answer of the browser (RFC 8252)."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import parse_qsl, urlsplit

from dragoman.core.errors import ConfigError, Unauthenticated

PATH = "/callback"
LONGEST_LINE = 8192
MOST_LINES = 100
SECONDS_TO_ASK = 10.0
DONE = "You are logged in. You can close this page and go back to the terminal."
REFUSED = "The login was refused. You can close this page and go back to the terminal."
STRANGE = "This is not the answer that Dragoman is waiting for."


class Redirect:
    """Listens on a loopback port while the context is open. An answer without our `state` is
    refused."""

    def __init__(self, state: str, port: int = 0) -> None:
        self._state, self._port = state, port
        self._server: asyncio.Server | None = None
        self._answer: asyncio.Future[Mapping[str, str]] | None = None

    @property
    def url(self) -> str:
        """Returns the `redirect_uri`. It holds the literal address, since `localhost` can resolve
        to another interface (RFC 8252 §8.3)."""
        return f"http://127.0.0.1:{self._port}{PATH}"

    async def __aenter__(self) -> Redirect:
        self._answer = asyncio.get_running_loop().create_future()
        try:
            self._server = await asyncio.start_server(
                self._serve, "127.0.0.1", self._port, limit=LONGEST_LINE
            )
        except OSError as exc:
            raise ConfigError(f"Port {self._port} cannot be used: {exc.strerror}.") from None
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._server is not None:
            self._server.close()

    async def wait(self, seconds: float) -> Mapping[str, str]:
        """Returns the parameters of the answer that came with the right state."""
        assert self._answer is not None  # noqa: S101  entered
        try:
            async with asyncio.timeout(seconds):
                return await self._answer
        except TimeoutError:
            raise Unauthenticated("Nobody logged in within the time limit.") from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(SECONDS_TO_ASK):
                line = (await reader.readline()).decode("latin-1")
                for _ in range(MOST_LINES):
                    if await reader.readline() in (b"\r\n", b"\n", b""):
                        break
                status, text, said = self._heard(line)
                writer.write(_page(status, text))
                await writer.drain()  # the page is sent before the login goes on and closes us
                if said and self._answer is not None and not self._answer.done():
                    self._answer.set_result(said)
        writer.close()

    def _heard(self, line: str) -> tuple[str, str, Mapping[str, str]]:
        method, _, rest = line.partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        if method != "GET" or target.path != PATH:
            return "404 Not Found", STRANGE, {}
        pairs = parse_qsl(target.query, keep_blank_values=True, max_num_fields=50)
        said = dict(pairs)
        # Any web page can send a request to this port, but cannot know our state
        # (RFC 6819 §5.3.5).
        same = hmac.compare_digest(said.get("state", "").encode(), self._state.encode())
        if not same or len(said) != len(pairs):
            return "400 Bad Request", STRANGE, {}
        return "200 OK", DONE if "code" in said else REFUSED, said


def _page(status: str, text: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>Dragoman</title><p>{text}</p>\n".encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\ncache-control: no-store\r\n"
        "referrer-policy: no-referrer\r\n"
        "content-security-policy: default-src 'none'; frame-ancestors 'none'\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body
