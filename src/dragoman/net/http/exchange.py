"""One HTTP exchange in one dialect: one `receive`, one question to the peer, one `send`.

All of it is called directly. There is no task group, queue or timeout object per request: the
budget of a whole send above the bare server is about 80 us. Only a stream has a second task, which
waits for the client to leave, since `send()` never tells (it succeeds into the void).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from functools import cached_property
from time import perf_counter
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from dragoman.core.errors import (
    AgentCrashed,
    BadParams,
    DragomanError,
    TooLarge,
    TooMany,
    TooSlow,
    Unparseable,
    VersionUnsupported,
)
from dragoman.core.model import Task
from dragoman.core.operations import GetExtendedCard
from dragoman.core.peer import ANYONE, Batch, Context, Peer
from dragoman.core.session import Call, Fault, Frame, Id, Result, Session
from dragoman.dialects.sse import event
from dragoman.observability.log import Log
from dragoman.observability.metrics import Metrics
from dragoman.security.authentication import Admit, certificate_in, in_tenant
from dragoman.security.route_policy import Policy
from dragoman.settings import Limits

from .asgi import Header, Receive, Scope, Send, drain_body, ends_by_length, headers_in
from .deadlines import Deadlines
from .forwarded import typed_base
from .sse_writer import SseWriter

JSON_TYPE: Header = (b"content-type", b"application/json")
SSE_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
PIECE = 64 * 1024
"""Bytes of an answer that the server is given at once."""


class OpenStream:
    """A stream someone reads; `why` says who ended it if it was not the task."""

    __slots__ = ("task", "why")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.why = ""

    def end(self, why: str) -> None:
        """Ends it from outside: the client is `gone`, or we are `stopping`."""
        if not self.why:
            self.why = why
            self.task.cancel()


class ServerContext:
    """What all exchanges of a server share: limits, doors, counters and the streams now open."""

    def __init__(self, peer: Peer, admit: Admit, limits: Limits, log: Log) -> None:
        self.peer = peer
        self.admit = admit
        self.limits = limits
        self.log = log
        self.metrics = Metrics()
        self.deadlines = Deadlines()
        self.streams: set[OpenStream] = set()
        self.extensions: frozenset[str] = frozenset()
        """What the card declares; of these we echo what a caller activates."""
        self.refusal_headers: Callable[[Exception], tuple[Header, ...]] = _no_headers
        """What a refused caller is told in headers: `Authenticator.refusal_headers`."""

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that serves. Asked for once: in Python 3.11 that is a system call."""
        return asyncio.get_running_loop()

    def end_streams(self) -> None:
        """Ends every open stream: the server stops, and would wait for them without limit."""
        for stream in tuple(self.streams):
            stream.end("stopping")


