"""gRPC: both A2A services, health and reflection, on a port of their own.

Knows calls, metadata and status codes; what the bytes mean is the codec's business. One call is
one exchange of the driver, as over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from msgspec.structs import replace

from dragoman.core.errors import (
    ConfigError,
    DragomanError,
    StoreUnavailable,
    TooSlow,
    Unauthenticated,
    Unparseable,
)
from dragoman.core.peer import AGENT, Batch
from dragoman.core.session import Call, Fault, Frame, Session, Update
from dragoman.dialects.a2a.grpc.callee import METHODS, RPCS, SERVICES, VERSIONS, GrpcCallee
from dragoman.dialects.a2a.scalars import Wrong
from dragoman.security.tls import Pem, name_in
from dragoman.settings import Limits

from ..driver import Driver, Exchange
from ..http.connections import Connections
from ..http.granian_server import bind
from ..server_context import OpenStream, ServerContext
from .builtin_services import CountedCall, Health, Servicer, add_reflection

Trailers = tuple[tuple[str, str | bytes], ...]
NOTHING = Batch([], last=True)
"""What a stream that just stops is taken for."""
NO_ANSWER = Frame(b"")
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def options(limits: Limits) -> list[tuple[str, int]]:
    """Of gRPC's core. Times are in milliseconds."""
    return [
        ("grpc.so_reuseport", 0),  # a second server on our port is a mistake, not a partner
        ("grpc.max_receive_message_length", limits.body_size),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", limits.head_size),
        ("grpc.absolute_max_metadata_size", 2 * limits.head_size),
        # An idle stream is kept through proxies, and a client that vanished is noticed.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.max_concurrent_streams", limits.http2_streams),
        ("grpc.server_handshake_timeout_ms", int(limits.hello_time * 1000)),
        # It says goodbye first, so no call of a channel that was idle for long is lost.
        ("grpc.max_connection_idle_ms", int(limits.head_time * 1000)),
        ("grpc.http2.max_ping_strikes", 5),
    ]


