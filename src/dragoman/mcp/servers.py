"""The MCP servers that skills call: one session each, which the agents of a process share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dragoman.agent.mcp_calls import McpResult
from dragoman.core.auth_schemes import Secret
from dragoman.core.card import Tool
from dragoman.core.model import Json
from dragoman.security.verifiers import read_secret
from dragoman.settings import McpServer

from . import extra

if TYPE_CHECKING:
    from .connection import McpConnection


class McpServers:
    """Implements `agent.mcp_calls.McpCalls`. A server is started by the first call."""

    def __init__(self, servers: Mapping[str, McpServer]) -> None:
        """Raises `ConfigError` if the `mcp` package is not installed, or a secret is not set."""
        extra.require()
        self._servers = {name: _with_secrets(name, each) for name, each in servers.items()}
        self._connections: dict[str, McpConnection] = {}
        self.users: set[object] = set()
        """Those that call servers now and then; the sessions end when the last of them leaves."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._servers)

    def __contains__(self, name: str) -> bool:
        return name in self._servers

    async def tools(self, server: str) -> tuple[Tool, ...]:
        """Returns the tools of a server."""
        return await (await self._connection(server)).tools()

    async def call(
        self, server: str, tool: str, arguments: Mapping[str, Json], key: str
    ) -> McpResult:
        """Calls a tool."""
        return await (await self._connection(server)).call(tool, arguments, key)

    async def _connection(self, name: str) -> McpConnection:
        if name not in self._connections:
            make = await asyncio.to_thread(_imported)
            self._connections.setdefault(name, make(name, self._servers[name]))
        return self._connections[name]

    async def leave(self, user: object) -> None:
        """Ends all sessions if nobody else uses them. A call that comes later begins a new one."""
        if user not in self.users:
            return
        self.users.discard(user)
        if self.users:
            return
        connections, self._connections = self._connections, {}
        for each in connections.values():
            await each.close()


def _with_secrets(name: str, server: McpServer) -> McpServer:
    """Returns the same server with the secrets themselves in place of where they are found."""
    headers = _values(f"[mcp.{name}] headers", server.headers)
    if server.secret is not None:
        token = read_secret(server.secret, f"[mcp.{name}] secret")
        headers["authorization"] = f"Bearer {token}"
    return McpServer(
        command=server.command,
        env=_values(f"[mcp.{name}] env", server.env),
        url=server.url,
        headers=headers,
        timeout=server.timeout,
        max_size=server.max_size,
    )


def _values(where: str, given: Mapping[str, str | Secret]) -> dict[str, str | Secret]:
    return {
        name: value if isinstance(value, str) else read_secret(value, f"{where}.{name}")
        for name, value in given.items()
    }


def _imported() -> type[McpConnection]:
    from .connection import McpConnection

    return McpConnection
