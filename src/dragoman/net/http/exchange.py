"""One HTTP request in one dialect: its body is a frame, its answer is one too, or a stream of them.

Only a stream has a second task, which waits for the client to leave, since `send()` never tells (it
succeeds into the void).
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from dragoman.core.errors import DragomanError
from dragoman.core.operations import GetExtendedCard
from dragoman.core.peer import Batch
from dragoman.core.session import Call, Frame
from dragoman.dialects.sse import event
from dragoman.security.authentication import certificate_in
from dragoman.security.route_policy import Policy

from ..driver import Driver, Exchange
from ..server_context import OpenStream, ServerContext
from .asgi import Header, Receive, Scope, Send, headers_in
from .mount_point import IN_PATHS
from .request_body import Recognized, RequestBody
from .sse_writer import SseWriter

JSON_TYPE: Header = (b"content-type", b"application/json")
SSE_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
PIECE = 64 * 1024
"""Bytes of an answer that the server is given at once."""
NOTHING = Batch([], last=True)


class HttpEndpoint:
    """Answers the requests at one address."""

    policy = Policy.CALLER

    def __init__(self, driver: Driver, target: str = "") -> None:
        self.driver = driver
        self.target = target
        """Where there is one address, its method and path; else each request says its own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, from its headers to the end of its answer."""
        began = perf_counter()
        driver = self.driver
        server = driver.server
        exchange = Exchange(driver, driver.callee())
        headers = headers_in(scope["headers"])
        if scope["query_string"] and "a2a-version" not in headers:
            _version_from_query(scope["query_string"], headers)
        target = self.target
        if not target or scope["query_string"]:
            target = target_in(scope, target)
        certificate = certificate_in(scope)
        extra: tuple[Header, ...] = ()
        try:
            incoming, body = RequestBody(scope, receive, headers), b""
            try:
                await exchange.admit(headers, target, certificate)
                # What GET and DELETE ask is all in their path.
                if scope["method"] == "POST":
                    recognized: Recognized | None = None
                    if driver.admission is not None and not driver.admission.admits_everyone:
                        recognized = partial(
                            exchange.is_recognized, headers, target, certificate, _address(scope)
                        )
                    body = await incoming.read(server, recognized)
            except DragomanError:
                body, extra = await incoming.drain()
                exchange.identify(Frame(body, target, headers))
                raise
            signal = await exchange.receive(Frame(body, target, headers), certificate)
            if driver.admission is not None:
                server.recognized.add(_address(scope))
            if exchange.echo:
                extra = (_echo(exchange),)
            if type(signal) is Call:
                if type(signal.op) is GetExtendedCard:
                    url = server.mount_point.url_in(scope, headers)
                    exchange.ctx = replace(exchange.ctx, base=url)
                if signal.stream:
                    await self._stream(exchange, signal, scope, receive, send, extra, began)
                    return
            frame = exchange.answer(await exchange.ask(signal))
            if len(frame.body) > PIECE:
                await send_frame(server, send, frame, extra)
            else:
                await send(_head(frame, extra))
                await send(_rest(frame))
        except Exception as exc:  # the driver's border: whatever went wrong becomes a fault
            fault = exchange.fail(exc)
            (frame,) = exchange.session.send(fault)
            await send_frame(server, send, frame, (*extra, *server.refusal_headers(fault.error)))
        exchange.count(began)

    async def _stream(
        self,
        exchange: Exchange,
        call: Call,
        scope: Scope,
        receive: Receive,
        send: Send,
        extra: tuple[Header, ...],
        began: float,
    ) -> None:
        """Every event as it comes; what is ready together leaves in one write."""
        server = self.driver.server
        loop = server.loop
        task = asyncio.current_task(loop)
        assert task is not None  # noqa: S101  an ASGI app always runs in a task
        stream = exchange.open_stream(task)
        watcher = loop.create_task(_watch(stream, receive))
        steps = exchange.steps(call)
        out = SseWriter(exchange.session, call.id, send, server.metrics)
        deadlines, stall = server.deadlines, server.limits.stall
        try:
            # The first batch decides between an answer and a stream (a2a-wire D10).
            async for batch in steps:
                # `send` waits while the client's window is full. A reader that takes nothing for
                # as long as `stall` is cut off: what it holds up is a run's worth of memory.
                deadlines.watch(task, loop.time() + stall)
                if not out.started:
                    await out.start(_stream_start(scope, extra))
                    exchange.count_stream(began)
                await out.write(batch)
                deadlines.waits.pop(task, None)
                if batch.last:
                    return
            # A peer that just stops has said all it had to say.
            if not out.started:
                await out.start(_stream_start(scope, extra))
            await out.write(NOTHING)
        except asyncio.CancelledError:
            # Three ways lead here: the reader is too slow, the client is gone or we stop
            # (`stream.why`), or the server itself cancels the request, which must go on up.
            if deadlines.late(task):
                exchange.count_stall()
            elif not stream.why:
                raise
            task.uncancel()
            if stream.why == "stopping":
                if not out.started:
                    await out.start(_stream_start(scope, extra))
                await out.end()
        except Exception as exc:
            if not out.started:
                raise  # answered by our caller, as the dialect answers what it refuses
            await out.end(exchange.fail(exc))
        finally:
            deadlines.waits.pop(task, None)
            watcher.cancel()
            out.close()
            server.streams.discard(stream)
            await steps.aclose()


def target_in(scope: Scope, target: str) -> str:
    """The target with the query that came with it, where an API key may stand."""
    query = scope["query_string"]
    if not target:  # as it came: an id may hold what a path may not
        path = (scope.get("raw_path") or quote(scope["path"], safe=IN_PATHS).encode()).decode(
            "latin-1"
        )
        target = f"{scope['method']} {path}"
    return f"{target}?{query.decode('latin-1')}" if query else target


async def _watch(stream: OpenStream, receive: Receive) -> None:
    """Waits until the client leaves, then ends the stream."""
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.end("gone")


async def send_frame(
    server: ServerContext, send: Send, frame: Frame, extra: tuple[Header, ...]
) -> None:
    """One whole answer. A large one leaves piece by piece, as it is read: given away at once it
    would stay in the server's memory for as long as its reader likes."""
    if frame.headers.get("content-type") == "text/event-stream":
        frame = replace(frame, body=event(frame.body, frame.mark, frame.name))
        extra = (*extra, *SSE_HEADERS)
    await send(_head(frame, extra))
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


