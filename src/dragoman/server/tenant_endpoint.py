"""`POST /` on a server whose agents have tenants: over JSON-RPC, only the body names the tenant."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from dragoman.core.errors import DragomanError, Unauthenticated
from dragoman.dialects.a2a import RpcCallee
from dragoman.net.driver import Driver, Exchange
from dragoman.net.http.asgi import Receive, Scope, Send, headers_in, replay_body
from dragoman.net.http.exchange import HttpEndpoint, send_frame
from dragoman.net.http.request_body import RequestBody
from dragoman.net.http.router import Router
from dragoman.net.server_context import ServerContext
from dragoman.security.authentication import certificate_in
from dragoman.security.route_policy import Policy

TARGET = "POST /"


class _Params(Struct, frozen=True):
    tenant: str = ""


class _Request(Struct, frozen=True):
    params: _Params = _Params()


_read = msgspec.json.Decoder(_Request).decode


class TenantEndpoint:
    """Reads the body, if at least one of the agents knows the caller, and passes the request to the
    agent whose tenant the body names. That agent authenticates the caller by its own rules, and the
    caller needs the right to use the tenant, as everywhere."""

    policy = Policy.CALLER

    def __init__(
        self,
        router: Router,
        server: ServerContext,
        agents: Callable[[], Iterable[ServerContext]],
    ) -> None:
        self._router, self._server, self._agents = router, server, agents
        self._driver = Driver(server, RpcCallee)
        self._unnamed = HttpEndpoint(self._driver, TARGET)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request, from its headers to the end of its response."""
        headers = headers_in(scope["headers"])
        incoming = RequestBody(scope, receive, headers)
        try:
            certificate = certificate_in(scope)
            for each in self._agents():
                if await each.recognizes(headers, TARGET, certificate):
                    break
            else:
                raise Unauthenticated()
            body = await incoming.read(self._server)
        except DragomanError as exc:
            _, extra = await incoming.drain()
            exchange = Exchange(self._driver, self._driver.callee())
            (frame,) = exchange.session.send(exchange.fail(exc))
            await send_frame(self._server, send, frame, extra)
            return
        router = self._router.router_of(_tenant_in(body))
        if router is None:
            await self._unnamed(scope, replay_body(body, receive), send)
        else:
            await router.route(scope, replay_body(body, receive), send)


def _tenant_in(body: bytes) -> str:
    try:
        return _read(body).params.tenant
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""  # the agent that answers the request reports what is wrong
