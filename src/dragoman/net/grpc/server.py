"""The gRPC server: both A2A services, health and reflection, on one port.

It handles calls, metadata and status codes and leaves the meaning of the bytes to the codec. One
call is one exchange of the driver, as over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Coroutine, Mapping
from functools import partial
from time import perf_counter
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from msgspec.structs import replace

from dragoman.core.errors import (
    BadParams,
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
from dragoman.security.authentication import Recognizer
from dragoman.security.tls import Pem

from ..driver import Driver, Exchange
from ..http.connections import Connections
from ..http.granian_server import bind
from ..server_context import OpenStream, ServerContext
from .builtin_services import CountedCall, HealthService, Servicer, add_reflection, client_in
from .channel_options import options
from .metadata import Trailers, certificate_name, headers_in, trailers_of

NOTHING = Batch([], last=True)
"""The signal for a stream that ended without one."""
NO_ANSWER = Frame(b"")
FORWARDED = "x-forwarded-host"
AT_ONCE = 32
"""The number of different schemes that are asked about a caller before the loop serves others:
about a quarter of a millisecond."""
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
    ) -> None:
        """`versions` are the served versions of A2A. On a server for `several` agents, `server`
        answers the calls that name none of them."""
        self.server = server
        self._driver = Driver(server, GrpcCallee)
        self._several = several
        self._agents: dict[str, tuple[Driver, Driver]] = {}
        self._by_host: dict[str, str] = {}
        self._by_tenant: dict[str, str] = {}
        self._recognizers: list[Recognizer] | None = None
        """Those of the agents, each kind once; None if the agents have changed."""
        # gRPC closes idle connections by itself after `head_time`. Ours is for those it misses.
        later = replace(server.limits, head_time=2 * server.limits.head_time)
        self.connections = Connections(later, server.trusts, late=True)
        served = [each for each in SERVICES if each is METHODS or each.version in versions]
        self._names = tuple(service.name for service in served)
        self._server = grpc.aio.server(
            options=options(server.limits), maximum_concurrent_rpcs=server.limits.connections
        )
        self._health = HealthService(self.connections)
        self._server.add_generic_rpc_handlers((_Table(self._unary, self._stream, self._names),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        add_reflection(self._names, self._server, self.connections)
        self.port = self._listen(host, port, pem)
        self._secured = pem is not None
        self._ending: asyncio.Task[None] | None = None

    def add_agent(self, name: str, server: ServerContext, host: str, tenant: str) -> None:
        """Answers calls that name this agent, from now on: by its name, `host` or `tenant`."""
        self.remove_agent(name)
        self._agents[name] = Driver(server, GrpcCallee), Driver(server, TenantCallee)
        self._recognizers = None
        if host:
            self._by_host[host] = name
        if tenant:
            self._by_tenant[tenant] = name

    def remove_agent(self, name: str) -> None:
        """Answers no more calls that name this agent. Those that run go on."""
        self._agents.pop(name, None)
        self._recognizers = None
        for table in (self._by_host, self._by_tenant):
            for key in [key for key, agent in table.items() if agent == name]:
                del table[key]

    def _listen(self, host: str, port: int, pem: Pem | None) -> int:
        """Returns the port on which it listens, or raises a `ConfigError` that says what to do."""
        bind(host, port, flag="--grpc-port").close()  # gRPC's own error does not say why it failed
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
            answer = exchange.answer(await asyncio.shield(exchange.ask(signal)))
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

    async def _stream(self, path: str, messages: object, servicer: Servicer) -> None:
        began = perf_counter()
        server = self.server
        exchange = Exchange(self._driver, self._driver.callee())
        fault: Fault | None = None
        stream, place = OpenStream(_current(), server), ""
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
        trailers = trailers_of(exchange, place)
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
        """Writes every event as a message, and returns the position of the last one in the stream.

        `write` waits while the client does not read, so nothing accumulates here. A client that
        reads nothing for `stall` seconds is cut off."""
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
        """Returns the call. Its message is read after its caller is authenticated."""
        headers = headers_in(servicer.invocation_metadata())
        certificate = certificate_name(servicer) if self._secured else ""
        target = f"POST {path}"
        try:
            name = self._named_in(headers, servicer) if self._several else ""
            if self._several and name is None:
                # The message names the agent. It is read only for a caller that at least one agent
                # knows.
                await self._recognize(headers, target, certificate)
                body = await self._read(servicer)
                exchange.redirect(self._tenants_driver(path, body))
                await exchange.admit(headers, target, certificate)
            else:
                if name:
                    exchange.redirect(self._named_driver(name))
                await exchange.admit(headers, target, certificate)
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

    async def _recognize(self, headers: Mapping[str, str], target: str, certificate: str) -> None:
        """Raises `Unauthenticated` unless at least one of the agents knows the caller."""
        if self._recognizers is None:
            # Agents with the same schemes are asked once, those that admit everyone first of all.
            kinds = dict.fromkeys(driver.server.recognizes for driver, _ in self._agents.values())
            self._recognizers = sorted(kinds, key=lambda each: not each.everyone)
        for count, recognizes in enumerate(self._recognizers, 1):
            if await recognizes(headers, target, certificate):
                return
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)
        raise Unauthenticated()

    def _named_in(self, headers: Mapping[str, str], servicer: Servicer) -> str | None:
        """The agent that a call names in its metadata, or by the host that it was sent to: grpcio
        does not tell the authority of a call, so only a proxy of ours can say that one."""
        if AGENT in headers:
            return headers[AGENT] or "-"
        host = headers.get(FORWARDED, "")
        trusts = self.server.trusts
        if host and trusts is not None and trusts(client_in(servicer.peer())[0]):
            return self._by_host.get(host.lower().partition(":")[0])
        return None

    def _named_driver(self, name: str) -> Driver:
        """The driver for the agent that a call names in its metadata."""
        if name not in self._agents:
            raise BadParams(f"This server has no agent called {name[:64]} ({AGENT}).", field=AGENT)
        return self._agents[name][0]

    def _tenants_driver(self, path: str, body: bytes) -> Driver:
        """The driver for the agent whose tenant, or whose name, is the tenant of a message. A
        tenant of an agent is one for its callers too; its name says nothing more."""
        try:
            tenant = getattr(RPCS[path][1].read(body), "tenant", "")
        except Wrong:
            return self._driver  # which says what is wrong
        if (name := self._by_tenant.get(tenant)) is not None:
            return self._agents[name][0]
        return self._agents.get(tenant, (self._driver, self._driver))[1]

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


class TenantCallee(GrpcCallee):
    """One rpc for an agent that the caller named as the tenant. The name is used up by that, so the
    agent sees no tenant."""

    @property
    def tenant(self) -> str:
        """Returns no tenant."""
        return ""


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
