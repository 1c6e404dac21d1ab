"""A small agent server for the tests of the wires: an honest Peer, a server on a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from dragoman.agent import Agent, Turn
from dragoman.core.errors import TaskNotFound, Unsupported
from dragoman.core.events import ArtifactChunk, Opened, Stamped, StateChanged
from dragoman.core.model import Artifact, Message, State, Status, Task, Text
from dragoman.core.operations import GetTask, Operation, R, SendMessage, Streamed, Watch
from dragoman.core.peer import Batch, Context
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.server.app import App
from dragoman.server.serve import address
from dragoman.settings import Limits, Settings

agent = Agent("Little", description="Does little.")


@agent.skill("little")
async def little(turn: Turn) -> str:
    return turn.text


class LittlePeer:
    """Answers by what the message says: `crash`, `count 5`, `wait`, `flood`, else an echo."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.asked: list[tuple[object, Context]] = []
        self.open = 0
        """Streams whose generator is alive."""
        self.stopped_with: float | None = None

    async def start(self) -> None:
        pass

    async def stop(self, grace: float) -> None:
        self.stopped_with = grace

    async def counts(self) -> Mapping[str, int]:
        return {"completed": len(self.tasks), "runnable": 0}

    async def call(self, op: Operation[R], ctx: Context) -> R:
        self.asked.append((op, ctx))
        if isinstance(op, SendMessage):
            if op.message.text == "crash":
                raise RuntimeError("secret words")
            number = str(len(self.tasks) + 1)
            task = self.tasks[number] = Task(
                id=number,
                context_id="c",
                status=Status(State.COMPLETED, 1),
                artifacts=(Artifact(artifact_id="a", parts=(Text(op.message.text.upper()),)),),
            )
            return task  # type: ignore[return-value]
        if isinstance(op, GetTask):
            if op.task_id not in self.tasks:
                raise TaskNotFound(taskId=op.task_id)
            return self.tasks[op.task_id]  # type: ignore[return-value]
        raise Unsupported()

    async def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        self.asked.append((op, ctx))
        if isinstance(op, Watch):
            raise TaskNotFound(taskId=op.task_id)
        self.open += 1
        try:
            async for batch in self._steps(op.message, ctx):
                yield batch
        finally:
            self.open -= 1

    async def _steps(self, message: Message, ctx: Context) -> AsyncGenerator[Batch, None]:
        word, _, number = message.text.partition(" ")
        if word == "crash" and not number:
            raise RuntimeError("secret words")
        yield Batch([_at(1, Opened(message=message))], last=False)
        match word:
            case "crash":
                raise RuntimeError("secret words")
            case "count":
                chunks = [_at(seq, _chunk("x")) for seq in range(2, int(number) + 2)]
                yield Batch(chunks, last=False)
            case "wait":
                while True:
                    await asyncio.sleep(0.05)  # its work
                    yield Batch([], last=False)
            case "flood":
                for seq in range(2, 1_000_000):
                    yield Batch([_at(seq, _chunk("x" * 65536))], last=False)
        yield Batch([_at(99, StateChanged(state=State.COMPLETED))], last=True)


def _at(seq: int, event: Any) -> Stamped:
    return Stamped("t", "c", seq, seq, event)


def _chunk(text: str) -> ArtifactChunk:
    return ArtifactChunk(artifact=Artifact(artifact_id="a", parts=(Text(text),)), append=True)


class RunningServer:
    """A running server, and a raw way to talk to it."""

    def __init__(self, app: App, peer: LittlePeer, port: int, listener: GranianServer) -> None:
        self.app, self.peer, self.port, self.listener = app, peer, port, listener
        self.url = f"http://127.0.0.1:{port}"

    async def raw(self, data: bytes, wait: float = 60.0) -> bytes:
        """What the server says to these bytes until it closes or falls silent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        heard = b""
        try:
            async with asyncio.timeout(wait):
                while piece := await reader.read(65536):
                    heard += piece
        except TimeoutError:
            pass
        writer.close()
        return heard


@asynccontextmanager
async def open_server(host: str = "127.0.0.1", **limits: Any) -> AsyncIterator[RunningServer]:
    """A server with these limits on a free port."""
    peer = LittlePeer()
    settings = Settings(limits=Limits(**limits))
    sock: socket.socket = bind(host, 0, limits=settings.limits)
    base = address(sock)
    app = App(agent, peer, settings, Log("error", fd=2), base)
    app.server.deadlines._tick = 0.05
    await app.start()
    listener = GranianServer(app, sock, settings.limits)
    port = int(base.rpartition(":")[2])
    listener.begin()
    try:
        yield RunningServer(app, peer, port, listener)
    finally:
        listener.refuse()
        await app.stop()
        await listener.end(1.0)


def call(method: str, params: object, id: object = 1) -> bytes:
    """A JSON-RPC request."""
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def said(text: str) -> dict[str, Any]:
    """Parameters of a 1.0 send."""
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}}


def said_0_3(text: str) -> dict[str, Any]:
    """Parameters of a 0.3 send."""
    part = {"kind": "text", "text": text}
    return {"message": {"kind": "message", "messageId": "m", "role": "user", "parts": [part]}}


def post(body: bytes, *headers: str, path: str = "/") -> bytes:
    """A whole HTTP/1.1 request that asks to be closed after."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    lines += [f"Content-Length: {len(body)}", "Connection: close"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


__all__ = ["LittlePeer", "RunningServer", "call", "open_server", "post", "said", "said_0_3"]