class Exchange:
    """Answers the requests at one address, in the dialects that `callee` tells apart."""

    policy = Policy.CALLER

    def __init__(
        self,
        server: ServerContext,
        callee: Callable[[], Session],
        target: str = "",
        spoken: Collection[str] | None = None,
    ) -> None:
        """`spoken` are the dialects of `callee` that are served here; None: all of them."""
        self.server = server
        self.callee = callee
        self._spoken = spoken
        self.target = target
        """Where there is one address; else each request says its own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The whole exchange."""
        began = perf_counter()
        server = self.server
        session = self.callee()
        headers = headers_in(scope["headers"])
        if scope["query_string"] and "a2a-version" not in headers:
            _version_from_query(scope["query_string"], headers)
        target = self.target
        if not target or scope["query_string"]:
            target = target_in(scope, target)
        ident: Id = None
        method = "-"
        echo: tuple[Header, ...] = ()
        try:
            refused: BadParams | None = None
            body = b""
            try:
                try:
                    admitted = server.admit(headers, target, certificate_in(scope))
                    ctx = admitted if isinstance(admitted, Context) else await admitted
                except BadParams as exc:
                    refused, ctx = exc, ANYONE  # told below, with the id of the call
                except DragomanError:
                    body, echo = await drain_body(scope, receive, headers)
                    raise
                # What GET and DELETE ask is all in their path.
                if scope["method"] == "POST":
                    body = await self._body(scope, receive, headers)
            except DragomanError:
                # For the version and, if the body came, the id to answer under.
                ident = next(iter(session.receive(Frame(body, target, headers)))).id
                raise
            signal = next(iter(session.receive(Frame(body, target, headers))))
            if isinstance(signal, Call):
                ident = signal.id
            elif isinstance(signal, Fault):
                ident = signal.id
                raise signal.error
            else:
                raise AssertionError(f"a callee heard {type(signal).__name__}")
            if refused is not None:
                raise refused
            if self._spoken is not None and session.dialect not in self._spoken:
                raise VersionUnsupported(supported=", ".join(self._spoken))
            if session.tenant:
                ctx = in_tenant(ctx, session.tenant)
            ctx = spoken(ctx, session.dialect)
            method = type(signal.op).__name__
            server.log.details("read", session.notes)
            if isinstance(signal.op, GetExtendedCard):
                ctx = replace(ctx, base=typed_base(scope, headers))
            if ctx.extensions:
                echo = self._echo(ctx, session.extensions_header)
            if signal.stream:
                await self._stream(session, signal, ctx, scope, receive, send, echo, began)
                return
            value = await server.peer.call(signal.op, ctx)
            (frame,) = session.send(Result(ident, value))
            if len(frame.body) > PIECE:
                await send_frame(server, send, frame, echo)
            else:
                await send(_head(frame, echo))
                await send(_rest(frame))
            if ctx.trace:
                task = value.id if isinstance(value, Task) else ""
                server.log.info("call", method=method, task=task, trace=ctx.trace)
        except Exception as exc:  # the driver's border: whatever went wrong becomes a fault
            error = self._error(exc, method, session.dialect)
            (frame,) = session.send(Fault(ident, error))
            await send_frame(server, send, frame, (*echo, *server.refusal_headers(error)))
        server.metrics.answered(method, session.dialect, perf_counter() - began)

    async def _body(self, scope: Scope, receive: Receive, headers: Mapping[str, str]) -> bytes:
        """The request body, within its limits of size and time."""
        limits, deadlines = self.server.limits, self.server.deadlines
        declared = headers.get("content-length", "")
        size = int(declared) if declared.isdigit() else -1
        if size > limits.body_size:
            raise TooLarge(limit=str(limits.body_size))
        whole = size if ends_by_length(scope) else -1
        loop = self.server.loop
        task = asyncio.current_task(loop)
        assert task is not None  # noqa: S101  an ASGI app always runs in a task
        now = loop.time()
        last = now + limits.body_time
        deadlines.watch(task, now + limits.body_idle)
        body = b""
        parts: list[bytes] = []
        have = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Unparseable("The request ended before its body did.")
                body = message.get("body", b"")
                have += len(body)
                if have > limits.body_size:
                    raise TooLarge(limit=str(limits.body_size))
                # Granian tells the end in a message of its own; a known length saves that turn.
                if have == whole or not message.get("more_body", False):
                    return b"".join((*parts, body)) if parts else body
                parts.append(body)
                now = loop.time()
                deadlines.watch(task, min(now + limits.body_idle, last))
        except asyncio.CancelledError:
            if not deadlines.late(task):
                raise
            task.uncancel()
            raise TooSlow() from None
        finally:
            deadlines.waits.pop(task, None)

    def _error(self, exc: Exception, method: str, dialect: str) -> DragomanError:
        """The error to tell. What we did not foresee goes to the log, its id to the wire."""
        if isinstance(exc, DragomanError):
            error = exc
        else:
            crash = secrets.token_hex(6)
            self.server.log.error("crash", exc, error=crash, method=method, dialect=dialect)
            error = AgentCrashed(f"Internal error {crash}.", error=crash)
        self.server.metrics.failed(error.reason, dialect)
        return error

    def _echo(self, ctx: Context, name: str) -> tuple[Header, ...]:
        """The extensions that are now active, under the name the caller's version has for it."""
        active = [uri for uri in ctx.extensions if uri in self.server.extensions]
        if not active:
            return ()
        return ((name.encode(), ", ".join(active).encode("latin-1", "replace")),)

    async def _stream(
        self,
        session: Session,
        call: Call,
        ctx: Context,
        scope: Scope,
        receive: Receive,
        send: Send,
        echo: tuple[Header, ...],
        began: float,
    ) -> None:
        """Every event as it comes; what is ready together leaves in one write."""
        server = self.server
        if len(server.streams) >= server.limits.streams:
            raise TooMany("Too many streams are open; try again later.")
        loop = server.loop
        task = asyncio.current_task(loop)
        assert task is not None  # noqa: S101  an ASGI app always runs in a task
        stream = OpenStream(task)
        server.streams.add(stream)
        watcher = loop.create_task(_watch(stream, receive))
        steps = self._steps(call, ctx)
        out = SseWriter(session, call.id, send, server.metrics)
        method = type(call.op).__name__ + "+stream"
        deadlines, stall = server.deadlines, server.limits.stall
        try:
            # The first batch decides between an answer and a stream (a2a-wire D10).
            async for batch in steps:
                deadlines.watch(task, loop.time() + stall)
                if not out.started:
                    await out.start(_stream_start(scope, echo))
                    server.metrics.streams_opened += 1
                    server.metrics.answered(method, session.dialect, perf_counter() - began)
                await out.write(batch)
                deadlines.waits.pop(task, None)
                if batch.last:
                    return
            # A peer that just stops has said all it had to say.
            if not out.started:
                await out.start(_stream_start(scope, echo))
            await out.write(NOTHING)
        except asyncio.CancelledError:
            if server.deadlines.late(task):
                server.metrics.streams_stalled += 1
                server.log.warning("stream_stalled", dialect=session.dialect)
            elif not stream.why:
                raise
            task.uncancel()
            if stream.why == "stopping":
                if not out.started:
                    await out.start(_stream_start(scope, echo))
                await out.end()
        except Exception as exc:
            if not out.started:
                raise  # answered by our caller, as the dialect answers what it refuses
            await out.end(Fault(call.id, self._error(exc, method, session.dialect)))
        finally:
            server.deadlines.waits.pop(task, None)
            watcher.cancel()
            out.close()
            server.streams.discard(stream)
            await steps.aclose()

    def _steps(self, call: Call, ctx: Context) -> AsyncGenerator[Batch, None]:
        """What there is to tell."""
        return self.server.peer.stream(call.op, ctx)  # type: ignore[arg-type]  # only these stream


