"""`/mcp`: the skills of agents as MCP tools over streamable HTTP, behind our own authentication.

The protocol is the business of the `mcp` package, whose ASGI handler gets requests that are
admitted already: their caller is known and counted, their host and origin are allowed, and their
body has been read within our limits. The package is imported with the first request, in a thread:
it takes a second, and most servers are never asked for MCP.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from dragoman.core.errors import (
    DragomanError,
    Forbidden,
    StoreUnavailable,
    TooLarge,
    TooMany,
    TooSlow,
    Unauthenticated,
)
from dragoman.core.peer import Context
from dragoman.net.http.asgi import (
    AsgiEvent,
    Handler,
    Header,
    Receive,
    Scope,
    Send,
    answer,
    headers_in,
    replay_body,
)
from dragoman.net.http.exchange import target_in
from dragoman.net.http.request_body import RequestBody
from dragoman.net.server_context import OpenStream, ServerContext
from dragoman.net.service import OtherWorkers, Service
from dragoman.security.authentication import certificate_in
from dragoman.security.rate_limits import Meter
from dragoman.security.route_policy import Policy

from .session_shares import SessionCaller, TooManySessions
from .tools import OfferedAgent

if TYPE_CHECKING:
    from .http_sessions import HttpSessions

PATH = "/mcp"
SESSION = "mcp-session-id"
"""The header with the id of a session, which the first answer gives."""
MOST_IDS = 10_000
"""The number of sessions of which we remember that they began here."""
CALLERS = "dragoman.callers"
"""The key of a scope with the caller of a request, as each agent knows it."""
NOT_OURS = frozenset(("last-event-id", "idempotency-key", "a2a-extensions", "x-a2a-extensions"))
"""Headers that mean something else in A2A, or nothing here."""
STATUS = {
    TooManySessions: 503,
    Unauthenticated: 401,
    Forbidden: 403,
    TooLarge: 413,
    TooSlow: 408,
    TooMany: 429,
    StoreUnavailable: 503,
}
INVALID_REQUEST = -32600

Identify = Callable[[Mapping[str, str], str, str], Awaitable[Context]]


class HttpAgent(OfferedAgent, frozen=True, kw_only=True):
    """An agent that is offered to callers over HTTP."""

    identify: Identify
    """Returns the caller as this agent knows it, without counting a call, or raises
    `Unauthenticated`."""
    kind: Hashable
    """Agents of one kind know every caller as the same one, so that one of them needs to be
    asked."""
    shows_card: Callable[[Context, str], bool]
    """Returns whether a caller from this address may read the card, and so the list of tools."""


class McpService(Service):
    """Serves `/mcp` at one mount point: one agent, or all agents of a server."""

    name = "mcp"
    policy = Policy.CALLER

    def __init__(
        self,
        title: str,
        version: str,
        agents: Mapping[str, HttpAgent],
        server: ServerContext,
        meter: Meter,
        *,
        several: bool,
    ) -> None:
        """`agents` are looked up at every request, so they may come and go."""
        self._several = several
        self._title, self._version = title, version
        self._agents, self._server, self._meter = agents, server, meter
        self._sessions: HttpSessions | None = None
        self._others: OtherWorkers | None = None
        self._own_ids: OrderedDict[str, None] = OrderedDict()
        """The ids of the sessions that were begun here, if the server has several processes."""
        self._starting = asyncio.Lock()
        self._stopped = False

    def join(self, others: OtherWorkers) -> None:
        """Shares the sessions with the other processes of the server: each is in the memory of one,
        and the others pass its requests on."""
        others.answers[self.name] = self._own_ids.__contains__, self
        self._others = others

    def routes(self) -> Mapping[str, Mapping[str, Handler]]:
        """Its only address."""
        return {PATH: dict.fromkeys(("GET", "POST", "DELETE"), self)}

    async def drain(self) -> None:
        """Calls that are under way may end. If they do not, their tasks go on without them."""
        if self._sessions is not None:
            self._sessions.detach()

    async def stop(self) -> None:
        """Ends all sessions."""
        self._stopped = True
        if self._sessions is not None:
            await self._sessions.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        began, server = perf_counter(), self._server
        headers = headers_in(scope["headers"])
        if self._others is not None:
            session = headers.get(SESSION, "")
            if session and session not in self._own_ids:
                if await self._others.pass_on(self.name, session, scope, receive, send):
                    return
            elif not session:
                send = self._noting_session(send)
        extra: tuple[Header, ...] = ()
        try:
            incoming = RequestBody(scope, receive, headers)
            try:
                callers = await self._callers(scope, headers)
                sessions = await self._running()
                if scope["method"] == "POST":
                    receive = replay_body(await incoming.read(server), receive)
            except DragomanError:
                _, extra = await incoming.drain()
                raise
            if len(server.streams) >= server.limits.streams:
                raise TooMany("Too many streams are open; try again later.")
            asked = {**scope, CALLERS: callers}
            opening = sessions.admit(asked)
        except DragomanError as error:
            server.metrics.failed(error.reason, "mcp")
            await _refuse(send, error, (*extra, *server.refusal_headers(error)))
            return
        await self._handle(sessions, asked, receive, send, opening)
        server.metrics.answered(scope["method"], "mcp", perf_counter() - began)

    def _noting_session(self, send: Send) -> Send:
        """Returns a `send` that notes the id of a session that begins with this answer."""

        async def noting(message: AsgiEvent) -> None:
            for name, value in message.get("headers", ()):
                if name == SESSION.encode():
                    self._own_ids[value.decode()] = None
                    if len(self._own_ids) > MOST_IDS:
                        self._own_ids.popitem(last=False)
            await send(message)

        return noting

    async def _callers(self, scope: Scope, headers: Mapping[str, str]) -> dict[str, Context]:
        """Returns the caller as each agent knows it; the agents that do not let it in are left
        out."""
        told = {name: value for name, value in headers.items() if name not in NOT_OURS}
        target, certificate = target_in(scope, ""), certificate_in(scope)
        address = str((scope.get("client") or ("",))[0])
        found: dict[str, Context] = {}
        refusal: DragomanError = Forbidden()
        known: dict[Hashable, Context | None] = {}
        for name, agent in tuple(self._agents.items()):  # they may come and go meanwhile
            if agent.kind not in known:
                try:
                    known[agent.kind] = await agent.identify(told, target, certificate)
                except DragomanError as error:
                    refusal, known[agent.kind] = error, None
            caller = known[agent.kind]
            if caller is not None and agent.shows_card(caller, address):
                found[name] = caller
        if not found:
            raise refusal
        # It is one call, however many agents there are.
        counted = self._meter.take(next(iter(found.values())))
        if counted is not None:
            await counted
        return found

    async def _running(self) -> HttpSessions:
        if self._sessions is None:
            async with self._starting:
                if self._stopped:
                    raise StoreUnavailable("The server stops.")
                if self._sessions is None:
                    self._sessions = await self._start()
        return self._sessions

    async def _start(self) -> HttpSessions:
        make = await asyncio.to_thread(_imported)
        size, several = self._server.limits.body_size, self._several
        sessions = make(self._title, self._version, self._agents, size, several=several)
        await sessions.start()
        return sessions

    async def _handle(
        self,
        sessions: HttpSessions,
        scope: Scope,
        receive: Receive,
        send: Send,
        opening: SessionCaller | None,
    ) -> None:
        server = self._server
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  an ASGI app always runs in a task
        stream = OpenStream(task, server)
        server.streams.add(stream)
        try:
            await self._answer(sessions, scope, receive, send, opening)
        except asyncio.CancelledError:
            if not stream.why:  # the server itself cancels the request, which must go on up
                raise
            task.uncancel()
        finally:
            server.streams.discard(stream)

    async def _answer(
        self,
        sessions: HttpSessions,
        scope: Scope,
        receive: Receive,
        send: Send,
        opening: SessionCaller | None,
    ) -> None:
        server = self._server
        try:
            timed = partial(_send, server.limits.stall, send)
            await sessions.handle(scope, receive, timed, opening)
        except* _Stalled:  # the package sends from tasks of its own
            server.metrics.streams_stalled += 1
            server.log.warning("A reader of a stream has stalled", dialect="mcp")


class _Stalled(Exception):
    """Nobody reads the answer."""


async def _send(stall: float, send: Send, message: AsgiEvent) -> None:
    """Sends a piece of an answer, if its reader takes it in time."""
    try:
        async with asyncio.timeout(stall):
            await send(message)
    except TimeoutError:
        raise _Stalled from None


async def _refuse(send: Send, error: DragomanError, extra: tuple[Header, ...]) -> None:
    """Answers as JSON-RPC does where there is no id."""
    status = next((STATUS[each] for each in type(error).__mro__ if each in STATUS), 400)
    told = {"code": INVALID_REQUEST, "message": error.message, "data": {"reason": error.reason}}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": told})
    await answer(send, status, body, extra=extra)


def _imported() -> type[HttpSessions]:
    from .http_sessions import HttpSessions

    return HttpSessions