class GrpcServer:
    """Answers gRPC until `end`. `port` is known as soon as it is made."""

    def __init__(
        self,
        server: ServerContext,
        host: str,
        port: int,
        pem: Pem | None = None,
        versions: Container[str] = VERSIONS,
        *,
        agents: Mapping[str, ServerContext] | None = None,
    ) -> None:
        """`versions` are those of A2A that are served, beside the agent's own methods. `agents` are
        those of a server that has several: then `server` answers calls that name none of them."""
        self.server = server
        self._driver = Driver(server, GrpcCallee)
        self._agents = {
            name: (Driver(each, GrpcCallee), Driver(each, TenantCallee))
            for name, each in (agents or {}).items()
        }
        # Those that gRPC closes by itself when they are idle have gone long before.
        later = replace(server.limits, head_time=2 * server.limits.head_time)
        self.connections = Connections(later, server.trusts, late=True)
        served = [each for each in SERVICES if each is METHODS or each.version in versions]
        self._names = tuple(service.name for service in served)
        self._server = grpc.aio.server(
            options=options(server.limits), maximum_concurrent_rpcs=server.limits.connections
        )
        self._health = Health(self.connections)
        self._server.add_generic_rpc_handlers((_Table(self._unary, self._stream, self._names),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        add_reflection(self._names, self._server, self.connections)
        self.port = self._listen(host, port, pem)
        self._secured = pem is not None
        self._ending: asyncio.Task[None] | None = None

    def _listen(self, host: str, port: int, pem: Pem | None) -> int:
        """The port it listens on, or a `ConfigError` that says what to do."""
        bind(host, port, flag="--grpc-port").close()  # gRPC itself would only say that it failed
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if pem is None:
                return int(self._server.add_insecure_port(where))
            credentials = grpc.ssl_server_credentials(
                [(pem.key, pem.certificate)],
                root_certificates=pem.client_ca,
                require_client_auth=pem.client_ca is not None,
            )
            return int(self._server.add_secure_port(where, credentials))
        except RuntimeError as exc:
            raise ConfigError(f"gRPC cannot listen on {where}: {exc}") from None

    async def start(self) -> None:
        """Serves from now on."""
        await self._server.start()
        self.connections.start(self.port)
        for name in ("", *self._names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def refuse(self, wait: float) -> None:
        """Takes no more calls; those that run have so many seconds."""
        if self._ending is not None:
            return
        await self._health.enter_graceful_shutdown()
        self._ending = asyncio.get_running_loop().create_task(self._server.stop(wait))

    async def end(self) -> None:
        """Returns when the last call is answered or cut."""
        if self._ending is not None:
            await self._ending
        self.connections.stop()

    # One call

    async def _unary(self, path: str, messages: object, servicer: Servicer) -> bytes:
        began = perf_counter()
        exchange = Exchange(self._driver, self._driver.callee())
        fault: Fault | None = None
        answer = NO_ANSWER
        counted = CountedCall(self.connections, servicer)
        try:
            signal = await self._receive(exchange, path, servicer, counted)
            # A caller that leaves, or whose deadline is over, must not stop what it has set going
            # halfway: a deadline of gRPC bounds the wait, never the task.
            answer = exchange.answer(await asyncio.shield(exchange.ask(signal)))
        except Exception as exc:  # the driver's border: whatever went wrong becomes a fault
            fault = exchange.fail(exc)
        finally:
            counted.end()
        exchange.count(began)
        trailers = _trailers(exchange)
        if fault is not None:
            await _abort(servicer, exchange, fault, trailers)
        if trailers:
            servicer.set_trailing_metadata(trailers)
        return answer.body

    async def _stream(self, path: str, messages: object, servicer: Servicer) -> None:
        began = perf_counter()
        server = self.server
        exchange = Exchange(self._driver, self._driver.callee())
        fault: Fault | None = None
        stream, place = OpenStream(_current()), ""
        counted = CountedCall(self.connections, servicer)
        try:
            signal = await self._receive(exchange, path, servicer, counted)
            server = exchange.server
            stream = exchange.open_stream(stream.task)
            steps = exchange.steps(signal)
            try:
                batch = await anext(steps, NOTHING)
                exchange.count_stream(began)
                while True:
                    place = (
                        await self._write(server, batch, exchange.session, servicer, stream)
                        or place
                    )
                    if batch.last:
                        break
                    batch = await anext(steps, NOTHING)
            finally:
                server.deadlines.waits.pop(stream.task, None)
                server.streams.discard(stream)
                await steps.aclose()
        except asyncio.CancelledError:
            if server.deadlines.late(stream.task):
                exchange.count_stall()
                error: DragomanError = TooSlow("The stream was not read in time.")
            elif stream.why == "stopping":
                error = StoreUnavailable("The server stops; come back to the task later.")
            else:
                raise  # the caller is gone
            # Only a status ends a call for the other side, even if it reads it much later.
            stream.task.uncancel()
            fault = Fault(None, error)
        except Exception as exc:  # the driver's border, as above
            fault = exchange.fail(exc)
        finally:
            counted.end()
        trailers = _trailers(exchange, place)
        if fault is not None:
            await _abort(servicer, exchange, fault, trailers)
        if trailers:
            servicer.set_trailing_metadata(trailers)

    async def _write(
        self,
        server: ServerContext,
        batch: Batch,
        session: Session,
        servicer: Servicer,
        stream: OpenStream,
    ) -> str:
        """Every event as a message; the place of the last one in the stream.

        `write` waits while the reader does not read, so nothing piles up here, and a reader that
        takes nothing for as long as `stall` is cut off."""
        place = ""
        for entry in batch.entries:
            (frame,) = session.send(Update(None, entry))
            server.deadlines.watch(stream.task, server.loop.time() + server.limits.stall)
            await servicer.write(frame.body)
            place = frame.mark
        server.deadlines.waits.pop(stream.task, None)
        server.metrics.events += len(batch.entries)
        return place

    async def _receive(
        self, exchange: Exchange, path: str, servicer: Servicer, counted: CountedCall
    ) -> Call:
        """What is asked. The message is read when its caller is known."""
        headers = _headers_in(servicer.invocation_metadata())
        certificate = _certificate(servicer) if self._secured else ""
        target = f"POST {path}"
        try:
            if self._agents and AGENT not in headers:
                # Which agent is meant stands in the message. It is read for a caller that at least
                # one agent knows.
                await self._recognize(headers, target, certificate)
                body = await self._read(servicer)
                exchange.redirect(self._tenants_driver(path, body))
                await exchange.admit(headers, target, certificate)
            else:
                if (named := self._agents.get(headers.get(AGENT, ""))) is not None:
                    exchange.redirect(named[0])
                await exchange.admit(headers, target, certificate)
                body = await self._read(servicer)
        except DragomanError:
            exchange.identify(Frame(b"", path, headers))  # for the version of the path
            raise
        finally:
            counted.begin()
        # The deadline of the call is not for the peer: it bounds how long this caller waits, and
        # gRPC cancels the call by itself. What bounds the task is `dragoman-deadline`.
        signal = await exchange.receive(Frame(body, path, headers))
        assert isinstance(signal, Call)  # noqa: S101  all that a service of A2A has rpcs for
        return signal

    async def _recognize(self, headers: Mapping[str, str], target: str, certificate: str) -> None:
        """Returns if one of the agents may let the caller in."""
        for driver, _ in self._agents.values():
            if await driver.server.recognizes(headers, target, certificate):
                return
        raise Unauthenticated()

    def _tenants_driver(self, path: str, body: bytes) -> Driver:
        """The driver for the agent whose name is the tenant of a message."""
        try:
            tenant = getattr(RPCS[path][1].read(body), "tenant", "")
        except Wrong:
            return self._driver  # which says what is wrong
        return self._agents.get(tenant, (self._driver, self._driver))[1]

    async def _read(self, servicer: Servicer) -> bytes:
        """The message of a call, within the time for a body; gRPC itself limits its size."""
        deadlines, task = self.server.deadlines, _current()
        deadlines.watch(task, self.server.loop.time() + self.server.limits.body_time)
        try:
            body = await servicer.read()
        except asyncio.CancelledError:
            if not deadlines.late(task):
                raise  # the caller is gone
            task.uncancel()
            raise TooSlow() from None
        finally:
            deadlines.waits.pop(task, None)
        if body is grpc.aio.EOF:
            raise Unparseable("The call has no message.")
        return bytes(body)


class TenantCallee(GrpcCallee):
    """One rpc for an agent that its caller named as the tenant. It has no other place for the name,
    so no more is said about tenants."""

    @property
    def tenant(self) -> str:
        """None."""
        return ""


class _Table(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio is untyped
    """The rpcs of these services by path; gRPC answers others with UNIMPLEMENTED itself.

    All of them have one message of the caller's. To gRPC they are rpcs with a stream of them, which
    looks the same on the wire: for others it reads the message before it tells us of the call.
    """

    def __init__(
        self,
        unary: Callable[[str, object, Servicer], Coroutine[Any, Any, bytes]],
        stream: Callable[[str, object, Servicer], Coroutine[Any, Any, None]],
        services: Container[str],
    ) -> None:
        self._handlers = {
            path: grpc.stream_stream_rpc_method_handler(partial(stream, path))
            if rpc.stream
            else grpc.stream_unary_rpc_method_handler(partial(unary, path))
            for path, (service, rpc) in RPCS.items()
            if service.name in services
        }

    def service(self, details: Any) -> Any:
        """The handler of a call."""
        return self._handlers.get(details.method)


def _headers_in(metadata: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
    """Metadata as headers: what came several times is joined by commas, binary is left out."""
    headers: dict[str, str] = {}
    for name, value in metadata:
        if isinstance(value, str):
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _certificate(servicer: Servicer) -> str:
    """The name in the client's verified certificate, if it has shown one."""
    shown = servicer.auth_context()
    if "x509_common_name" not in shown and "x509_subject_alternative_name" not in shown:
        return ""
    names = [each.decode() for each in shown.get("x509_subject_alternative_name", ())]
    subject = next(iter(shown.get("x509_common_name", ())), b"").decode()
    return name_in(subject, tuple(names))


def _trailers(exchange: Exchange, place: str = "") -> Trailers:
    """The extensions that are active, and the place of the last event."""
    found: list[tuple[str, str | bytes]] = []
    if exchange.echo:
        found.append((exchange.session.extensions_header, exchange.echo))
    if place:
        found.append(("last-event-id", place))
    return tuple(found)


async def _abort(servicer: Servicer, exchange: Exchange, fault: Fault, trailers: Trailers) -> None:
    (failure,) = exchange.session.send(fault)
    if failure.body:
        trailers = (*trailers, ("grpc-status-details-bin", failure.body))
    code = _CODES[failure.status or 13]
    await servicer.abort(code, failure.headers["grpc-message"], trailers)


def _current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  a handler always runs in a task
    return task