def _head(frame: Frame, extra: tuple[Header, ...]) -> dict[str, Any]:
    headers = [*extra]
    if frame.status != 204:  # the answer to a notification has no body
        headers += JSON_TYPE, (b"content-length", b"%d" % len(frame.body))
    if frame.headers:
        own = {name.encode(): value.encode("latin-1") for name, value in frame.headers.items()}
        headers = [header for header in headers if header[0] not in own] + [*own.items()]
    return {"type": "http.response.start", "status": frame.status or 200, "headers": headers}


def _rest(frame: Frame) -> dict[str, Any]:
    return {"type": "http.response.body", "body": frame.body, "more_body": False}


def _stream_start(scope: Scope, extra: tuple[Header, ...]) -> dict[str, Any]:
    headers = [*SSE_HEADERS, *extra]
    if scope["http_version"] == "1.1":  # HTTP/2 forbids it
        headers.append((b"connection", b"keep-alive"))
    return {"type": "http.response.start", "status": 200, "headers": headers}


def _echo(exchange: Exchange) -> Header:
    """The extensions that are now active, under the name the caller's version has for it."""
    name, active = exchange.session.extensions_header, exchange.echo
    return name.encode(), active.encode("latin-1", "replace")


def _address(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])


def _version_from_query(query: bytes, headers: dict[str, str]) -> None:
    """`?A2A-Version=1.0` counts like the header (A2A 1.0 §3.6.1)."""
    for pair in query.decode("latin-1").split("&"):
        name, _, value = pair.partition("=")
        if name.lower() == "a2a-version":
            headers["a2a-version"] = value
