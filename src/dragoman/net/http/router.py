"""The HTTP side: a small table of routes over the raw ASGI interface.

Not a web framework on purpose: looking up a path is one dictionary access, and nothing is built
per request but what the answer needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from dragoman.security.allowed_hosts import AllowedHosts, Refusal

from .asgi import Handler, Receive, Scope, Send, answer, headers_in
from .mount_point import AGENTS, below, relative
from .request_body import RequestBody

Routes = Mapping[str, Mapping[str, Handler]]
"""Path to method to handler; the method `*` is any. `/` is the agent's JSON-RPC address."""
SOCKET = "websocket"
"""In place of a method: the handler of WebSockets. Methods of HTTP are in capitals."""
Patterns = Mapping[str, Callable[[str], bool]]
"""For keys of the routes that stand for many paths: which those are."""


class Router:
    """An ASGI app: routes requests, answers what has no route, runs the lifespan.

    `mounts` are the routers of agents by their names: what lies below `/agents/{name}` is theirs.
    """

    def __init__(
        self,
        routes: Routes,
        start: Callable[[], Awaitable[None]] | None = None,
        stop: Callable[[], Awaitable[None]] | None = None,
        patterns: Patterns | None = None,
        seen: Callable[[Scope], Scope] | None = None,
        hosts: AllowedHosts | None = None,
        mounts: Mapping[str, Router] | None = None,
    ) -> None:
        self.routes = {path: dict(methods) for path, methods in routes.items()}
        self._patterns = dict(patterns or {})
        self._start, self._stop = start, stop
        self._seen = seen
        """A request as it was before our own proxies, if there are any."""
        self._hosts = hosts
        self._mounts = dict(mounts or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        await self.route(scope, receive, send)

    def route(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """The same for our own listener, without a coroutine around the handler's. Other servers
        look for an `async` callable."""
        kind, router = scope["type"], self
        if kind == "lifespan":
            return self._lifespan(receive, send)
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
            if methods is not None and (handler := methods.get(method)) is not None:
                return handler(scope, receive, send)
            for key, fits in router._patterns.items():
                if fits(path) and (found := router._of_pattern(key, method)):
                    return found(scope, receive, send)
            return _no_route(scope, receive, send, methods)
        if methods is not None and (socket := methods.get(SOCKET)) is not None:
            return socket(scope, receive, send)
        return _no_socket(receive, send)

    def _mounted(self, scope: Scope) -> tuple[Router, Scope]:
        """The router of the agent whose path this is, and the request as that agent sees it."""
        before, slash, rest = scope["path"].partition(f"{AGENTS}/")
        if before or not slash:
            return self, scope
        name = rest.partition("/")[0]
        router = self._mounts.get(name)
        return (self, scope) if router is None else (router, below(scope, f"{AGENTS}/{name}"))

    def _of_pattern(self, key: str, method: str) -> Handler | None:
        methods = self.routes[key]
        return methods.get(method) or methods.get("*")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            if self._start is not None:
                await self._start()
        except Exception as exc:  # the server wants to be told, and prints it
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
    """A WebSocket where none is spoken."""
    await receive()
    await send({"type": "websocket.close", "code": 1000})


async def _no_route(
    scope: Scope, receive: Receive, send: Send, methods: Mapping[str, Handler] | None
) -> None:
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
