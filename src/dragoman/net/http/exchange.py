"""One HTTP request in one dialect: the body is a frame, and the response is a frame or a stream.

Only a stream has a second task. It waits for the client to leave, which `send()` does not report:
ASGI lets it succeed after the client has disconnected.
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
"""The bytes of a response that are passed to the server at once."""
NOTHING = Batch([], last=True)


class HttpEndpoint:
    """Answers the HTTP requests at one route."""

    policy = Policy.CALLER

    def __init__(self, driver: Driver, target: str = "") -> None:
        self.driver = driver
        self.target = target
        """The method and path of a route with a fixed path; empty if each request has its own."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, from its headers to the end of its response."""
        began = perf_counter()
        driver = self.driver
        server = driver.server
        exchange = Exchange(driver, driver.callee())
        headers = headers_in(scope["headers"])
        target, query = self.target, scope["query_string"]
        if query and "a2a-version" not in headers:
            _version_from_query(query, headers)
        if query or not target:
            target = target_in(scope, target)
        certificate = certificate_in(scope)
        extra: tuple[Header, ...] = ()
        try:
            incoming, body = RequestBody(scope, receive, headers), b""
            try:
                admitting = exchange.admit(headers, target, certificate)
                if admitting is not None:
                    await admitting
                # Requests with GET and DELETE have no body to read.
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
            if driver.admission is None:
                signal = exchange.authorize(exchange.decode(Frame(body, target, headers)))
            else:
                signal = await exchange.receive(Frame(body, target, headers), certificate)
                server.recognized.add(_address(scope))
            body = b""  # a large one would stay in memory until the call is answered
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
        """Sends every event as soon as it is ready. Events that are ready together go in one
        write."""
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
            # The response starts with the first batch: an error before it is a plain response and
            # no stream (a2a-wire D10).
            async for batch in steps:
                # `send` waits while the client's window is full. A client that reads nothing for
                # `stall` seconds is cut off, since the events that wait for it take up memory. It
                # can resume after the last event that it has.
                deadlines.watch(task, loop.time() + stall)
                if not out.started:
                    await out.start(_stream_start(scope, extra))
                    exchange.count_stream(began)
                await out.write(batch)
                deadlines.waits.pop(task, None)
                if batch.last:
                    return
            # A peer may end its stream without an event.
            if not out.started:
                await out.start(_stream_start(scope, extra))
            await out.write(NOTHING)
        except asyncio.CancelledError:
            # There are three reasons for a cancellation: the client reads too slowly, it has left
            # or we are stopping (`stream.why`), or the server cancels the request. The last one
            # must propagate.
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
                raise  # `__call__` answers it like every refused request
            await out.end(exchange.fail(exc))
        finally:
            deadlines.waits.pop(task, None)
            watcher.cancel()
            out.close()
            server.streams.discard(stream)
            await steps.aclose()


def target_in(scope: Scope, target: str) -> str:
    """Returns the target with the query of the request, which may hold an API key."""
    query = scope["query_string"]
    if not target:  # the raw path, since an id may contain an escaped slash
        path = (scope.get("raw_path") or quote(scope["path"], safe=IN_PATHS).encode()).decode(
            "latin-1"
        )
        target = f"{scope['method']} {path}"
    return f"{target}?{query.decode('latin-1')}" if query else target


async def _watch(stream: OpenStream, receive: Receive) -> None:
    """Waits until the client leaves, and then ends the stream."""
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.end("gone")


async def send_frame(
    server: ServerContext, send: Send, frame: Frame, extra: tuple[Header, ...]
) -> None:
    """Sends one whole response. A large one is passed on in pieces as the client reads them: passed
    on at once, it would stay in the server's memory for as long as the client likes."""
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
        task.uncancel()  # the server drops the unfinished response
        server.metrics.streams_stalled += 1
        server.log.warning("A reader of an answer has stalled", size=len(body))
    finally:
        deadlines.waits.pop(task, None)


def _head(frame: Frame, extra: tuple[Header, ...]) -> dict[str, Any]:
    headers = [*extra]
    if frame.status != 204:  # the response to a notification has no body
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
    """Returns the header with the active extensions, as the caller's version names it."""
    name, active = exchange.session.extensions_header, exchange.echo
    return name.encode(), active.encode("latin-1", "replace")


def _address(scope: Scope) -> str:
    return str((scope.get("client") or ("",))[0])


def _version_from_query(query: bytes, headers: dict[str, str]) -> None:
    """Reads the version from the query, which counts like the header (A2A 1.0 §3.6.1)."""
    for pair in query.decode("latin-1").split("&"):
        name, _, value = pair.partition("=")
        if name.lower() == "a2a-version":
            headers["a2a-version"] = value
