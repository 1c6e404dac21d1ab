"""The gRPC server: both A2A services, health and reflection, on one port.

It handles calls, metadata and status codes and leaves the meaning of the bytes to the codec. One
call is one exchange of the driver, as over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Coroutine
from functools import partial
from time import perf_counter
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from msgspec.structs import replace

from dragoman.core.errors import (
    ConfigError,
    DragomanError,
    ExtendedCardOff,
    StoreUnavailable,
    TooSlow,
    Unparseable,
)
from dragoman.core.peer import Batch
from dragoman.core.session import Call, Fault, Frame, Session, Update
from dragoman.dialects.a2a.grpc.callee import (
    METHODS,
    PUBLIC_CARD_RPCS,
    RPCS,
    SERVICES,
    VERSIONS,
    GrpcCallee,
)
from dragoman.security.tls import Pem

from ..driver import Driver, Exchange
from ..http.connections import Connections
from ..http.granian_server import bind
from ..server_context import OpenStream, ServerContext
from .agent_routes import AgentRoutes
from .builtin_services import CountedCall, HealthService, Servicer, add_reflection, client_in
from .channel_options import options
from .metadata import Trailers, certificate_name, headers_in, trailers_of

NOTHING = Batch([], last=True)
"""The signal for a stream that ended without one."""
NO_ANSWER = Frame(b"")
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class GrpcServer:
    """Serves gRPC until `end`. The port is bound by the constructor."""

    def __init__(
        self,
        server: ServerContext,
        host: str,
        port: int,
        pem: Pem | None = None,
        versions: Container[str] = VERSIONS,
        *,
        several: bool = False,
        shared: bool = False,
    ) -> None:
        """`versions` are the served versions of A2A. On a server for `several` agents, `server`
        answers the calls that name none of them. A `shared` port is used by other processes of
        this server too."""
        self.server = server
        self._driver = Driver(server, GrpcCallee)
        self.agents = AgentRoutes(self._driver) if several else None
        """The agents of a server for several, as calls name them; None: there is only one."""
        # gRPC closes idle connections by itself after `head_time`. Ours is for those it misses.
        later = replace(server.limits, head_time=2 * server.limits.head_time)
        self.connections = Connections(later, server.trusts, late=True)
        served = [each for each in SERVICES if each is METHODS or each.version in versions]
        self._names = tuple(service.name for service in served)
        self._server = grpc.aio.server(
            options=options(server.limits, shared=shared),
            maximum_concurrent_rpcs=server.limits.connections,
        )
        self._health = HealthService(self.connections)
        self._server.add_generic_rpc_handlers((_Table(self._unary, self._stream, self._names),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        add_reflection(self._names, self._server, self.connections)
        if not shared:  # gRPC's own error does not say why it failed
            bind(host, port, flag="--grpc-port").close()
        self.port = self._listen(host, port, pem)
        self._secured = pem is not None
        self._ending: asyncio.Task[None] | None = None

    def _listen(self, host: str, port: int, pem: Pem | None) -> int:
        """Returns the port on which it listens, or raises a `ConfigError` that says what to do."""
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
        """Starts to serve."""
        await self._server.start()
        self.connections.start(self.port)
        for name in ("", *self._names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def refuse(self, wait: float) -> None:
        """Refuses new calls. Running calls have `wait` seconds to end."""
        if self._ending is not None:
            return
        await self._health.enter_graceful_shutdown()
        self._ending = asyncio.get_running_loop().create_task(self._server.stop(wait))

    async def end(self) -> None:
        """Returns when the last call has been answered or cut off."""
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
            # A caller that leaves, or whose deadline has passed, must not interrupt the operation
            # halfway: a deadline of gRPC bounds the wait, never the task.
            asking = self._ask(exchange, signal, path, servicer)
            answer = exchange.answer(await asyncio.shield(asking))
        except Exception as exc:  # the driver's border: whatever went wrong becomes a fault
            fault = exchange.fail(exc)
        finally:
            counted.end()
        exchange.count(began)
        trailers = trailers_of(exchange)
        if fault is not None:
            await _abort(servicer, exchange, fault, trailers)
        if trailers:
            servicer.set_trailing_metadata(trailers)
        return answer.body

    async def _ask(self, exchange: Exchange, call: Call, path: str, servicer: Servicer) -> Any:
        try:
            return await exchange.ask(call)
        except ExtendedCardOff:
            if path not in PUBLIC_CARD_RPCS:
                raise
            address, _ = client_in(servicer.peer())
            card = exchange.server.public_card(exchange.ctx, address)
            if card is None:
                raise
            return card

    async def _stream(self, path: str, messages: object, servicer: Servicer) -> None:
        began = perf_counter()
        server = self.server
        exchange = Exchange(self._driver, self._driver.callee())
        fault: Fault | None = None
        stream = OpenStream(_current(), server)
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
                    await self._write(server, batch, exchange.session, servicer, stream)
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
                error = StoreUnavailable(
                    "The server is stopping; subscribe to the task again later."
                )
            else:
                raise  # the caller is gone
            # Without a status the other side would wait on, even if it reads it much later.
            stream.task.uncancel()
            fault = Fault(None, error)
        except Exception as exc:  # the driver's border, as above
            fault = exchange.fail(exc)
        finally:
            counted.end()
        trailers = trailers_of(exchange, stream.position)
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
    ) -> None:
        """Writes every event as a message, and notes its position once it is written.

        `write` waits while the client does not read, so nothing accumulates here. A client that
        reads nothing for `stall` seconds is cut off."""
        for entry in batch.entries:
            (frame,) = session.send(Update(None, entry))
            server.deadlines.watch(stream.task, server.loop.time() + server.limits.stall)
            await servicer.write(frame.body)
            if frame.mark:
                stream.position = frame.mark
        server.deadlines.waits.pop(stream.task, None)
        server.metrics.events += len(batch.entries)

    @property
    def routes(self) -> AgentRoutes:
        """The agents as calls name them, to add some. Beside the only agent of a server there are
        none until the first is added."""
        if self.agents is None:
            self.agents = AgentRoutes(self._driver, is_agent=True)
        return self.agents

    async def _receive(
        self, exchange: Exchange, path: str, servicer: Servicer, counted: CountedCall
    ) -> Call:
        """Returns the call. Its message is read after its caller is authenticated."""
        headers = headers_in(servicer.invocation_metadata())
        certificate = certificate_name(servicer) if self._secured else ""
        target = f"POST {path}"
        try:
            agents = self.agents
            named = agents.named_in(headers, servicer) if agents is not None else None
            if agents is not None and named is None:
                # The message names the agent. It is read only for a caller that at least one agent
                # knows.
                await agents.recognize(headers, target, certificate)
                body = await self._read(servicer)
                exchange.redirect(agents.of_tenant(path, body))
                admitting = exchange.admit(headers, target, certificate)
                if admitting is not None:
                    await admitting
            else:
                if named is not None:
                    exchange.redirect(named)
                admitting = exchange.admit(headers, target, certificate)
                if admitting is not None:
                    await admitting
                body = await self._read(servicer)
        except DragomanError:
            exchange.identify(Frame(b"", path, headers))  # for the version of the path
            raise
        finally:
            counted.begin()
        # The deadline of the call is not passed to the peer: it bounds only how long this caller
        # waits, and gRPC cancels the call by itself. `dragoman-deadline` bounds the task.
        signal = await exchange.receive(Frame(body, path, headers))
        assert isinstance(signal, Call)  # noqa: S101  all that a service of A2A has rpcs for
        return signal

    async def _read(self, servicer: Servicer) -> bytes:
        """Reads the message of a call within the time limit of a body. gRPC limits its size."""
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


class _Table(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio is untyped
    """Maps paths to the rpcs of these services. gRPC answers others with UNIMPLEMENTED itself.

    Every rpc takes one message, but is registered as one with a stream of messages, which is the
    same on the wire: otherwise gRPC would read the message before we can authenticate the caller.
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
        """Returns the handler of a call."""
        return self._handlers.get(details.method)


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
