"""One server, and seven ways to ask it the same: every binding in every version it has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import grpc
import httpx2
from msgspec import Struct

from dragoman import Agent
from dragoman.core.errors import DragomanError
from dragoman.core.events import Stamped
from dragoman.core.model import AnyPart, Message, Role, Text
from dragoman.core.operations import AnyOperation, SendMessage
from dragoman.core.session import Call, Fault, Frame, Result, Session, Update
from dragoman.dialects.a2a.grpc.caller import GrpcCaller, failed
from dragoman.dialects.a2a.jsonrpc import RpcCaller
from dragoman.dialects.a2a.legacy.v0_1 import V0_1
from dragoman.dialects.a2a.rest import RestCaller
from dragoman.dialects.a2a.routes import REST_0_3, REST_1_0
from dragoman.dialects.a2a.v0_3 import V0_3
from dragoman.dialects.a2a.v1_0 import V1_0
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.observability.log import Log
from dragoman.server.app import App, engine_for
from dragoman.server.serve import address
from dragoman.settings import Server, Settings
from waiting import turns


class Heard(Struct):
    """All that came back."""

    answer: Any = None
    entries: list[Stamped | Message] = []
    error: DragomanError | None = None
    code: int | None = None
    """Of the error: JSON-RPC's, or the status of HTTP or gRPC."""
    active: str = ""
    """The extensions that were echoed, under the name the version has for it."""
    unasked: bool = False
    """This way has no words for the question."""


class RunningServer:
    """A running server."""

    def __init__(self, app: App, client: httpx2.AsyncClient, channel: Any) -> None:
        self.app, self.client, self.channel = app, client, channel


@asynccontextmanager
async def served(
    agent: Agent, *, log_fd: int = 2, log_level: str = "error", **sections: Any
) -> AsyncIterator[RunningServer]:
    """The agent over HTTP and gRPC on free ports."""
    server = Server(store="memory:", grpc=True, grpc_port=0, allow_private=True)
    settings = Settings(**{"server": server, **sections})
    sock = bind("127.0.0.1", 0)
    base = address(sock)
    app = App(
        agent,
        engine_for(agent, settings),
        settings,
        Log(log_level, fd=log_fd),
        base,
    )
    await app.start()
    listener = GranianServer(app, sock, settings.limits)
    listener.begin()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{app.ports['grpc']}")
    try:
        async with httpx2.AsyncClient(base_url=base, timeout=60) as client:
            yield RunningServer(app, client, channel)
    finally:
        await channel.close()
        listener.refuse()
        await app.stop()
        await listener.end(1)
        await turns()  # what was closed has its last turn


class Way:
    """One binding in one version."""

    def __init__(self, name: str, caller: Callable[[Iterable[str]], Session]) -> None:
        self.name, self._caller = name, caller
        self.echo = "a2a-extensions" if name.endswith("1.0") else "x-a2a-extensions"

    async def ask(
        self,
        running: RunningServer,
        op: AnyOperation,
        *,
        stream: bool = False,
        extensions: Iterable[str] = (),
        headers: dict[str, str] | None = None,
        patience: float = 60,
    ) -> Heard:
        """One exchange; `patience` is the caller's own time-out, or its gRPC deadline."""
        session = self._caller(extensions)
        frames = list(session.send(Call("1", op, stream)))
        if not frames:
            return Heard(unasked=True)
        (frame,) = frames
        said = {**frame.headers, **(headers or {})}
        if self.name.startswith("gRPC"):
            return await self._grpc(running, session, frame, said, patience, stream=stream)
        return await self._http(running, session, frame, said, patience)

    async def _http(
        self,
        running: RunningServer,
        session: Session,
        frame: Frame,
        headers: dict[str, str],
        patience: float,
    ) -> Heard:
        verb, _, path = frame.target.partition(" ")
        reply = await running.client.request(
            verb, path or "/", content=frame.body or None, headers=headers, timeout=patience
        )
        heard = Heard(active=reply.headers.get(self.echo, ""))
        if reply.headers["content-type"].startswith("text/event-stream"):
            for block in reply.text.split("\n\n"):
                data = "".join(
                    line.removeprefix("data:").strip()
                    for line in block.splitlines()
                    if line.startswith("data:")
                )
                if data:
                    _take(heard, session, Frame(data.encode(), status=200))
            heard.code = getattr(heard.error, "code", None)
        else:
            _take(heard, session, Frame(reply.content, "", dict(reply.headers), reply.status_code))
            if heard.error is not None:
                told = reply.json()
                rpc = self.name.startswith("JSON-RPC")
                heard.code = told["error"]["code"] if rpc else reply.status_code
        return heard

    async def _grpc(
        self,
        running: RunningServer,
        session: Session,
        frame: Frame,
        headers: dict[str, str],
        patience: float,
        *,
        stream: bool,
    ) -> Heard:
        heard = Heard()
        metadata = tuple(headers.items())
        make = running.channel.unary_stream if stream else running.channel.unary_unary
        call = make(frame.target)(frame.body, metadata=metadata, timeout=patience)
        try:
            if stream:
                async for body in call:
                    _take(heard, session, Frame(body, status=0))
            else:
                _take(heard, session, Frame(await call, status=0))
        except grpc.aio.AioRpcError as error:
            trailers = dict(error.trailing_metadata() or ())
            heard.code = error.code().value[0]
            failure = failed(
                heard.code, error.details() or "", trailers.get("grpc-status-details-bin", b"")
            )
            _take(heard, session, failure)
        heard.active = dict(await call.trailing_metadata() or ()).get(self.echo, "")
        return heard


def _take(heard: Heard, session: Session, frame: Frame) -> None:
    for signal in session.receive(frame):
        match signal:
            case Result(value=value):
                heard.answer = value
            case Update(entry=entry):
                heard.entries.append(entry)
            case Fault(error=error):
                heard.error = error


WAYS = {
    way.name: way
    for way in (
        Way("JSON-RPC 1.0", lambda uris: RpcCaller(V1_0, uris)),
        Way("JSON-RPC 0.3", lambda uris: RpcCaller(V0_3, uris)),
        Way("JSON-RPC 0.1", lambda uris: RpcCaller(V0_1, uris)),
        Way("REST 1.0", lambda uris: RestCaller(REST_1_0, uris)),
        Way("REST 0.3", lambda uris: RestCaller(REST_0_3, uris)),
        Way("gRPC 1.0", lambda uris: GrpcCaller("1.0", uris)),
        Way("gRPC 0.3", lambda uris: GrpcCaller("0.3", uris)),
    )
}


_NUMBERS = count(1)


def said(*parts: AnyPart | str, task: str = "", **about: Any) -> SendMessage:
    """A message, and what goes along with it."""
    message = Message(
        message_id=f"m{next(_NUMBERS)}",  # 0.1 calls the task so
        role=Role.USER,
        parts=tuple(Text(part) if isinstance(part, str) else part for part in parts),
        task_id=task,
        context_id=about.pop("context", ""),
        references=about.pop("references", ()),
        metadata=about.pop("noted", None),
    )
    return SendMessage(message=message, **about)
