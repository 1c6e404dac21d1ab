"""The sessions of MCP clients over streamable HTTP, which the `mcp` package keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS

from dragoman.core.peer import Context
from dragoman.net.http.asgi import AsgiEvent, Receive, Scope, Send, headers_in
from dragoman.net.strangers import network_of

from .http_service import CALLERS, SESSION
from .session_shares import IDLE_SECONDS, MOST_SESSIONS, SessionCaller, SessionShares
from .tool_server import Request, ToolServer
from .tools import OfferedAgent


class HttpSessions:
    """Handles requests whose callers are known."""

    def __init__(
        self,
        title: str,
        version: str,
        agents: Mapping[str, OfferedAgent],
        body_size: int,
        *,
        several: bool,
    ) -> None:
        self._tools = ToolServer(title, version, agents, _callers, several=several)
        self._manager = StreamableHTTPSessionManager(
            self._tools.server,
            max_request_body_size=body_size,
            max_sessions=MOST_SESSIONS,
            session_idle_timeout=IDLE_SECONDS,
        )
        self._shares = SessionShares()
        self._ending = asyncio.Event()
        self._host: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Ready for requests when it returns."""
        started = asyncio.Event()
        # The package wants its sessions to begin and to end in one task.
        self._host = asyncio.get_running_loop().create_task(self._run(started))
        await started.wait()

    async def _run(self, started: asyncio.Event) -> None:
        async with self._manager.run():
            started.set()
            await self._ending.wait()

    def detach(self) -> None:
        """Leaves tasks running when their calls are dropped."""
        self._tools.detach()

    async def stop(self) -> None:
        """Ends all sessions."""
        self.detach()
        self._ending.set()
        if self._host is not None:
            await self._host

    def admit(self, scope: Scope) -> SessionCaller | None:
        """Takes a place for the session that a request would open; None if it opens none. Raises
        `TooManySessions` if its caller has its share."""
        headers = headers_in(scope["headers"])
        version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
        without = version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS
        if SESSION in headers or without:
            return None
        return self._shares.open(_caller(scope))

    async def handle(
        self, scope: Scope, receive: Receive, send: Send, opening: SessionCaller | None
    ) -> None:
        """Answers one request. One that opens a session was admitted to."""
        user = AuthenticatedUser(_principal(scope[CALLERS]))  # a session is its caller's alone
        session, caller = headers_in(scope["headers"]).get(SESSION, ""), _caller(scope)
        status = 0

        async def watch(message: AsgiEvent) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if opening is not None:
                    # From here on it counts as a session: its first answer may be a long stream.
                    given = headers_in(list(message.get("headers", ()))).get(SESSION, "")
                    self._shares.opened(opening, given if status < 400 else "")
            await send(message)

        self._shares.begin(session, caller)
        try:
            await self._manager.handle_request({**scope, "user": user}, receive, watch)
        finally:
            if opening is not None and not status:
                self._shares.opened(opening, "")
            ended = scope["method"] == "DELETE" and 200 <= status < 300
            self._shares.end(session, caller, gone=ended or status == 404)


def _caller(scope: Scope) -> SessionCaller:
    """Returns who has the session of a request: a known caller, or the strangers at an address."""
    known = _principal(scope[CALLERS]).client_id
    address = str((scope.get("client") or ("",))[0])
    return SessionCaller(known or network_of(address), stranger=not known)


def _principal(callers: Mapping[str, Context]) -> AccessToken:
    """Returns the caller in the terms of the package, which compares it with the owner of a
    session. The agents do not count, since they may come and go during a session."""
    known = {f"{each.tenant}/{each.principal}" for each in callers.values() if each.schemes}
    return AccessToken(token="", client_id="\n".join(sorted(known)), scopes=[])


def _callers(request: Request) -> Mapping[str, Context]:
    assert request.request is not None  # noqa: S101  over HTTP there always is one
    found: Mapping[str, Context] = request.request.scope[CALLERS]
    return found
