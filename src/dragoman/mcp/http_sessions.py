"""The sessions of MCP clients over streamable HTTP, which the `mcp` package keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from dragoman.core.peer import Context
from dragoman.net.http.asgi import Receive, Scope, Send

from .http_service import CALLERS
from .tool_server import Request, ToolServer
from .tools import OfferedAgent

MOST_SESSIONS = 1000
"""Sessions at a time; each has a task of its own. From 2026-07-28 on, MCP has no sessions."""
IDLE = 1800.0
"""Seconds after which a session that nobody uses ends."""


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
            session_idle_timeout=IDLE,
        )
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

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        user = AuthenticatedUser(_principal(scope[CALLERS]))  # a session is its caller's alone
        await self._manager.handle_request({**scope, "user": user}, receive, send)


def _principal(callers: Mapping[str, Context]) -> AccessToken:
    """Returns the caller in the terms of the package, which compares it with the owner of a
    session. The agents do not count, since they may come and go during a session."""
    known = {f"{each.tenant}/{each.principal}" for each in callers.values() if each.schemes}
    return AccessToken(token="", client_id="\n".join(sorted(known)), scopes=[])


def _callers(request: Request) -> Mapping[str, Context]:
    assert request.request is not None  # noqa: S101  over HTTP there always is one
    found: Mapping[str, Context] = request.request.scope[CALLERS]
    return found