NOTHING = Batch([], last=True)


def spoken(caller: Context, dialect: str) -> Context:
    """The caller, with the dialect it speaks. Who is nobody in particular is known by it."""
    if caller is not ANYONE:
        return replace(caller, dialect=dialect)
    found = _ANYONE.get(dialect)
    if found is None:
        found = _ANYONE[dialect] = replace(caller, dialect=dialect)
    return found


_ANYONE: dict[str, Context] = {}


_IN_PATHS = "/:@!$&'()*+,;=~"
"""What stands in a path as it is (RFC 3986 §3.3)."""


def target_in(scope: Scope, target: str) -> str:
    """The target with the query that came with it, where an API key may stand."""
    query = scope["query_string"]
    if not target:  # as it came: an id may hold what a path may not
        path = (scope.get("raw_path") or quote(scope["path"], safe=_IN_PATHS).encode()).decode(
            "latin-1"
        )
        target = f"{scope['method']} {path}"
    return f"{target}?{query.decode('latin-1')}" if query else target


def _no_headers(error: Exception) -> tuple[Header, ...]:
    return ()


async def _watch(stream: OpenStream, receive: Receive) -> None:
    """Waits until the client leaves, then ends the stream."""
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.end("gone")


async def send_frame(
    server: ServerContext, send: Send, frame: Frame, echo: tuple[Header, ...]
) -> None:
    """One whole answer. A large one leaves piece by piece, as it is read: given away at once it
    would stay in the server's memory for as long as its reader likes."""
    if frame.headers.get("content-type") == "text/event-stream":
        frame = replace(frame, body=event(frame.body, frame.mark, frame.name))
        echo = (*echo, *SSE_HEADERS)
    await send(_head(frame, echo))
    if len(frame.body) <= PIECE:
        await send(_rest(frame))
        return
    body, limits, deadlines, loop = frame.body, server.limits, server.deadlines, server.loop
    task = asyncio.current_task(loop)
    assert task is not None  # noqa: S101  an ASGI app always runs in a task
    last = loop.time() + limits.answer_time
    try:
        for at in range(0, len(body), PIECE):
            deadlines.watch(task, min(loop.time() + limits.stall, last))
            piece, more = body[at : at + PIECE], at + PIECE < len(body)
            await send({"type": "http.response.body", "body": piece, "more_body": more})
    except asyncio.CancelledError:
        if not deadlines.late(task):
            raise
        task.uncancel()  # and the server drops an answer that does not end
        server.metrics.streams_stalled += 1
        server.log.warning("answer_stalled", size=len(body))
    finally:
        deadlines.waits.pop(task, None)


def _head(frame: Frame, echo: tuple[Header, ...]) -> dict[str, Any]:
    headers = [*echo]
    if frame.status != 204:  # the answer to a notification has no body
        headers += JSON_TYPE, (b"content-length", b"%d" % len(frame.body))
    if frame.headers:
        own = {name.encode(): value.encode("latin-1") for name, value in frame.headers.items()}
        headers = [header for header in headers if header[0] not in own] + [*own.items()]
    return {"type": "http.response.start", "status": frame.status or 200, "headers": headers}


def _rest(frame: Frame) -> dict[str, Any]:
    return {"type": "http.response.body", "body": frame.body, "more_body": False}


def _stream_start(scope: Scope, echo: tuple[Header, ...]) -> dict[str, Any]:
    headers = [*SSE_HEADERS, *echo]
    if scope["http_version"] == "1.1":  # HTTP/2 forbids it
        headers.append((b"connection", b"keep-alive"))
    return {"type": "http.response.start", "status": 200, "headers": headers}


def _version_from_query(query: bytes, headers: dict[str, str]) -> None:
    """`?A2A-Version=1.0` counts like the header (A2A 1.0 §3.6.1)."""
    for pair in query.decode("latin-1").split("&"):
        name, _, value = pair.partition("=")
        if name.lower() == "a2a-version":
            headers["a2a-version"] = value
