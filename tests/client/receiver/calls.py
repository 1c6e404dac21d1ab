"""Calls of webhooks as senders make them, and a receiver that writes down what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from dragoman.client.receiver import Notice, Proof, Receiver
from dragoman.net.webhooks import signed
from ports import own_port
from waiting import until

TOKEN = "a-long-random-token"
PROOF = Proof(tokens=(TOKEN,))
NOW = 1_800_000_000.0


def task_1_0(state: str = "TASK_STATE_WORKING", id: str = "t-1") -> dict[str, Any]:
    """The whole task, as 1.0 tells it."""
    return {"task": {"id": id, "contextId": "c-1", "status": {"state": state}}}


def body_of(value: Any) -> bytes:
    return msgspec.json.encode(value)


def call(
    body: bytes, id: str = "t-1.3", at: float = NOW, token: str = TOKEN, key: str = ""
) -> dict[str, str]:
    """The headers of a call that Dragoman makes."""
    stamp = str(int(at))
    return {
        "content-type": "application/json",
        "x-a2a-notification-token": token,
        "a2a-notification-token": token,
        "webhook-id": id,
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,{signed((key or token).encode(), id, stamp, body)}",
    }


class Diary:
    """A callback that remembers, fails when it is told to, and can be made to wait."""

    def __init__(self) -> None:
        self.told: list[Notice] = []
        self.begun = 0
        self.failures = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, notice: Notice) -> None:
        self.begun += 1
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the disk is full")
        self.told.append(notice)


def receiver(diary: Diary, proof: Proof = PROOF, **options: Any) -> Receiver:
    return Receiver(diary, proof, clock=lambda: NOW, **options)


async def post(
    app: Receiver,
    headers: Mapping[str, str],
    *chunks: bytes,
    method: str = "POST",
    forever: bool = False,
) -> tuple[int, dict[str, str]]:
    """One exchange with an ASGI app: status and headers."""
    left = list(chunks) or [b""]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.Event().wait()
        chunk = left.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(left) or forever}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": "/hook", "headers": pairs}
    scope["http_version"] = "1.1"
    await app(scope, receive, send)
    answered = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    return sent[0]["status"], answered


@asynccontextmanager
async def listening(app: Receiver) -> AsyncGenerator[str, None]:
    """The app behind a real socket, served by Granian in this process."""
    from granian.constants import Interfaces
    from granian.server.embed import Server

    port = own_port()
    server = Server(
        app, address="127.0.0.1", port=port, interface=Interfaces.ASGI, log_enabled=False
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.serve())
        await until(lambda: _open(port))
        try:
            yield f"http://127.0.0.1:{port}/hook"
        finally:
            server.stop()
            await running


async def _open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
