"""A token endpoint of RFC 8693, on a real port."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs

CLIENT, SECRET = "our-gateway", "the-secret-of-our-client"


class TokenServer:
    """Exchanges the tokens that it was told of, and remembers what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.tokens: dict[str, str] = {}
        """What each token is exchanged for; others are refused."""
        self.life: int | None = 3600
        self.status = 0
        """What it answers in place of everything, while it is away."""
        self.asked: list[dict[str, str]] = []

    def answer(self, head: str, body: str) -> tuple[int, dict[str, object]]:
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self.asked.append(form)
        if self.status:
            return self.status, {"error": "temporarily_unavailable"}
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if f"authorization: basic {basic}".lower() not in head.lower():
            return 401, {"error": "invalid_client"}
        if form["grant_type"] != "urn:ietf:params:oauth:grant-type:token-exchange":
            return 400, {"error": "unsupported_grant_type"}
        found = self.tokens.get(form["subject_token"])
        if found is None:
            return 400, {"error": "invalid_target", "error_description": "not for you"}
        issued: dict[str, object] = {
            "access_token": found,
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "token_type": "Bearer",
        }
        return 200, issued | ({"expires_in": self.life} if self.life else {})

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            sizes = [each for each in head.lower().split("\r\n") if each.startswith("content-len")]
            body = (await reader.readexactly(int(sizes[0].partition(":")[2]))).decode()
            status, said = self.answer(head, body)
            content = json.dumps(said).encode()
            writer.write(
                f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\n"
                f"content-length: {len(content)}\r\nconnection: close\r\n\r\n".encode()
                + content
            )
            await writer.drain()
        finally:
            writer.close()


@asynccontextmanager
async def token_server() -> AsyncIterator[TokenServer]:
    found = TokenServer()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/token"
    try:
        yield found
    finally:
        server.close()
        await server.wait_closed()
