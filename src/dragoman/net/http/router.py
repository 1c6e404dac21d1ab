"""Routes requests to handlers over the raw ASGI interface.

This is deliberately not a web framework: finding a route is one dictionary access, and a request
creates no objects but those that its response needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import msgspec

from dragoman.security.allowed_hosts import AllowedHosts, Refusal

from .asgi import Handler, Receive, Scope, Send, answer, headers_in
from .cors import CrossOrigin
from .mount_point import AGENTS, HOSTED, below, host_in, relative
from .request_body import RequestBody

Routes = Mapping[str, Mapping[str, Handler]]
"""Maps paths to methods to handlers. The method `*` means any; `/` is the JSON-RPC endpoint."""
_BELOW_AGENTS = f"{AGENTS}/"
SOCKET = "websocket"
"""The key for the handler of WebSockets, in place of a method (HTTP methods are in capitals)."""
Patterns = Mapping[str, Callable[[str], bool]]
"""Maps keys of the routes that stand for many paths to the pattern of these paths."""


class Router:
    """An ASGI app that routes requests, answers those without a route and runs the lifespan.

    Mounted agents have routers of their own, which serve the paths below `/agents/{name}`.
    """

    def __init__(
        self,
        routes: Routes,
        start: Callable[[], Awaitable[None]] | None = None,
        stop: Callable[[], Awaitable[None]] | None = None,
        patterns: Patterns | None = None,
        seen: Callable[[Scope], Scope] | None = None,
        hosts: AllowedHosts | None = None,
    ) -> None:
        self.routes = {path: dict(methods) for path, methods in routes.items()}
        self._patterns = dict(patterns or {})
        self._start, self._stop = start, stop
        self._seen = seen
        """Returns a request as it was before our trusted proxies, if there are any."""
        self._hosts = hosts
        self._mounts: dict[str, Router] = {}
        self._by_host: dict[str, Router] = {}
        self._by_tenant: dict[str, Router] = {}
        self.cors: CrossOrigin | None = None
        """What pages of other origins may do, if any of them may call us."""
        self.everywhere: frozenset[str] = frozenset()
        """The paths that are the server's own, even at the host of an agent."""
        self.everywhere_below: tuple[str, ...] = ()
        """What paths begin with that are the server's own, even at the host of an agent."""
        self.by_skill: Callable[[Scope], tuple[Router, Scope] | None] | None = None
        """Returns the router for what is below `/agents/-`, and the request as it sees it."""
        self.by_body: Handler | None = None
        """Serves `POST /` where agents have tenants: over JSON-RPC, only the body names one."""

    def mount(self, name: str, router: Router, host: str = "", tenant: str = "") -> None:
        """Serves the paths below `/agents/{name}` with this router, and also all paths at `host`
        and the requests of `tenant`."""
        self.unmount(name)
        self._mounts[name] = router
        if host:
            self._by_host[host] = router
        if tenant:
            self._by_tenant[tenant] = router

    def unmount(self, name: str) -> None:
        """Stops serving the agent of this name."""
        gone = self._mounts.pop(name, None)
        for table in (self._by_host, self._by_tenant):
            for key in [key for key, router in table.items() if router is gone]:
                del table[key]

    def router_of(self, tenant: str) -> Router | None:
        """Returns the router of the agent that serves this tenant."""
        return self._by_tenant.get(tenant)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one ASGI connection."""
        await self.route(scope, receive, send)

    def route(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serves one ASGI connection for our own listener, which saves a coroutine around the
        handler's. Other servers expect an `async` callable."""
        kind, router = scope["type"], self
        if kind == "lifespan":
            return self._lifespan(receive, send)
        if self.cors is not None and kind == "http" and (origin := self.cors.origin_in(scope)):
            if self.cors.is_preflight(scope):
                return self.cors.preflight(send, origin)
            send = self.cors.marking(send, origin)
        if self._seen is not None:
            scope = self._seen(scope)
        if scope.get("root_path"):
            scope = relative(scope)
        if self._mounts:
            router, scope = self._mounted(scope)
        if router._hosts is not None:
            refused = router._hosts.refusal(scope)
            if refused is not None:
                return _refuse(scope, receive, send, refused)
        path = scope["path"]
        methods = router.routes.get(path)
        if kind == "http":
            method = scope["method"]
            if router is self and self._by_tenant and path == "/" and method == "POST":
                assert self.by_body is not None  # noqa: S101  set where tenants are
                return self.by_body(scope, receive, send)
            if methods is not None and (handler := methods.get(method)) is not None:
                return handler(scope, receive, send)
            for key, fits in router._patterns.items():
                if fits(path) and (found := router._of_pattern(key, method)):
                    return found(scope, receive, send)
            return no_route(scope, receive, send, methods)
        if methods is not None and (socket := methods.get(SOCKET)) is not None:
            return socket(scope, receive, send)
        return _no_socket(receive, send)

    def _mounted(self, scope: Scope) -> tuple[Router, Scope]:
        """Returns the router of the agent that a request is for, and the request as it sees it."""
        path: str = scope["path"]
        if self._by_host and path not in self.everywhere:
            router = self._by_host.get(host_in(scope))
            if router is not None and not path.startswith(self.everywhere_below):
                return router, {**scope, HOSTED: True}
        if not path.startswith(_BELOW_AGENTS):
            if not self._by_tenant:
                return self, scope
            # A2A 1.0 §11: a tenant is the first word of the path.
            router = self._by_tenant.get(path[1:].partition("/")[0])
            return (self, scope) if router is None else (router, scope)
        name = path.removeprefix(_BELOW_AGENTS).partition("/")[0]
        if name == "-" and self.by_skill is not None:
            return self.by_skill(scope) or (self, scope)
        router = self._mounts.get(name)
        return (self, scope) if router is None else (router, below(scope, f"{AGENTS}/{name}"))

    def _of_pattern(self, key: str, method: str) -> Handler | None:
        methods = self.routes[key]
        return methods.get(method) or methods.get("*")

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Starts the app, and stops it at the end. Frameworks that mount it run no lifespan but
        their own, which can be this one: `FastAPI(lifespan=desk.lifespan)`."""
        if self._start is not None:
            await self._start()
        try:
            yield
        finally:
            if self._stop is not None:
                await self._stop()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            if self._start is not None:
                await self._start()
        except Exception as exc:  # ASGI: the server is told, and prints it
            await send({"type": "lifespan.startup.failed", "message": str(exc)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._stop is not None:
            await self._stop()
        await send({"type": "lifespan.shutdown.complete"})


async def _refuse(scope: Scope, receive: Receive, send: Send, refused: Refusal) -> None:
    if scope["type"] == "websocket":
        await _no_socket(receive, send)
        return
    _, extra = await RequestBody(scope, receive, headers_in(scope["headers"])).drain()
    body = msgspec.json.encode({"error": refused.error, "message": refused.message})
    await answer(send, refused.status, body, extra=extra, head=scope["method"] == "HEAD")


async def _no_socket(receive: Receive, send: Send) -> None:
    """Refuses a WebSocket at a path that has none."""
    await receive()
    await send({"type": "websocket.close", "code": 1000})


async def no_route(
    scope: Scope, receive: Receive, send: Send, methods: Mapping[str, Handler] | None
) -> None:
    """Answers a request for a path or a method that is not served."""
    head = scope["method"] == "HEAD"
    _, extra = await RequestBody(scope, receive, headers_in(scope["headers"])).drain()
    if methods is None:
        path = f"{scope.get('root_path', '')}{scope['path']}"[:200]
        body = msgspec.json.encode({"error": "not_found", "path": path})
        await answer(send, 404, body, extra=extra, head=head)
        return
    allow = ", ".join(method for method in methods if method != SOCKET)
    extra = ((b"allow", allow.encode()), *extra)
    if scope["method"] == "OPTIONS":
        await answer(send, 204, extra=extra)
        return
    body = msgspec.json.encode({"error": "method_not_allowed", "allow": allow})
    await answer(send, 405, body, extra=extra, head=head)
