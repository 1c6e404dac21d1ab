"""Agents of strangers behind a gateway, and callers that know nothing but the text of A2A."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx2
import pytest

from doctor.servers import wait_for
from interop.peers import A2A_SDK, PeerUnavailable
from ports import own_port

SCRIPT = Path(__file__).parent / "peers" / "sdk_desk.py"
DIALECTS = (
    *("a2a-1.0", "a2a-1.0-rest", "a2a-1.0-grpc"),
    *("a2a-0.3", "a2a-0.3-rest", "a2a-0.3-grpc"),
)
"""All that a2a-sdk 1.3.0 serves."""


class Desk(NamedTuple):
    """An agent on a2a-sdk 1.3.0 that listens."""

    url: str
    origins: list[str]

    def section(self, dialect: str = "a2a-1.0", **more: Any) -> dict[str, Any]:
        """The `[agents.NAME]` with which a gateway calls it in this dialect."""
        return {"url": self.url, "dialect": dialect, "origins": self.origins, **more}


@contextmanager
def desk(folder: Path, *, streams: bool = True, at: str = "") -> Iterator[Desk]:
    """Starts the agent in its own environment, and stops it."""
    ports = [own_port() for _ in range(3)]
    more = ["plain"] * (not streams) + [f"at={at}"] * bool(at)
    with sdk_agent(SCRIPT, folder, ports, *more):
        yield Desk(f"http://127.0.0.1:{ports[0]}", [f"http://127.0.0.1:{each}" for each in ports])


@contextmanager
def sdk_agent(script: Path, folder: Path, ports: Sequence[int], *more: str) -> Iterator[None]:
    """Starts an agent on a2a-sdk 1.3.0 at these ports in its own environment, and stops it."""
    try:
        home = A2A_SDK.ready()
    except PeerUnavailable as exc:
        pytest.skip(str(exc))
    command = [*A2A_SDK.start(home), str(script), *map(str, ports), *more]
    log = folder / f"{script.stem}-{ports[0]}.log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        for port in ports:
            wait_for(port, process, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class PlainCaller:
    """A caller of A2A 1.0 over JSON-RPC that is written from the specification alone. It sends no
    headers but the version."""

    def __init__(self, url: str, **headers: str) -> None:
        self._url = url
        self._client = httpx2.AsyncClient(headers={"a2a-version": "1.0", **headers}, timeout=120)

    async def __aenter__(self) -> PlainCaller:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The whole response."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        found: dict[str, Any] = (await self._client.post(self._url, json=body)).json()
        return found

    async def send(
        self, text: str, *, configuration: dict[str, Any] | None = None, **message: Any
    ) -> dict[str, Any]:
        """The result of `SendMessage`, or `{"error": ...}`."""
        params: dict[str, Any] = {"message": said(text, **message)}
        if configuration is not None:
            params["configuration"] = configuration
        answer = await self.call("SendMessage", **params)
        return answer.get("result") or {"error": answer["error"]}

    async def stream(self, text: str, **message: Any) -> AsyncIterator[dict[str, Any]]:
        """The results of `SendStreamingMessage`, or `{"error": ...}`."""
        params = {"message": said(text, **message)}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params}
        async with self._client.stream("POST", self._url, json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    event = json.loads(line.removeprefix("data:"))
                    yield event.get("result") or {"error": event["error"]}
                elif line.startswith("{"):  # refused before there was a stream
                    yield {"error": json.loads(line)["error"]}


def said(text: str, **about: Any) -> dict[str, Any]:
    """A message of A2A 1.0."""
    return {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}], **about}


def words(message: dict[str, Any]) -> str:
    """The text of a message or an artifact."""
    return "".join(part.get("text", "") for part in message["parts"])
